//! From the bytes of a request to a JSON value.

use std::fmt;

use http::{HeaderMap, header};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use serde_saphyr::DuplicateKeyPolicy;

use super::{number::number, protobuf};
use crate::kinds::{
    field::{self, Path, SHOWN_PATH, shorten},
    status::{Answer, Status},
};

/// The largest body that is read: what kube-apiserver takes.
pub(crate) const LIMIT: usize = 3 * 1024 * 1024;

/// Duplicate fields that are noted, as many as Kubernetes notes.
const MOST_DUPLICATES: usize = 100;

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
/// The media types that a 415 names. Protobuf is missing: few kinds are read from protobuf.
const ACCEPTED: [&str; 2] = [JSON, YAML];

/// A decoded body, and the fields that occurred twice in it.
#[derive(Debug, Default)]
pub(crate) struct Body {
    /// The value.
    pub(crate) value: Value,
    /// The paths of duplicate fields; the last value won.
    pub(crate) duplicates: Vec<String>,
}

/// The media type of a body without its parameters; JSON if none is given.
pub(crate) fn content_type(headers: &HeaderMap) -> String {
    let header = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media_type = header.and_then(|value| value.split(';').next()).unwrap_or_default().trim();
    if media_type.is_empty() { JSON.to_owned() } else { media_type.to_ascii_lowercase() }
}

/// Refuses a body of an unknown type, before it is looked at.
///
/// # Errors
/// The type is neither JSON nor YAML (415).
pub(crate) fn check_content_type(headers: &HeaderMap) -> Answer<()> {
    let media_type = content_type(headers);
    if ACCEPTED.contains(&media_type.as_str()) {
        return Ok(());
    }
    Err(Status::unsupported_media_type(&ACCEPTED))
}

/// Decodes a body by its content type. No reader recurses without a bound: `serde_json` stops at 127 levels,
/// `serde-saphyr` at 64 (and 250,000 nodes, aliases counted), `prost` at 100.
///
/// # Errors
/// The type is unknown (415), or the text is malformed (400).
pub(crate) fn decode(headers: &HeaderMap, bytes: &[u8]) -> Answer<Body> {
    if content_type(headers) == protobuf::MEDIA_TYPE {
        return Ok(Body { value: protobuf::decode(bytes)?, duplicates: Vec::new() });
    }
    check_content_type(headers)?;
    if content_type(headers) == YAML {
        let Plain(value) = serde_saphyr::from_slice(bytes).map_err(|error| {
            Status::bad_request(format!("error converting YAML to JSON: {error}"))
        })?;
        return Ok(Body { value, duplicates: Vec::new() });
    }
    decode_json(bytes)
}

/// Decodes what is to be applied, YAML or JSON, and says which fields occur twice; the last value won.
///
/// # Errors
/// The text is malformed (400).
pub(crate) fn decode_applied(bytes: &[u8]) -> Answer<(Value, Vec<String>)> {
    if let Ok(Body { value, duplicates }) = decode_json(bytes) {
        let twice = duplicates.iter().map(|path| format!("duplicate field {}", field::quote(path)));
        return Ok((value, twice.collect()));
    }
    let malformed =
        |error: serde_saphyr::Error| Status::bad_request(format!("error decoding YAML: {error}"));
    let read = |duplicate_keys| {
        let options =
            serde_saphyr::options! { duplicate_keys: duplicate_keys, with_snippet: false };
        serde_saphyr::from_slice_with_options(bytes, options).map(|Plain(value)| value)
    };
    match read(DuplicateKeyPolicy::Error) {
        Err(serde_saphyr::Error::DuplicateMappingKey { key, location }) => {
            let value = read(DuplicateKeyPolicy::LastWins).map_err(malformed)?;
            let key = field::quote(&key.unwrap_or_default());
            Ok((value, vec![format!("line {}: key {key} already set in map", location.line())]))
        }
        read => Ok((read.map_err(malformed)?, Vec::new())),
    }
}

/// Decodes JSON text.
///
/// # Errors
/// It is malformed (400).
pub(crate) fn decode_json(bytes: &[u8]) -> Answer<Body> {
    let malformed = |error: serde_json::Error| {
        Status::bad_request(format!("couldn't get version/kind; json parse error: {error}"))
    };
    let mut duplicates = Vec::new();
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let place = Place { duplicates: &mut duplicates, path: Path::Root("") };
    let value = place.deserialize(&mut reader).map_err(malformed)?;
    reader.end().map_err(malformed)?;
    Ok(Body { value, duplicates })
}

/// A value whose reader reports duplicate fields.
struct Plain(Value);

