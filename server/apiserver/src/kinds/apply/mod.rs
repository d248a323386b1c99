//! Ownership of fields: server-side apply, and the effect of other writes on `metadata.managedFields`.
//!
//! * `set`: sets of fields, as `fieldsV1` writes them. `managers`: the owners of fields.
//! * `types`: which lists are merged, of schemas and (`builtin`) of built-in kinds; `items`: and by what.
//! * `walk`: what a value has, what is different, what a merge and a removal leave.
//!
//! All of it is a function of the objects, the types and the time.

mod builtin;
mod items;
mod managers;
mod set;
#[cfg(test)]
mod tests;
mod types;
mod walk;

use serde_json::{Map, Value, json};

pub(crate) use self::types::Type;
use self::{
    managers::{Listed, Manager, Managers, Operation},
    set::FieldSet,
    walk::Changes,
};

/// What of an object an address writes: it makes nobody the owner of the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Whole,
    AllButStatus,
    OnlyStatus,
    StatusAndMetadata,
}

impl Scope {
    fn keeps(self, step: &str) -> bool {
        match self {
            Self::Whole => true,
            Self::AllButStatus => step != "f:status",
            Self::OnlyStatus => step == "f:status",
            Self::StatusAndMetadata => matches!(step, "f:status" | "f:metadata"),
        }
    }
}

/// Metadata that the server owns, and the names of the object.
const NOBODYS: [&str; 8] = [
    "f:name",
    "f:namespace",
    "f:creationTimestamp",
    "f:selfLink",
    "f:uid",
    "f:generation",
    "f:managedFields",
    "f:resourceVersion",
];

/// The manager of what there was before anyone applied.
const BEFORE: &str = "before-first-apply";
/// The manager whose annotation has the configuration of client-side apply.
const KUBECTL: &str = "kubectl";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The author of a write, and the time.
#[derive(Clone, Debug)]
pub(crate) struct Author {
    /// The name of the field manager.
    pub(crate) manager: String,
    /// The time as the API writes it.
    pub(crate) now: String,
}

/// The kind of the written objects, and the address of the write.
#[derive(Clone, Debug)]
pub(crate) struct Writes<'a> {
    pub(crate) of: &'a Type,
    pub(crate) api_version: String,
    /// The subresource, or the empty text.
    pub(crate) part: &'static str,
    pub(crate) scope: Scope,
    /// Whether a new object gets managers.
    pub(crate) tracks_new: bool,
}

/// Why something is not applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Others own fields that would get another value: the manager as messages name it, and the field.
    Conflicts(Vec<(String, String)>),
    /// The configuration does not fit the types.
    Malformed(Vec<String>),
    /// The applied configuration has managed fields.
    NamesManagers,
}

