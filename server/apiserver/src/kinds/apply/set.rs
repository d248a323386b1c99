//! Sets of fields, as `fieldsV1` of managedFields writes them.

use std::{collections::BTreeMap, fmt::Write as _};

use serde_json::{Map, Value};

/// A set of paths, as a tree. A path is in it whose node is a member; the fields below it may be in it or not.
///
/// A step of a path is kept as `fieldsV1` has it: `f:name`, `k:{"name":"a"}`, `v:"x"` or `i:0`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldSet {
    pub(super) member: bool,
    pub(super) children: BTreeMap<String, Self>,
}

/// Stands for the path itself beside fields below the path.
const ITSELF: &str = ".";

/// Levels of a set that are read: those of a body, and no object is deeper.
const DEPTH: usize = 127;

impl FieldSet {
    pub(crate) fn is_empty(&self) -> bool {
        !self.member && self.children.is_empty()
    }

    /// Reads a set; none of something that is none.
    pub(crate) fn read(value: &Value) -> Option<Self> {
        let fields = value.as_object()?;
        let mut set = Self::read_below(fields, DEPTH)?;
        set.member = fields.contains_key(ITSELF);
        Some(set)
    }

    fn read_below(fields: &Map<String, Value>, depth: usize) -> Option<Self> {
        let mut set = Self { member: fields.is_empty(), ..Self::default() };
        for (step, below) in fields {
            let below = below.as_object()?;
            if step == ITSELF {
                set.member = true;
                continue;
            }
            if !matches!(step.get(..2)?, "f:" | "k:" | "v:" | "i:") {
                return None;
            }
            let below = Self::read_below(below, depth.checked_sub(1)?)?;
            set.children.insert(step.clone(), below);
        }
        Some(set)
    }

    /// The set as JSON.
    pub(crate) fn write(&self) -> Value {
        let below = self.children.iter().map(|(step, set)| (step.clone(), set.write()));
        let mut fields: Map<String, Value> = below.collect();
        if self.member && !fields.is_empty() {
            fields.insert(ITSELF.to_owned(), Value::Object(Map::new()));
        }
        Value::Object(fields)
    }

    pub(super) fn insert(&mut self, path: &[String]) {
        let mut node = self;
        for step in path {
            node = node.children.entry(step.clone()).or_default();
        }
        node.member = true;
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.member |= other.member;
        for (step, below) in &other.children {
            self.children.entry(step.clone()).or_default().add(below);
        }
    }

    /// Keeps the paths that are not in `other`.
    pub(super) fn subtract(&mut self, other: &Self) {
        self.member &= !other.member;
        if self.children.len() < other.children.len() {
            self.children.retain(|step, own| {
                if let Some(below) = other.children.get(step) {
                    own.subtract(below);
                }
                !own.is_empty()
            });
            return;
        }
        for (step, below) in &other.children {
            if let Some(own) = self.children.get_mut(step) {
                own.subtract(below);
                if own.is_empty() {
                    self.children.remove(step);
                }
            }
        }
    }

    pub(super) fn minus(&self, other: &Self) -> Self {
        let mut left = self.clone();
        left.subtract(other);
        left
    }

    /// The paths that are in both.
    pub(super) fn common(&self, other: &Self) -> Self {
        let below = self.children.iter().filter_map(|(step, own)| {
            let common = own.common(other.children.get(step)?);
            (!common.is_empty()).then(|| (step.clone(), common))
        });
        Self { member: self.member && other.member, children: below.collect() }
    }

    /// Calls `each` with every path of the set, in order, as messages write it.
    pub(super) fn each_path(&self, each: &mut impl FnMut(&str)) {
        self.walk(&mut String::new(), each);
    }

    fn walk(&self, path: &mut String, each: &mut impl FnMut(&str)) {
        if self.member {
            each(path);
        }
        for (step, below) in &self.children {
            let before = path.len();
            show(step, path);
            below.walk(path, each);
            path.truncate(before);
        }
    }
}

/// Appends a step to a path as messages write it: `.name`, `[name="a"]`, `[="x"]` or `[0]`.
pub(super) fn show(step: &str, path: &mut String) {
    let (kind, rest) = step.split_at_checked(2).unwrap_or((step, ""));
    // writing to a String cannot fail
    let _ = match kind {
        "f:" => write!(path, ".{rest}"),
        "v:" => write!(path, "[={rest}]"),
        "k:" => {
            let keys: BTreeMap<String, Value> = serde_json::from_str(rest).unwrap_or_default();
            let keys: Vec<String> =
                keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
            write!(path, "[{}]", keys.join(","))
        }
        _ => write!(path, "[{rest}]"),
    };
}