impl<'de> serde::Deserialize<'de> for Plain {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let place = Place { duplicates: &mut Vec::new(), path: Path::Root("") };
        place.deserialize(deserializer).map(Self)
    }
}

/// Reads a value as `serde_json::Value` does, and notes fields that occur twice.
struct Place<'a, 'p> {
    duplicates: &'a mut Vec<String>,
    path: Path<'p>,
}

impl<'de> DeserializeSeed<'de> for Place<'_, '_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Place<'_, '_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(number(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        loop {
            let path = Path::Index(&self.path, items.len());
            let place = Place { duplicates: &mut *self.duplicates, path };
            match access.next_element_seed(place)? {
                Some(item) => items.push(item),
                None => return Ok(Value::Array(items)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(name) = access.next_key::<String>()? {
            let path = Path::Child(&self.path, &name);
            let place = Place { duplicates: &mut *self.duplicates, path };
            let value = access.next_value_seed(place)?;
            if fields.contains_key(&name) && self.duplicates.len() < MOST_DUPLICATES {
                // Names may be as long as the body.
                self.duplicates.push(shorten(path.text(), SHOWN_PATH));
            }
            fields.insert(name, value);
        }
        Ok(Value::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_number_without_a_fraction_is_an_integer_however_it_is_written() {
        let text = b"{\"a\": [0.0, -3.0, 1e3, 0.5, 1e300], \"b\": null}";
        let expected = json!({"a": [0, -3, 1000, 0.5, 1e300], "b": null});
        assert_eq!(decode_json(text).unwrap().value, expected);
        let (yaml, _) = decode_applied(b"a: [0.0, -3.0, 1e3, 0.5, 1e300]\nb:\n").unwrap();
        assert_eq!(yaml, expected);
    }

    #[test]
    fn duplicate_fields_are_noted_and_the_last_value_wins() {
        let body =
            decode_json(br#"{"data":{"k":"1","k":"2"},"data":{"k":"3"},"l":[{"a":1,"a":2}]}"#);
        let body = body.unwrap();
        assert_eq!(body.value, json!({"data": {"k": "3"}, "l": [{"a": 2}]}));
        assert_eq!(body.duplicates, ["data.k", "data", "l[0].a"]);
    }

    #[test]
    fn a_body_that_is_deep_is_refused_in_every_encoding() {
        let mut headers = HeaderMap::new();
        for (media_type, text) in [
            (JSON, "[".repeat(100_000)),
            (JSON, "{\"a\":".repeat(100_000)),
            (YAML, "[".repeat(100_000)),
            (YAML, "- ".repeat(100_000)),
            (YAML, "? ".repeat(100_000)),
            (YAML, (0..1000).map(|at| " ".repeat(at) + "a:\n").collect()),
        ] {
            headers.insert(header::CONTENT_TYPE, media_type.parse().unwrap());
            assert_eq!(decode(&headers, text.as_bytes()).unwrap_err().code, 400, "{media_type}");
        }
        // Groups, the only thing of protobuf that nests without saying how long it is.
        headers.insert(header::CONTENT_TYPE, protobuf::MEDIA_TYPE.parse().unwrap());
        let groups = [b"k8s\0".to_vec(), vec![0x7b; 100_000]].concat();
        assert_eq!(decode(&headers, &groups).unwrap_err().code, 400);
    }

    #[test]
    fn of_many_duplicates_with_long_paths_few_are_noted_and_shortened() {
        let fields = "\"a\":1,".repeat(10_000);
        let text = format!("{{\"{}\":{{{fields}\"a\":1}}}}", "x".repeat(100_000));
        let body = decode_json(text.as_bytes()).unwrap();
        assert_eq!(body.duplicates.len(), MOST_DUPLICATES);
        assert!(body.duplicates.iter().all(|path| path.len() <= SHOWN_PATH + 3));
    }

    #[test]
    fn what_is_no_json_is_refused() {
        for text in ["", "{", "{} x", "nope"] {
            assert_eq!(decode_json(text.as_bytes()).unwrap_err().code, 400, "{text}");
        }
    }

    #[test]
    fn yaml_is_read_and_other_types_are_refused() {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, "application/yaml".parse().unwrap());
        assert_eq!(decode(&headers, b"a:\n  b: 1\n").unwrap().value, json!({"a": {"b": 1}}));
        headers.insert(header::CONTENT_TYPE, "text/plain".parse().unwrap());
        assert_eq!(decode(&headers, b"{}").unwrap_err().code, 415);
        headers.insert(header::CONTENT_TYPE, "application/json; charset=utf-8".parse().unwrap());
        assert_eq!(decode(&headers, b"{}").unwrap().value, json!({}));
    }
}
