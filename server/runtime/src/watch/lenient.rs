//! Parses the objects of a watch one by one: an object that does not match its kind, or is nested too deeply, does
//! not affect the others.

use std::borrow::Cow;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::de::{DeserializeOwned, DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Number, Value};

use super::ObjectName;

/// Maximum nesting depth: more than the 100 levels that the API server of this project stores. `serde_json` stops at
/// 127 and fails the whole list or event; anything deeper than this is skipped, without recursion.
const DEPTH: usize = 110;

/// An object of a watch.
#[derive(Debug, Clone)]
pub enum Lenient<K> {
    /// The object was parsed.
    Read(K),
    /// The object exists, but cannot be parsed.
    Unreadable(Box<Unreadable>),
}

/// An object that cannot be read.
#[derive(Debug, Clone)]
pub struct Unreadable {
    /// Name, namespace, UID and version, as far as present.
    pub meta: ObjectMeta,
    /// The fault of the object.
    pub why: String,
}

/// Says so of an object, for people.
pub fn cannot_be_read(kind: &str, name: &ObjectName, why: &str) -> String {
    format!("{kind} {name} cannot be read: {why}")
}

impl<K: Resource<DynamicType = ()>> Resource for Lenient<K> {
    type DynamicType = ();
    type Scope = K::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        K::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        K::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        K::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        K::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Read(object) => object.meta(),
            Self::Unreadable(object) => &object.meta,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match self {
            Self::Read(object) => object.meta_mut(),
            Self::Unreadable(object) => &mut object.meta,
        }
    }
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Lenient<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut too_deep = false;
        let place = Place { left: DEPTH, too_deep: &mut too_deep };
        let value = place.deserialize(deserializer)?;
        let meta = meta_of(&value);
        if too_deep {
            let why = format!("it is nested deeper than {DEPTH} levels");
            return Ok(Self::Unreadable(Box::new(Unreadable { meta, why })));
        }
        Ok(match serde_json::from_value(value) {
            Ok(object) => Self::Read(object),
            Err(error) => Self::Unreadable(Box::new(Unreadable { meta, why: error.to_string() })),
        })
    }
}

fn meta_of(object: &Value) -> ObjectMeta {
    let text = |name: &str| object.get("metadata")?.get(name)?.as_str().map(str::to_owned);
    ObjectMeta {
        name: text("name"),
        namespace: text("namespace"),
        uid: text("uid"),
        resource_version: text("resourceVersion"),
        ..ObjectMeta::default()
    }
}

/// Reads a value as `serde_json::Value` does, down to a maximum depth.
struct Place<'a> {
    left: usize,
    too_deep: &'a mut bool,
}

impl<'de> DeserializeSeed<'de> for Place<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        if self.left > 0 {
            return deserializer.deserialize_any(self);
        }
        // A plain value at this depth is skipped as well.
        *self.too_deep = true;
        deserializer.deserialize_ignored_any(IgnoredAny).map(|IgnoredAny| Value::Null)
    }
}

impl<'de> Visitor<'de> for Place<'_> {
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

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
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

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        let left = self.left - 1;
        loop {
            let place = Place { left, too_deep: &mut *self.too_deep };
            match access.next_element_seed(place)? {
                Some(item) => items.push(item),
                None => return Ok(Value::Array(items)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        let left = self.left - 1;
        while let Some(name) = access.next_key::<String>()? {
            let place = Place { left, too_deep: &mut *self.too_deep };
            fields.insert(name, access.next_value_seed(place)?);
        }
        Ok(Value::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::ControllerRevision;
    use kube::core::{ObjectList, WatchEvent};
    use serde_json::json;

    use super::*;

    fn object(name: &str, data: &str) -> String {
        let metadata = json!({"name": name, "namespace": "default", "resourceVersion": "7"});
        format!(
            r#"{{"apiVersion":"apps/v1","kind":"ControllerRevision","metadata":{metadata},"revision":1,"data":{data}}}"#
        )
    }

    fn deep(levels: usize) -> String {
        format!("{}{}", r#"{"a":"#.repeat(levels), "1".to_owned() + &"}".repeat(levels))
    }

    fn read(text: &str) -> ControllerRevision {
        match serde_json::from_str(text).unwrap() {
            Lenient::Read(object) => object,
            Lenient::Unreadable(object) => panic!("{}", object.why),
        }
    }

    fn unreadable(text: &str) -> Unreadable {
        match serde_json::from_str::<Lenient<ControllerRevision>>(text).unwrap() {
            Lenient::Read(_) => panic!("it can be read: {text:.200}"),
            Lenient::Unreadable(object) => *object,
        }
    }

    #[test]
    fn an_object_of_its_kind_is_read_as_it_would_be_without_us() {
        let text =
            object("a", r#"{"n":[1,-1,1.5,18446744073709551615],"t":"x","b":true,"z":null}"#);
        let direct: ControllerRevision = serde_json::from_str(&text).unwrap();
        assert_eq!(json!(read(&text)), json!(direct));
    }

    #[test]
    fn of_an_object_that_cannot_be_read_its_name_is_known_and_what_is_wrong() {
        let wrong = object("a", "{}").replace("\"revision\":1", "\"revision\":[1]");
        for (text, why) in [(wrong, "invalid type"), (object("a", &deep(200_000)), "110 levels")] {
            let unreadable = unreadable(&text);
            assert_eq!(unreadable.meta.name.as_deref(), Some("a"));
            assert_eq!(unreadable.meta.namespace.as_deref(), Some("default"));
            assert_eq!(unreadable.meta.resource_version.as_deref(), Some("7"));
            assert!(unreadable.why.contains(why), "{}", unreadable.why);
        }
        for text in ["null", "7", "[]", r#"{"metadata":3}"#] {
            assert_eq!(unreadable(text).meta, ObjectMeta::default(), "{text}");
        }
    }

    #[test]
    fn whatever_our_own_api_server_stores_is_read() {
        // Plus the levels of the object and its data.
        assert_eq!(read(&object("a", &deep(99))).metadata.name.as_deref(), Some("a"));
        assert!(unreadable(&object("a", &deep(DEPTH))).why.contains("levels"));
    }

    #[test]
    fn an_unreadable_object_spoils_neither_its_list_nor_an_event() {
        let items =
            [object("a", "{}"), "null".to_owned(), object("b", &deep(5000)), object("c", "{}")];
        let list = format!(
            r#"{{"apiVersion":"v1","kind":"List","metadata":{{"resourceVersion":"9"}},"items":[{}]}}"#,
            items.join(",")
        );
        let list: ObjectList<Lenient<ControllerRevision>> = serde_json::from_str(&list).unwrap();
        let read = list.items.iter().map(|item| matches!(item, Lenient::Read(_)));
        assert_eq!(read.collect::<Vec<_>>(), [true, false, false, true]);
        let event = format!(r#"{{"type":"MODIFIED","object":{}}}"#, object("b", &deep(5000)));
        let event: WatchEvent<Lenient<ControllerRevision>> = serde_json::from_str(&event).unwrap();
        assert!(matches!(event, WatchEvent::Modified(Lenient::Unreadable(_))));
    }
}