impl Writes<'_> {
    fn manager(&self, name: &str, operation: Operation) -> Manager {
        Manager {
            name: name.to_owned(),
            operation,
            api_version: self.api_version.clone(),
            subresource: self.part.to_owned(),
        }
    }

    /// Takes out of a set what nobody owns here.
    fn trim(&self, set: &mut FieldSet) {
        set.children.retain(|step, _| {
            self.scope.keeps(step) && !matches!(step.as_str(), "f:apiVersion" | "f:kind")
        });
        if let Some(metadata) = set.children.get_mut("f:metadata") {
            metadata.member = false;
            metadata.children.retain(|step, _| !NOBODYS.contains(&step.as_str()));
            if metadata.is_empty() {
                set.children.remove("f:metadata");
            }
        }
    }

    fn compare(&self, old: &Value, new: &Value) -> Changes {
        let mut changes = walk::compare(self.of, Some(old), Some(new));
        self.trim(&mut changes.set);
        self.trim(&mut changes.removed);
        changes
    }

    /// Notes the author in `new` as manager of the changed fields.
    pub(crate) fn update(&self, old: Option<&Value>, new: &mut Value, author: &Author) {
        // a client that writes a part of an object does not write who wrote the rest
        let sent = if self.part.is_empty() { managers::read(new) } else { Listed::Nothing };
        let mut managers = match sent {
            Listed::Reset => Managers::default(),
            Listed::Managers(managers) => managers,
            Listed::Nothing => old.map(Managers::of).unwrap_or_default(),
        };
        if managers.0.is_empty() && (old.is_some() || !self.tracks_new) {
            return managers.write(new);
        }
        let changes = match old {
            Some(old) => self.compare(old, new),
            None => self.compare(&json!({}), new),
        };
        self.settle(&mut managers);
        took(&mut managers, &self.manager(&author.manager, Operation::Update), &changes, author);
        managers.cap();
        managers.write(new);
    }

    fn settle(&self, managers: &mut Managers) {
        for entry in &mut managers.0 {
            walk::settle(self.of, &mut entry.fields);
        }
    }

    /// What `old` (nothing, if there is no object) becomes when `config` is applied to it.
    ///
    /// # Errors
    /// `config` does not fit, or others own what it would change and `force` is not given.
    pub(crate) fn apply(
        &self,
        old: Option<&Value>,
        config: &Value,
        author: &Author,
        force: bool,
    ) -> Result<Value, Refusal> {
        if config.pointer("/metadata/managedFields").is_some_and(|it| !it.is_null()) {
            return Err(Refusal::NamesManagers);
        }
        let errors = walk::check(self.of, config);
        if !errors.is_empty() {
            return Err(Refusal::Malformed(errors));
        }
        let mut managers = old.map(Managers::of).unwrap_or_default();
        let blank = json!({ "metadata": {} });
        let mut live = old.unwrap_or(&blank).clone();
        if let Some(metadata) = live.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        if let (true, Some(_)) = (managers.0.is_empty(), old) {
            let all = self.compare(&json!({}), &live);
            took(&mut managers, &self.manager(BEFORE, Operation::Update), &all, author);
        }
        self.settle(&mut managers);
        let attempt = |force| self.attempt(&live, config, managers.clone(), author, force);
        let mut new = match attempt(force) {
            Err(conflicts) if author.manager == KUBECTL => {
                let mut left = conflicts;
                let own = self.last_applied(&live);
                left.retain_mut(|(_, paths)| {
                    paths.subtract(&own);
                    !paths.is_empty()
                });
                if left.is_empty() { attempt(true) } else { Err(left) }
            }
            done => done,
        }
        .map_err(told)?;
        if author.manager == KUBECTL {
            remember_applied(&mut new, config);
        }
        Ok(new)
    }

    fn attempt(
        &self,
        live: &Value,
        config: &Value,
        mut managers: Managers,
        author: &Author,
        force: bool,
    ) -> Result<Value, Conflicts> {
        let me = self.manager(&author.manager, Operation::Apply);
        let merged = walk::merge(self.of, live, config);
        let mut wanted = walk::collect(self.of, config);
        wanted.children.retain(|step, _| self.scope.keeps(step));
        let mut last = FieldSet::default();
        managers.with(&me, |own| {
            last = std::mem::replace(&mut own.fields, wanted);
            own.manager = me.clone();
        });
        let mut new = self.prune(merged, &managers, &last);
        managers.with(&me, |own| self.trim(&mut own.fields));
        let changes = self.compare(live, &new);
        let mut conflicts: Conflicts = Vec::new();
        for entry in managers.others(&me) {
            let taken = entry.fields.common(&changes.set);
            if !taken.is_empty() {
                entry.fields.subtract(&taken);
                conflicts.push((entry.manager.clone(), taken));
            }
            entry.fields.subtract(&changes.removed);
        }
        if !force && !conflicts.is_empty() {
            return Err(conflicts);
        }
        if new != *live {
            managers.with(&me, |own| own.time = Some(author.now.clone()));
        }
        managers.write(&mut new);
        Ok(new)
    }

    /// Takes out what the manager applied the last time, now does not, and nobody else owns.
    fn prune(&self, merged: Value, managers: &Managers, last: &FieldSet) -> Value {
        if last.is_empty() {
            return merged;
        }
        let named = |set: &FieldSet| walk::with_structures(self.of, set);
        let without = |gone: &FieldSet| {
            walk::remove(self.of, &merged, gone).unwrap_or_else(|| Value::Object(Map::new()))
        };
        let there = named(&walk::collect(self.of, &merged));
        let last = named(last);
        let mut owned = FieldSet::default();
        for entry in &managers.0 {
            owned.add(&entry.fields);
        }
        // removing a field removes the fields below: keep whatever survives or is owned, and remove only fields of the
        // last apply
        let mut kept = named(&walk::collect(self.of, &without(&last)));
        kept.add(&named(&owned));
        let kept = named(&walk::collect(self.of, &without(&there.minus(&kept))));
        without(&there.minus(&kept).common(&last))
    }

    /// The fields that the annotation of `kubectl apply` says, and that still are as it says.
    fn last_applied(&self, live: &Value) -> FieldSet {
        let text =
            live.get("metadata").and_then(|it| it.get("annotations")?.get(LAST_APPLIED)?.as_str());
        let applied = text.and_then(|text| serde_json::from_str::<Value>(text).ok());
        let version =
            |it: &Value| it.get("apiVersion").and_then(Value::as_str) == Some(&self.api_version);
        let Some(applied) = applied.filter(version) else { return FieldSet::default() };
        if !walk::check(self.of, &applied).is_empty() {
            return FieldSet::default();
        }
        let mut own = walk::collect(self.of, &applied);
        let changes = walk::compare(self.of, Some(&applied), Some(live));
        own.subtract(&changes.set);
        own.subtract(&changes.removed);
        own
    }
}

