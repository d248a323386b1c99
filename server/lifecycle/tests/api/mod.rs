//! An API server in memory, for plans of every kind of the fleet: executes their writes as the one hand does, in order and
//! each on its condition.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use json_patch::{Patch, merge, patch};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use ostler_lifecycle::each;
use ostler_lifecycle::owner::is_controlled_by;
use ostler_lifecycle::plan::{Event, Performed};
use ostler_lifecycle::write::{
    Batch, Object, Only, Part, Plan, Report, TakenName, Then, Tried, Verb, Write,
};
use serde_json::{Value, json};

/// The objects of a namespace, and the events for people.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Api {
    objects: BTreeMap<(&'static str, String), Object>,
    pub(crate) events: Vec<Event>,
    /// Writes of this part are refused, with the text.
    pub(crate) refuses: Option<(Part, String)>,
}

const fn kind(of: &Object) -> &'static str {
    match of {
        Object::Machine(_) => "Machine",
        Object::Set(_) => "MachineSet",
        Object::Deployment(_) => "MachineDeployment",
        Object::Pool(_) => "MachinePool",
        Object::Check(_) => "MachineHealthCheck",
        Object::Reserve(_) => "MachineReserve",
        Object::Node(..) => "Node",
    }
}

/// The object after a change of its JSON.
fn changed(object: &Object, change: impl FnOnce(&mut Value)) -> Object {
    let mut object = object.clone();
    each!(&mut object, it => {
        let mut value = serde_json::to_value(it.as_ref()).unwrap();
        change(&mut value);
        *it = Arc::new(serde_json::from_value(value).unwrap());
    });
    object
}

fn with_meta(object: &Object, change: impl FnOnce(&mut ObjectMeta)) -> Object {
    let mut object = object.clone();
    each!(&mut object, it => change(&mut Arc::make_mut(it).metadata));
    object
}

impl Api {
    pub(crate) fn with(objects: impl IntoIterator<Item = Object>) -> Self {
        let mut api = Self::default();
        objects.into_iter().for_each(|object| api.put(object));
        api
    }

    pub(crate) fn objects(&self) -> impl Iterator<Item = &Object> {
        self.objects.values()
    }

    fn get(&self, of: &Object) -> Option<&Object> {
        self.objects.get(&(kind(of), of.name().to_owned()))
    }

    fn put(&mut self, object: Object) {
        self.objects.insert((kind(&object), object.name().to_owned()), object);
    }

    /// Writes the plan of an object, then its status, and tells people. `None`: an answer ended the pass.
    pub(crate) fn execute<R: Report>(
        &mut self,
        own: &Object,
        plan: &Plan<R>,
        now: Timestamp,
    ) -> Option<Tried> {
        let mut tried = Tried::default();
        for batch in &plan.writes {
            if batch.after.is_some_and(|part| tried.failed(part)) {
                continue;
            }
            for write in &batch.writes {
                self.make(own, batch, write, &mut tried, now)?;
            }
        }
        if let Some(status) = plan.report.as_ref().and_then(|report| report.patch(&tried)) {
            let status = Verb::PatchStatus(json!({ "status": status }));
            let write = Write::new(own.clone(), status);
            self.make(own, &Batch::own("", write.clone()), &write, &mut tried, now)?;
        }
        self.events.extend(plan.events.iter().cloned());
        Some(tried)
    }

    fn make(
        &mut self,
        own: &Object,
        batch: &Batch,
        write: &Write,
        tried: &mut Tried,
        now: Timestamp,
    ) -> Option<()> {
        let performed = match &self.refuses {
            Some((part, why)) if *part == batch.part => Performed::Failed(why.clone()),
            _ => self.answer(own, write, now),
        };
        let then = match &performed {
            Performed::Gone => batch.answers.missing,
            Performed::Conflict => batch.answers.conflict,
            Performed::Failed(_) => batch.answers.other,
            Performed::Done | Performed::Refused(_) | Performed::Skipped => {
                self.events.extend(write.told.iter().cloned());
                if let Some(then) = &write.then {
                    self.answer(own, then, now);
                }
                Then::GoOn
            }
        };
        if let (Performed::Failed(why), Some(event)) = (&performed, &write.refused) {
            let message = format!("{}: {why}", event.message);
            self.events.push(Event { message, ..event.clone() });
        }
        tried.0.push((batch.part, performed));
        (!matches!(then, Then::Stop | Then::Outdated)).then_some(())
    }

    /// What the API server does and says.
    fn answer(&mut self, own: &Object, write: &Write, now: Timestamp) -> Performed {
        let there = self.get(&write.of).cloned();
        if let Verb::Create(taken) = &write.verb {
            if there.is_some() {
                return match taken.judge(&write.of, there.as_ref()) {
                    TakenName::Ours => Performed::Done,
                    TakenName::Gone => Performed::Gone,
                    TakenName::Stranger => Performed::Conflict,
                    TakenName::Refused(why) | TakenName::Held(why) => Performed::Failed(why),
                    TakenName::Patch(_) | TakenName::Later(_) => unreachable!("only of pools"),
                };
            }
            let name = write.of.name();
            self.put(with_meta(&write.of, |meta| {
                meta.uid = Some(format!("{name}-uid"));
                meta.creation_timestamp = Some(Time(now));
                meta.resource_version = Some("1".to_owned());
            }));
            return Performed::Done;
        }
        let Some(there) = there else { return Performed::Gone };
        // The pass builds on its own earlier writes.
        let is_own = write.of.uid() == own.uid();
        let same = there.meta().resource_version == write.of.meta().resource_version;
        let holds = match &write.only {
            Only::Any => true,
            _ if there.uid() != write.of.uid() => false,
            Only::Seen => same || is_own,
            newest @ Only::Newest { .. } => same || newest.holds(&write.of, &there),
            Only::ControlledBy(uid) if !is_controlled_by(there.meta(), uid) => {
                return Performed::Gone;
            }
            Only::ControlledBy(_) | Only::Uid => true,
        };
        if !holds {
            return Performed::Conflict;
        }
        let new = match &write.verb {
            Verb::Confirm(same) if same.holds(there.meta(), write.of.meta()) => {
                return Performed::Done;
            }
            Verb::Confirm(_) => return Performed::Conflict,
            Verb::Create(_) => unreachable!("answered above"),
            Verb::Refuse(why) => return Performed::Failed(why.clone()),
            Verb::MakeCopy(_) | Verb::DeleteCopy(_) | Verb::Token(_) => return Performed::Done,
            Verb::Patch(change) | Verb::PatchStatus(change) => {
                changed(&there, |value| merge(value, change))
            }
            Verb::Edit(edit) => {
                let edit: Patch = serde_json::from_value(json!(edit)).unwrap();
                changed(&there, |value| patch(value, &edit).unwrap())
            }
            Verb::Delete if there.meta().finalizers.iter().flatten().next().is_none() => {
                self.objects.remove(&(kind(&there), there.name().to_owned()));
                return Performed::Done;
            }
            Verb::Delete => with_meta(&there, |meta| {
                meta.deletion_timestamp.get_or_insert(Time(now));
            }),
        };
        // The version in a patch is the patch's condition.
        let before = there.meta().resource_version.clone();
        let new = with_meta(&new, |meta| meta.resource_version = before);
        if new != there {
            let version = |meta: &ObjectMeta| meta.resource_version.as_deref()?.parse::<u64>().ok();
            let next = version(there.meta()).unwrap_or_default() + 1;
            self.put(with_meta(&new, |meta| meta.resource_version = Some(next.to_string())));
        }
        Performed::Done
    }
}
