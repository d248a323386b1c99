//! The object of a bootstrap provider that a pool has: one for all its instances, the copy of the template that `configRef`
//! names. The status names it before it is made, so whatever a core that died left behind is known by that. Another template is
//! another copy. The one before stays until the group has the model of the new one: what boots until then needs its data.

use std::collections::BTreeSet;

use ostler_api::{
    MachinePool,
    bootstrap::BootstrapConfigRef,
    machine::WaitReason,
    machine_pool::{MachinePoolStatus, PoolBootstrapConfig},
};

use super::{
    Facts, name,
    template::{own_labels, owner_reference},
};
use crate::{
    bootstrap::{ConfigFacts, ConfigKind, ConfigName, ConfigView, RefFault, lack, named},
    copies::{CopiesView, Made, MadeFor, NewCopy, Template, template_of},
    plan::{Event, EventReason},
};

/// What was observed of the copies of a pool.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ConfigsView {
    /// The copies of the template; `None`: the core may follow no template of the pool.
    pub copies: Option<CopiesView>,
    /// The copies in the status of the pool.
    pub noted: Vec<Noted>,
}

/// A copy that the status of a pool names.
#[derive(Debug, Clone, PartialEq)]
pub struct Noted {
    /// Its name.
    pub name: ConfigName,
    /// Its kind in paths.
    pub plural: String,
    /// The observed state of the copy.
    pub view: ConfigView,
}

impl ConfigsView {
    fn of(&self, name: &ConfigName) -> Option<&Noted> {
        self.noted.iter().find(|noted| noted.name == *name)
    }
}

/// What is to become of the copies of a pool.
#[derive(Debug, Default)]
pub(super) struct Upkeep {
    /// What the status is to name.
    pub(super) noted: Vec<PoolBootstrapConfig>,
    /// The one to make.
    pub(super) make: Option<NewCopy>,
    /// Those that go.
    pub(super) left: Vec<Made>,
    /// Why copies that are to go are still there, for people.
    pub(super) held: Option<String>,
    /// That the template was changed in place.
    pub(super) changed: Option<Event>,
}

/// The template of whose copy the instances of a pool get their data; `None`: they have other data, which come first.
///
/// # Errors
/// The pool names no template that the core may follow.
pub fn config_template(pool: &MachinePool) -> Result<Option<Template>, RefFault> {
    let spec = &pool.spec.template.spec;
    let has_data =
        |it: &ostler_api::bootstrap::Bootstrap| it.data.is_some() || it.data_secret_name.is_some();
    if spec.bootstrap.as_ref().is_none_or(has_data) {
        return Ok(None);
    }
    template_of(pool.metadata.namespace.as_deref(), spec)
        .map_err(|message| RefFault { reason: WaitReason::BootstrapConfigInvalid, message })
}

/// The copies that the status of a pool names.
pub fn noted(pool: &MachinePool) -> impl Iterator<Item = ConfigName> {
    let all = pool.status.iter().flat_map(|status| &status.bootstrap_configs);
    all.filter_map(|one| config_name(pool, &one.copy))
}

/// Every kind that is watched for a pool.
pub fn config_kinds(pool: &MachinePool) -> BTreeSet<ConfigKind> {
    let template = config_template(pool).ok().flatten();
    let template = template.into_iter().flat_map(|it| [it.name.kind, it.copies]);
    template.chain(noted(pool).map(|it| it.kind)).collect()
}

/// Secrets that copies of a pool name for the user data.
pub fn config_secrets(pool: &MachinePool) -> impl Iterator<Item = &str> {
    let all = pool.status.iter().flat_map(|status| &status.bootstrap_configs);
    all.filter_map(|one| one.data_secret_name.as_deref())
}

fn config_name(pool: &MachinePool, copy: &BootstrapConfigRef) -> Option<ConfigName> {
    named(copy, pool.namespace()).ok()
}

/// The name of the copy of a template.
fn copy_of(pool: &MachinePool, of: &Template) -> ConfigName {
    ConfigName { kind: of.copies.clone(), name: name::told_apart(pool.name(), &of.name.key()) }
}

fn made_for(pool: &MachinePool) -> MadeFor {
    let template = pool.spec.template.metadata.as_ref().and_then(|it| it.labels.clone());
    let labels = template.into_iter().flatten().chain(own_labels(pool)).collect();
    MadeFor { labels, owner: owner_reference(pool) }
}

fn is_owned(pool: &MachinePool, facts: &ConfigFacts) -> bool {
    facts.owner_references.iter().any(|owner| owner.uid == pool.uid())
}

