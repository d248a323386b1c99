//! A list as text: written a piece at a time, as its reader takes it.
//!
//! The whole text, which may be a hundred megabytes for each requester, is never held. An unread list holds the stored
//! texts of its objects, which it shares with the store.

use std::{mem, sync::Arc, vec};

use bytes::Bytes;
use serde_json::Value;

use super::{
    form::Shaper,
    list::Listing,
    negotiate::{Encoding, Form},
    stored,
};
use crate::{
    kinds::{Resource, table::Include},
    store::Record,
};

/// About how long a piece is; a single object may be longer. Writing one takes about a millisecond,
/// for which a worker of the runtime is busy.
const PIECE: usize = 64 << 10;

/// The text of a list, in pieces.
#[derive(Debug)]
pub(crate) struct Written {
    /// The text before the first item, until it is handed out.
    opening: Vec<u8>,
    records: vec::IntoIter<Record>,
    resource: Arc<Resource>,
    form: Form,
    include: Include,
    now: jiff::Timestamp,
    encoding: Encoding,
    first: bool,
    ended: bool,
}

impl Written {
    pub(crate) fn new(
        listing: Listing,
        resource: Arc<Resource>,
        shaper: &Shaper<'_>,
        encoding: Encoding,
    ) -> Self {
        let (head, field) = shaper.list_head(&listing.metadata(&resource, shaper.form));
        Self {
            opening: opening(&head, field, encoding),
            records: listing.items.into_iter(),
            form: shaper.form,
            include: shaper.include,
            now: shaper.now,
            resource,
            encoding,
            first: true,
            ended: false,
        }
    }

    pub(crate) fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Bytes of memory, without the texts of the objects, which the store has anyway.
    pub(crate) fn held(&self) -> usize {
        size_of_val(self.records.as_slice())
    }

    /// Whether the whole list is about one piece.
    pub(crate) fn is_small(&self) -> bool {
        let stored: usize = self.records.as_slice().iter().map(|record| record.value.len()).sum();
        stored <= PIECE
    }

    fn write(&mut self, text: &mut Vec<u8>, record: &Record) {
        let resource = &*self.resource;
        let shaper = Shaper { resource, form: self.form, include: self.include, now: self.now };
        // It was read when the list was made.
        let Ok(object) = stored::load(resource, record) else { return };
        let item = shaper.item(object);
        let first = mem::take(&mut self.first);
        // A `Value` can always be written.
        match self.encoding {
            Encoding::Json => {
                text.extend_from_slice(if first { b"" } else { b"," });
                serde_json::to_writer(text, &item).ok();
            }
            Encoding::PrettyJson => {
                text.extend_from_slice(if first { b"\n    " } else { b",\n    " });
                // No string of JSON has a line feed in it.
                let item = serde_json::to_string_pretty(&item).unwrap_or_default();
                text.extend_from_slice(item.replace('\n', "\n    ").as_bytes());
            }
            Encoding::Yaml => {
                text.extend_from_slice(if first { b"\n" } else { b"" });
                let item = serde_saphyr::to_string(&[item]).unwrap_or_default();
                text.extend_from_slice(item.trim_end_matches('\n').as_bytes());
                text.push(b'\n');
            }
        }
    }

    fn closing(&self) -> &'static [u8] {
        match (self.encoding, self.first) {
            (Encoding::Json, _) => b"]}\n",
            (Encoding::PrettyJson, true) => b"]\n}",
            (Encoding::PrettyJson, false) => b"\n  ]\n}",
            (Encoding::Yaml, true) => b" []\n",
            (Encoding::Yaml, false) => b"",
        }
    }
}

impl Iterator for Written {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.ended {
            return None;
        }
        let mut text = mem::take(&mut self.opening);
        while text.len() < PIECE {
            let Some(record) = self.records.next() else {
                self.ended = true;
                text.extend_from_slice(self.closing());
                break;
            };
            self.write(&mut text, &record);
        }
        Some(text.into())
    }
}

/// The list without its items, up to where those begin.
fn opening(head: &Value, field: &str, encoding: Encoding) -> Vec<u8> {
    let text = match encoding {
        Encoding::Json => {
            let head = head.to_string();
            format!("{},\"{field}\":[", head.strip_suffix('}').unwrap_or(&head))
        }
        Encoding::PrettyJson => {
            let head = serde_json::to_string_pretty(head).unwrap_or_default();
            format!("{},\n  \"{field}\": [", head.strip_suffix("\n}").unwrap_or(&head))
        }
        Encoding::Yaml => {
            let head = serde_saphyr::to_string(head).unwrap_or_default();
            format!("{}\n{field}:", head.trim_end_matches('\n'))
        }
    };
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{kinds::BuiltIn, rest::negotiate::MetaVersion, store::Key};

    fn written(count: usize, form: Form, encoding: Encoding) -> Written {
        let resource = Arc::new(BuiltIn::ConfigMap.resource());
        let record = |at: usize| {
            let name = format!("c{at}");
            let text = json!({"metadata": {"name": name, "uid": "u"}, "data": {"a": "x\ny: \"}", "b": ""}});
            let value = text.to_string().into();
            Record { key: Key::new("", "configmaps", "default", &name), revision: 7, value }
        };
        let listing = Listing::whole((0..count).map(record).collect(), 9);
        let now = jiff::Timestamp::UNIX_EPOCH;
        let shaper = Shaper { resource: &resource, form, include: Include::Metadata, now };
        Written::new(listing, Arc::clone(&resource), &shaper, encoding)
    }

    fn read(written: Written, encoding: Encoding) -> Value {
        let text: Vec<u8> = written.flatten().collect();
        let text = String::from_utf8(text).unwrap();
        match encoding {
            Encoding::Json | Encoding::PrettyJson => serde_json::from_str(&text).unwrap(),
            Encoding::Yaml => serde_saphyr::from_str(&text).unwrap(),
        }
    }

    #[test]
    fn a_list_says_the_same_in_every_encoding_and_form_whatever_its_length() {
        for form in [Form::Whole, Form::PartialList(MetaVersion::V1), Form::Table(MetaVersion::V1)]
        {
            for count in [0, 1, 2, 2000] {
                let list = read(written(count, form, Encoding::Json), Encoding::Json);
                let items = if matches!(form, Form::Table(_)) { "rows" } else { "items" };
                assert_eq!(list[items].as_array().unwrap().len(), count, "{form:?}");
                assert_eq!(list["metadata"]["resourceVersion"], "9");
                for encoding in [Encoding::PrettyJson, Encoding::Yaml] {
                    assert_eq!(
                        read(written(count, form, encoding), encoding),
                        list,
                        "{encoding:?}"
                    );
                }
            }
        }
        let list = read(written(1, Form::Whole, Encoding::Json), Encoding::Json);
        assert_eq!(
            list,
            json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": "9"},
                "items": [{"metadata": {"name": "c0", "uid": "u", "resourceVersion": "7"},
                    "data": {"a": "x\ny: \"}", "b": ""}}]})
        );
    }

    #[test]
    fn a_long_list_is_never_held_as_one_text() {
        let pieces: Vec<Bytes> = written(5000, Form::Whole, Encoding::Json).collect();
        assert!(pieces.len() > 4, "{}", pieces.len());
        assert!(pieces.iter().all(|piece| piece.len() < PIECE + 1024));
        assert!(written(3, Form::Whole, Encoding::Json).is_small());
        assert!(!written(5000, Form::Whole, Encoding::Json).is_small());
    }
}