/// Gives changed fields to a manager that does not apply.
fn took(managers: &mut Managers, me: &Manager, changes: &Changes, author: &Author) {
    for entry in &mut managers.0 {
        entry.fields.subtract(&changes.set);
        entry.fields.subtract(&changes.removed);
    }
    if !changes.set.is_empty() {
        managers.with(me, |own| {
            own.fields.add(&changes.set);
            own.time = Some(author.now.clone());
        });
    }
}

type Conflicts = Vec<(Manager, FieldSet)>;

fn told(mut conflicts: Conflicts) -> Refusal {
    conflicts.sort_by_cached_key(|(manager, _)| manager.shown());
    let mut told = Vec::new();
    for (manager, fields) in &conflicts {
        fields.each_path(&mut |path| told.push((manager.shown(), path.to_owned())));
    }
    Refusal::Conflicts(told)
}

/// Keeps the annotation of `kubectl apply` in step, if there is one.
fn remember_applied(new: &mut Value, config: &Value) {
    let annotations = new.get_mut("metadata").and_then(|it| it.get_mut("annotations"));
    let Some(annotation) = annotations.and_then(|it| it.get_mut(LAST_APPLIED)) else { return };
    if annotation.as_str().is_none_or(str::is_empty) {
        return;
    }
    let mut applied = config.clone();
    if let Some(metadata) = applied.get_mut("metadata").and_then(Value::as_object_mut) {
        let annotations = metadata.get_mut("annotations").and_then(Value::as_object_mut);
        let emptied = annotations.is_some_and(|all| {
            all.remove(LAST_APPLIED);
            all.is_empty()
        });
        if emptied {
            metadata.remove("annotations");
        }
    }
    *annotation = format!("{applied}\n").into();
}

/// Whether two objects are the same but for when their fields were set.
pub(crate) fn differ_in_times_only(new: &Value, old: &Value) -> bool {
    let (Some(fields), Some(before)) = (new.as_object(), old.as_object()) else { return false };
    let same_body = fields.len() == before.len()
        && fields.iter().all(|(name, value)| name == "metadata" || before.get(name) == Some(value));
    let metadata =
        |object: &Map<String, Value>| object.get("metadata").and_then(Value::as_object).cloned();
    let (true, Some(mut new_meta), Some(mut old_meta)) =
        (same_body, metadata(fields), metadata(before))
    else {
        return false;
    };
    new_meta.remove("managedFields");
    old_meta.remove("managedFields");
    let timeless = |object: &Value| {
        let mut all = Managers::of(object).0;
        for entry in &mut all {
            entry.time = None;
        }
        all.sort_by_cached_key(|entry| entry.manager.shown());
        all
    };
    new_meta == old_meta && timeless(new) == timeless(old)
}
