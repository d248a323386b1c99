//! `metadata.managedFields`: managers with their fields, operations and times.

use serde_json::{Map, Value, json};

use super::set::FieldSet;

/// Entries of managers that do not apply; the oldest entries beyond this number are merged into one.
const MOST_UPDATERS: usize = 10;
const ANCIENT: &str = "ancient-changes";

const FIELDS_TYPE: &str = "FieldsV1";

/// How fields were set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    Apply,
    Update,
}

impl Operation {
    const fn name(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// The identity of a manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Manager {
    pub(super) name: String,
    pub(super) operation: Operation,
    pub(super) api_version: String,
    pub(super) subresource: String,
}

impl Manager {
    /// An applier is the same manager in every version.
    fn is(&self, other: &Self) -> bool {
        let version = self.operation == Operation::Apply || self.api_version == other.api_version;
        version
            && (&self.name, self.operation, &self.subresource)
                == (&other.name, other.operation, &other.subresource)
    }

    /// As messages about conflicts name it.
    pub(super) fn shown(&self) -> String {
        let quote = crate::kinds::field::quote;
        let part = match self.subresource.as_str() {
            "" => String::new(),
            part => format!(" with subresource {}", quote(part)),
        };
        let version = match self.operation {
            Operation::Apply => String::new(),
            Operation::Update => format!(" using {}", self.api_version),
        };
        format!("{}{part}{version}", quote(&self.name))
    }
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) manager: Manager,
    /// When the manager last took a field: as the API writes times, which sort as texts do.
    pub(super) time: Option<String>,
    pub(super) fields: FieldSet,
}

/// All entries of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Managers(pub(super) Vec<Entry>);

/// The content of a sent list of managers.
pub(super) enum Listed {
    /// Nobody is to be remembered.
    Reset,
    /// The list is none, or empty.
    Nothing,
    Managers(Managers),
}

/// Reads `metadata.managedFields` of an object.
pub(super) fn read(object: &Value) -> Listed {
    let list = object.pointer("/metadata/managedFields").and_then(Value::as_array);
    let Some(list) = list.filter(|list| !list.is_empty()) else { return Listed::Nothing };
    if let [only] = list.as_slice()
        && only.as_object().is_some_and(Map::is_empty)
    {
        return Listed::Reset;
    }
    let entries: Option<Vec<Entry>> = list.iter().map(read_entry).collect();
    entries.map_or(Listed::Nothing, |entries| Listed::Managers(Managers(entries)))
}

fn read_entry(value: &Value) -> Option<Entry> {
    let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
    let operation = match text("operation") {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return None,
    };
    if text("apiVersion").is_empty() || text("fieldsType") != FIELDS_TYPE {
        return None;
    }
    let manager = Manager {
        name: text("manager").to_owned(),
        operation,
        api_version: text("apiVersion").to_owned(),
        subresource: text("subresource").to_owned(),
    };
    let time = Some(text("time")).filter(|time| !time.is_empty()).map(str::to_owned);
    let fields = value.get("fieldsV1").map_or_else(|| Some(FieldSet::default()), FieldSet::read)?;
    // an empty set at the top is of no field, not of the whole object
    Some(Entry { manager, time, fields: FieldSet { member: false, ..fields } })
}

impl Managers {
    pub(super) fn of(object: &Value) -> Self {
        match read(object) {
            Listed::Managers(managers) => managers,
            Listed::Reset | Listed::Nothing => Self::default(),
        }
    }

    /// The entries of all but one manager.
    pub(super) fn others(&mut self, manager: &Manager) -> impl Iterator<Item = &mut Entry> {
        self.0.iter_mut().filter(|entry| !entry.manager.is(manager))
    }

    /// Changes the entry of a manager, which is made if it is absent.
    pub(super) fn with(&mut self, manager: &Manager, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.0.iter_mut().find(|entry| entry.manager.is(manager)) {
            return change(entry);
        }
        let manager = manager.clone();
        let mut entry = Entry { manager, time: None, fields: FieldSet::default() };
        change(&mut entry);
        self.0.push(entry);
    }

    /// Makes one entry of the oldest of too many clients that do not apply.
    pub(super) fn cap(&mut self) {
        let updates = |entry: &Entry| entry.manager.operation == Operation::Update;
        let count = self.0.iter().filter(|entry| updates(entry)).count();
        if count <= MOST_UPDATERS {
            return;
        }
        let (mut updaters, appliers): (Vec<Entry>, Vec<Entry>) =
            std::mem::take(&mut self.0).into_iter().partition(updates);
        updaters.sort_by(|a, b| (&a.time, &a.manager.name).cmp(&(&b.time, &b.manager.name)));
        let kept = updaters.split_off(count - MOST_UPDATERS + 1);
        self.0 = appliers;
        self.0.extend(kept);
        for old in updaters {
            let manager =
                Manager { name: ANCIENT.to_owned(), subresource: String::new(), ..old.manager };
            self.with(&manager, |ancient| {
                ancient.time = ancient.time.take().max(old.time);
                ancient.fields.add(&old.fields);
            });
        }
    }

    /// Writes the entries into an object; those without fields are left out.
    pub(super) fn write(mut self, object: &mut Value) {
        self.0.retain(|entry| !entry.fields.is_empty());
        self.0.sort_by(|a, b| {
            let key = |it: &Entry| {
                let manager = it.manager.clone();
                (
                    manager.operation,
                    it.time.clone(),
                    manager.name,
                    manager.api_version,
                    manager.subresource,
                )
            };
            key(a).cmp(&key(b))
        });
        let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
            return;
        };
        if self.0.is_empty() {
            metadata.remove("managedFields");
            return;
        }
        let entries = self.0.iter().map(Entry::write).collect();
        metadata.insert("managedFields".to_owned(), Value::Array(entries));
    }
}

impl Entry {
    fn write(&self) -> Value {
        let mut entry = json!({
            "manager": self.manager.name,
            "operation": self.manager.operation.name(),
            "apiVersion": self.manager.api_version,
            "fieldsType": FIELDS_TYPE,
            "fieldsV1": self.fields.write(),
        });
        let optional =
            [("subresource", Some(&self.manager.subresource)), ("time", self.time.as_ref())];
        if let Some(fields) = entry.as_object_mut() {
            for (name, value) in optional {
                if let Some(value) = value.filter(|value| !value.is_empty()) {
                    fields.insert(name.to_owned(), value.as_str().into());
                }
            }
        }
        entry
    }
}