/// The copy that has the data of the pool. `None`: it has other data.
///
/// # Errors
/// It has none yet.
pub(super) fn ready<'a>(
    pool: &MachinePool,
    seen: &'a ConfigsView,
) -> Result<Option<&'a ConfigFacts>, RefFault> {
    let Some(of) = config_template(pool)? else { return Ok(None) };
    let name = copy_of(pool, &of);
    let fault = |reason, message| Err(RefFault { reason, message });
    let facts = match seen.of(&name).map(|noted| &noted.view) {
        Some(ConfigView::Known(facts)) => facts,
        None | Some(ConfigView::Absent) => {
            if let Some(copies) = &seen.copies {
                copies.copy(made_for(pool), &name.name)?;
            }
            return fault(WaitReason::BootstrapNotReady, format!("{name} has not been made yet"));
        }
        Some(view) => {
            let lack = lack(view, &name.kind, &name);
            let (reason, message) =
                lack.unwrap_or_else(|| (WaitReason::NotObserved, name.to_string()));
            return fault(reason, message);
        }
    };
    if !is_owned(pool, facts) {
        let message = format!("{name} is not of this pool: delete it, or rename one of both");
        return fault(WaitReason::BootstrapConfigOwned, message);
    }
    if facts.ready {
        return Ok(Some(facts));
    }
    if facts.failure_reason.is_none() && facts.failure_message.is_none() {
        return fault(WaitReason::BootstrapNotReady, format!("{name} is not ready"));
    }
    let why = facts.failure_message.as_ref().or(facts.failure_reason.as_ref());
    let why = why.map_or("it gives no message", String::as_str);
    let message = format!("{name} failed: {why}; name another template");
    fault(WaitReason::BootstrapDataMissing, message)
}

/// `over`: nothing else is left of a pool that goes.
pub(super) fn upkeep(facts: &Facts<'_>, over: bool) -> Upkeep {
    let (pool, seen) = (&facts.snap.pool, &facts.snap.configs);
    let template = config_template(pool).ok().flatten().filter(|_| !pool.is_deleting());
    let wanted = template.as_ref().map(|of| copy_of(pool, of));
    let current = facts.reading.is_some_and(|it| it.model_hash == facts.model);
    let go = over || facts.class.is_some() && current && !pool.is_deleting();
    let mut plan = Upkeep::default();
    let before = pool.status.iter().flat_map(|status| &status.bootstrap_configs);
    for one in before {
        let Some(name) = config_name(pool, &one.copy) else { continue };
        let Some(noted) = seen.of(&name) else {
            plan.noted.push(one.clone());
            continue;
        };
        if wanted.as_ref() == Some(&name) {
            plan.keep(one, noted, seen);
        } else if !is_gone(pool, &noted.view) {
            plan.noted.push(one.clone());
            if go {
                plan.remove(noted);
            }
        }
    }
    let (Some(wanted), Some(copies)) = (wanted, &seen.copies) else { return plan };
    let Some(template) = copies.seen() else { return plan };
    let Ok(copy) = copies.copy(made_for(pool), &wanted.name) else { return plan };
    match seen.of(&wanted) {
        Some(noted) if noted.view == ConfigView::Absent => plan.make = Some(copy),
        Some(_) => {}
        None => plan.noted.push(PoolBootstrapConfig {
            copy: BootstrapConfigRef {
                api_version: format!("{}/{}", wanted.kind.group, wanted.kind.version),
                kind: wanted.kind.kind,
                name: wanted.name,
                namespace: None,
            },
            template,
            data_secret_name: None,
        }),
    }
    plan
}

impl Upkeep {
    /// The one that has the data of the pool.
    fn keep(&mut self, one: &PoolBootstrapConfig, noted: &Noted, seen: &ConfigsView) {
        let template = seen.copies.as_ref().and_then(CopiesView::seen);
        let template = template.unwrap_or_else(|| one.template.clone());
        if template.generation != one.template.generation {
            let note = format!(
                "template {} was changed in place: the pool keeps {}; for the change, name another template",
                template.name, noted.name
            );
            self.changed = Some(Event::normal(EventReason::TemplateChangedInPlace, note));
        }
        let data_secret_name = if let ConfigView::Known(facts) = &noted.view {
            facts.data_secret_name.clone()
        } else {
            one.data_secret_name.clone()
        };
        self.noted.push(PoolBootstrapConfig { copy: one.copy.clone(), template, data_secret_name });
    }

    fn remove(&mut self, Noted { name, plural, view }: &Noted) {
        let ConfigView::Known(facts) = view else { return };
        self.held.get_or_insert_with(|| facts.goes_first(name));
        if !facts.is_deleting {
            self.left.push(Made {
                kind: name.kind.clone(),
                plural: plural.clone(),
                name: name.name.clone(),
                uid: facts.uid.clone(),
                of: facts.copy_of.clone(),
            });
        }
    }
}

/// Whether a copy is none of the pool any more. What cannot be looked at as the pool goes is left to the garbage collector.
fn is_gone(pool: &MachinePool, view: &ConfigView) -> bool {
    match view {
        ConfigView::Known(facts) => !is_owned(pool, facts),
        ConfigView::Absent | ConfigView::KindMissing => true,
        ConfigView::Unknown => false,
        ConfigView::KindWithoutNamespace
        | ConfigView::KindUnmarked
        | ConfigView::Unreadable(_)
        | ConfigView::TooManyKinds => pool.is_deleting(),
    }
}

/// Whether the status names a copy that it did not name before: it is made next.
pub(super) fn is_new(old: Option<&MachinePoolStatus>, new: &MachinePoolStatus) -> bool {
    let before = old.iter().flat_map(|status| &status.bootstrap_configs);
    let mut new = new.bootstrap_configs.iter();
    new.any(|one| !before.clone().any(|it| it.copy == one.copy))
}
