//! Tables of built-in kinds.
//!
//! What a kind shows stands in its row, column by column. `+` marks those of wide output, `#` those of whole numbers,
//! `?` those of flags, `@` those of times. Behind `=` stands what a cell shows: a path, as columns of definitions have
//! it, all values of which are shown if it has a `[*]`, and behind `|` the word for nothing, where `0` is the number.
//! `#` before a path counts, `~` tells how long ago it was, `:` lists names and values; a `&` stands between two that
//! are shown as `one/other`. Cells without any of this are [`computed`].

use std::borrow::Cow;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{age, computed, json_path, or, pod};
use crate::kinds::{BuiltIn, event};

/// A column as the row of its kind writes it.
struct Column {
    is_wide: bool,
    kind: &'static str,
    name: &'static str,
    source: Option<&'static str>,
}

fn read(kind: BuiltIn) -> impl Iterator<Item = Column> {
    kind.columns().split(',').map(|text| {
        let (is_wide, text) = text.strip_prefix('+').map_or((false, text), |rest| (true, rest));
        let kinds = [('#', "integer"), ('?', "boolean"), ('@', "date")];
        let marked = kinds.iter().find_map(|(mark, kind)| Some((*kind, text.strip_prefix(*mark)?)));
        let (kind, text) = marked.unwrap_or(("string", text));
        let (name, source) = match text.split_once('=') {
            Some((name, source)) => (name, Some(source)),
            None => (text, None),
        };
        Column { is_wide, kind, name, source }
    })
}

/// The columns of a kind.
pub(super) fn columns(kind: BuiltIn) -> Vec<Value> {
    let definition = |Column { is_wide, kind, name, .. }: Column| {
        json!({
            "name": name,
            "type": kind,
            "format": if matches!(name, "Name" | "Attacher") { "name" } else { "" },
            "description": format!("The column {name}."),
            "priority": i32::from(is_wide),
        })
    };
    read(kind).map(definition).collect()
}

/// The cells of an object, and the conditions of its row.
pub(super) fn cells(kind: BuiltIn, object: &Value, now: Timestamp) -> (Vec<Value>, Option<Value>) {
    if kind == BuiltIn::Pod {
        return pod::cells(object, now);
    }
    let mut object = Cow::Borrowed(object);
    if kind == BuiltIn::Event {
        object = Cow::Owned(event::as_core(&object));
    }
    let cell = |column: Column| match column.source {
        Some(source) => cell(column.kind, source, &object, now),
        None => computed::cell(kind, column.name, &object, now),
    };
    (read(kind).map(cell).collect(), None)
}

fn cell(kind: &str, source: &str, object: &Value, now: Timestamp) -> Value {
    if let Some(both) = source.split_once('&') {
        let [one, other] = [both.0, both.1].map(|part| plain(&cell(kind, part, object, now)));
        return json!(format!("{one}/{other}"));
    }
    let (path, nothing) = source.split_once('|').unwrap_or((source, ""));
    let at = path.trim_start_matches(['#', '~', ':']);
    let mut found = json_path::find(object, at);
    found.retain(|value| !value.is_null());
    let first = found.first().copied().unwrap_or(&Value::Null);
    let text = match (path.strip_suffix(at), kind) {
        (Some("#"), _) => return json!(size(first)),
        (Some("~"), _) => match first.as_str().unwrap_or_default() {
            "" => String::new(),
            time => return age::since(time, now),
        },
        (Some(":"), _) => pairs(first),
        (_, "boolean") => return json!(first.as_bool().unwrap_or(false)),
        (_, "date") => return first.clone(),
        _ if kind == "integer" || nothing == "0" => return json!(first.as_i64().unwrap_or(0)),
        _ if at.contains("[*]") => found.into_iter().map(plain).collect::<Vec<_>>().join(","),
        _ => plain(first),
    };
    or(&text, nothing)
}

/// A value as it stands in a text.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

/// How many items or entries it has.
fn size(value: &Value) -> usize {
    let entries = value.as_object().map(serde_json::Map::len);
    entries.or_else(|| value.as_array().map(Vec::len)).unwrap_or(0)
}

/// `a=b,c=d`: the entries of a map of texts.
fn pairs(value: &Value) -> String {
    let pair =
        |(name, value): (&String, &Value)| format!("{name}={}", value.as_str().unwrap_or_default());
    value.as_object().into_iter().flatten().map(pair).collect::<Vec<_>>().join(",")
}
