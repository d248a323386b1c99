//! A plan's writes to the API, as data: the object, the condition, and the consequence of each answer. One executor
//! performs it for every kind of the fleet, and decides nothing.

mod taken;

pub use taken::OfInstance;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use ostler_api::machine_set::MachineTemplateSpec;
use ostler_api::{
    Machine, MachineDeployment, MachineHealthCheck, MachinePool, MachineReserve, MachineSet,
    OperationId, Uid,
};
use serde_json::{Value, json};

use crate::copies::{Made, NewCopy};
use crate::hold::FinalizerChange;
use crate::operation::Dispatch;
use crate::owner::is_controlled_by;
use crate::plan::{Event, Performed, TokenRequest};
use crate::template_identity::identity;

/// The same of an object of every kind.
#[macro_export]
macro_rules! each {
    ($of:expr, $it:ident => $then:expr) => {
        match $of {
            $crate::write::Object::Machine($it) => $then,
            $crate::write::Object::Set($it) => $then,
            $crate::write::Object::Deployment($it) => $then,
            $crate::write::Object::Pool($it) => $then,
            $crate::write::Object::Check($it) => $then,
            $crate::write::Object::Reserve($it) => $then,
            $crate::write::Object::Node($it, _) => $then,
        }
    };
}

/// An object as it was seen, or as it is to be created.
#[derive(Debug, Clone, PartialEq)]
pub enum Object {
    /// A Machine.
    Machine(Arc<Machine>),
    /// A MachineSet.
    Set(Arc<MachineSet>),
    /// A MachineDeployment.
    Deployment(Arc<MachineDeployment>),
    /// A MachinePool.
    Pool(Arc<MachinePool>),
    /// A MachineHealthCheck.
    Check(Arc<MachineHealthCheck>),
    /// A MachineReserve.
    Reserve(Arc<MachineReserve>),
    /// The Node of a Machine, in the Machine's target cluster.
    Node(Arc<Node>, Arc<Machine>),
}

impl Object {
    /// Its metadata.
    pub fn meta(&self) -> &ObjectMeta {
        each!(self, it => &it.metadata)
    }

    /// Its status, as JSON.
    pub fn status(&self) -> Value {
        each!(self, it => json!(it.status))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.meta().name.as_deref().unwrap_or_default()
    }

    /// The namespace; empty: none.
    pub fn namespace(&self) -> &str {
        self.meta().namespace.as_deref().unwrap_or_default()
    }

    /// Its UID.
    pub fn uid(&self) -> &str {
        self.meta().uid.as_deref().unwrap_or_default()
    }

    /// How many Machines of a set are available.
    pub fn available(&self) -> i32 {
        let Self::Set(set) = self else { return 0 };
        set.status.as_ref().map_or(0, |status| status.available_replicas)
    }

    /// Whether the object is a set of this template.
    fn has_template(&self, template: &MachineTemplateSpec) -> bool {
        matches!(self, Self::Set(set) if identity(&set.spec.template) == identity(template))
    }

    /// The Machine, if the object is one.
    pub const fn machine(&self) -> Option<&Arc<Machine>> {
        if let Self::Machine(machine) = self { Some(machine) } else { None }
    }
}

/// The write of an object.
#[derive(Debug, Clone, PartialEq)]
pub enum Verb {
    /// No write: a read shows the object unchanged, or no later write is made. Caches may lag.
    Confirm(Same),
    /// Create the object.
    Create(Taken),
    /// No write: the write counts as refused, for this reason.
    Refuse(String),
    /// A merge patch.
    Patch(Value),
    /// A merge patch of the status.
    PatchStatus(Value),
    /// A JSON patch, after a `test` of the condition. The cache waits for the watch.
    Edit(Vec<Value>),
    /// Delete the object.
    Delete,
    /// Nothing: this copy of a template is made, unless it is there.
    MakeCopy(Box<NewCopy>),
    /// Nothing: this copy of a template, which is the object's, is deleted.
    DeleteCopy(Box<Made>),
    /// Nothing: this is done to a bootstrap token of the object, in the cluster that its Nodes join.
    Token(Box<TokenWrite>),
}

/// The write of a bootstrap token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenWrite {
    /// Make the token, or replace the token of the same id and owner. Another owner's token is a 409.
    Ensure(TokenRequest),
    /// Delete the token of this owner.
    Delete {
        /// Its id.
        id: String,
        /// UID of its owner.
        owner: Uid,
    },
}

/// How much of an object must not have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Same {
    /// The object, spec, deletion and annotations.
    Spec,
    /// All but the status; a changed object is looked at after this time.
    AllButStatus(Duration),
}

impl Same {
    /// Whether two versions are the same in this respect.
    pub fn holds(self, one: &ObjectMeta, other: &ObjectMeta) -> bool {
        let spec = one.uid == other.uid
            && one.generation == other.generation
            && one.deletion_timestamp == other.deletion_timestamp
            && one.annotations == other.annotations;
        spec && match self {
            Self::Spec => true,
            Self::AllButStatus(_) => {
                one.labels == other.labels
                    && one.finalizers == other.finalizers
                    && one.owner_references == other.owner_references
            }
        }
    }
}

/// On which condition a write is done. All but [`Self::Any`] name the UID.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Only {
    /// In the version that was seen; of the object of the pass itself, in the version that the pass wrote last.
    #[default]
    Seen,
    /// In the newest version that the cache has, if nothing but the status changed since it was seen, and no more than these
    /// are available. Else in the version that was seen.
    Newest {
        /// `None`: any number.
        available: Option<i32>,
    },
    /// In any version.
    Uid,
    /// In any version, if a read shows this UID as controller.
    ControlledBy(String),
    /// Whatever there is. For what only tells people.
    Any,
}

impl Only {
    /// Whether the newest version may be written to in place of the observed version.
    pub fn holds(&self, seen: &Object, newest: &Object) -> bool {
        let Self::Newest { available } = self else { return false };
        Same::AllButStatus(Duration::ZERO).holds(seen.meta(), newest.meta())
            && available.is_none_or(|most| newest.available() <= most)
    }
}

/// The owner of an existing object with the name of a new one.
#[derive(Debug, Clone, PartialEq)]
pub enum Taken {
    /// Ours, if controlled by this UID: from a request whose answer was lost.
    Controlled(String),
    /// The set of a deployment with this UID: of the same template, and not being deleted.
    SetOf(String),
    /// The Machine of an instance of a group.
    Instance(OfInstance),
}

/// What to do about an existing object with the name of a new one.
#[derive(Debug, Clone, PartialEq)]
pub enum TakenName {
    /// The wanted object.
    Ours,
    /// The wanted object after this merge patch, on condition of the found version.
    Patch(Value),
    /// It is in the way for a while: as good as done, but only this is told.
    Later(Option<Event>),
    /// The object is gone meanwhile: 404.
    Gone,
    /// Another object: 409.
    Stranger,
    /// Another object, for this reason: as 422.
    Refused(String),
    /// Another owner has the object, for this reason. The object may be left.
    Held(String),
}

impl Taken {
    /// Judges the object found by a read.
    pub fn judge(&self, wanted: &Object, found: Option<&Object>) -> TakenName {
        match (self, found) {
            (Self::SetOf(_) | Self::Instance(_), None) => TakenName::Gone,
            // A set in deletion creates no Machines.
            (Self::SetOf(uid), Some(Object::Set(found)))
                if !found.is_deleting()
                    && is_controlled_by(&found.metadata, uid)
                    && wanted.has_template(&found.spec.template) =>
            {
                TakenName::Ours
            }
            (Self::Controlled(uid), Some(found)) if is_controlled_by(found.meta(), uid) => {
                TakenName::Ours
            }
            (Self::Instance(of), Some(Object::Machine(found))) => of.judge(wanted, found),
            (Self::Controlled(_) | Self::SetOf(_) | Self::Instance(_), _) => TakenName::Stranger,
        }
    }
}

/// One write.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    /// The written object.
    pub of: Object,
    /// The kind of write.
    pub verb: Verb,
    /// The condition of the write.
    pub only: Only,
    /// Events after the write: about the object of the pass, or about the written object.
    pub told: Vec<Event>,
    /// Whether the events are about the written object.
    pub of_itself: bool,
    /// An object to create first: without it, the write is refused.
    pub first: Option<Box<NewCopy>>,
    /// A write afterwards. The later write only tells people, and nothing follows if it fails.
    pub then: Option<Box<Self>>,
    /// The event for a refused write; the answer is added to the message.
    pub refused: Option<Event>,
    /// Whether its effect is awaited in the cache. A creation is awaited from before the request, and a patch only for as
    /// long as it has no answer.
    pub awaited: bool,
}

impl Write {
    /// On condition of the version that was seen.
    pub const fn new(of: Object, verb: Verb) -> Self {
        Self {
            of,
            verb,
            only: Only::Seen,
            told: Vec::new(),
            of_itself: false,
            first: None,
            then: None,
            refused: None,
            awaited: false,
        }
    }

    /// With another condition.
    #[must_use]
    pub fn only(self, only: Only) -> Self {
        Self { only, ..self }
    }

    /// Tells people if it is refused.
    #[must_use]
    pub fn or_telling(self, event: Event) -> Self {
        Self { refused: Some(event), ..self }
    }

    /// Nothing that its effect decides is decided until the cache shows it.
    #[must_use]
    pub fn awaited(self) -> Self {
        Self { awaited: true, ..self }
    }

    /// Whether the write is repeated under the same name until it is answered.
    pub const fn is_repeated(&self) -> bool {
        matches!(self.verb, Verb::Create(Taken::Controlled(_)))
    }

    /// Tells people once it is done.
    #[must_use]
    pub fn telling(mut self, event: impl IntoIterator<Item = Event>) -> Self {
        self.told.extend(event);
        self
    }
}

/// The parts of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The read of the object itself.
    Confirm,
    /// The object itself.
    Own,
    /// Objects to release.
    Release,
    /// Objects to adopt.
    Adopt,
    /// Objects that are to go later.
    Mark,
    /// Writes that only tell others.
    Tell,
    /// Objects of which there are to be more or less.
    Scale,
    /// Own objects to change.
    Update,
    /// Objects to delete.
    Delete,
    /// Reserve Machines to take.
    Take,
    /// Objects to create.
    Create,
}

/// In which order the writes of a batch are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Write after write.
    InOrder,
    /// So many at the same time.
    Beside(usize),
    /// 1, 2, 4, … at the same time. None is made after a step with a failure: a refusal of one would meet the next
    /// hundred as well.
    Doubling,
}

/// The meaning of an answer for the pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// As good as done.
    GoOn,
    /// The pass ends: gone (404), outdated (409), or failed.
    Stop,
    /// The pass ends: the object is looked at again.
    Outdated,
    /// The pass goes on, and the key comes again like a failed key.
    Repeat,
    /// The pass goes on, and the key comes again after this time or sooner.
    Again(Duration),
    /// The pass goes on, and the key comes again after this time.
    NotBefore(Duration),
}

/// The meaning of each unsuccessful answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answers {
    /// 404.
    pub missing: Then,
    /// 409, after [`Taken`] was asked.
    pub conflict: Then,
    /// 429, and no answer in time.
    pub busy: Then,
    /// 403, 422 and all others.
    pub other: Then,
}

impl Answers {
    /// For the object itself: a failure ends the pass.
    pub const OWN: Self =
        Self { missing: Then::Stop, conflict: Then::Stop, busy: Then::Stop, other: Then::Stop };
    /// Of others, which do not need each other.
    pub const OTHERS: Self = Self {
        missing: Then::GoOn,
        conflict: Then::Repeat,
        busy: Then::Repeat,
        other: Then::Repeat,
    };
}

/// Writes of the same kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// The part of the plan.
    pub part: Part,
    /// The log message for a failed write.
    pub what: &'static str,
    /// The writes.
    pub writes: Vec<Write>,
    /// The order of the writes.
    pub pace: Pace,
    /// None of them is made if a write of this part failed.
    pub after: Option<Part>,
    /// The meaning of answers.
    pub answers: Answers,
}

impl Batch {
    /// A single write of the object itself.
    pub fn own(what: &'static str, write: Write) -> Self {
        let part = if matches!(write.verb, Verb::Confirm(_)) { Part::Confirm } else { Part::Own };
        let answers = Answers::OWN;
        Self { part, what, writes: vec![write], pace: Pace::InOrder, after: None, answers }
    }

    /// Writes of other objects, one after the other.
    pub fn of(part: Part, what: &'static str, writes: impl IntoIterator<Item = Write>) -> Self {
        let (writes, answers) = (writes.into_iter().collect(), Answers::OTHERS);
        Self { part, what, writes, pace: Pace::InOrder, after: None, answers }
    }

    /// With another meaning of answers.
    #[must_use]
    pub fn answering(self, answers: Answers) -> Self {
        Self { answers, ..self }
    }

    /// At another pace.
    #[must_use]
    pub fn paced(self, pace: Pace) -> Self {
        Self { pace, ..self }
    }

    /// Not if a write of this part failed.
    #[must_use]
    pub fn after(self, part: Part) -> Self {
        Self { after: Some(part), ..self }
    }
}

/// When to look again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Next {
    /// Immediately: the writes, or the status, change what the next plan is made from.
    Now,
    /// After this time, or when something changes.
    After(Duration),
    /// When something changes.
    #[default]
    OnChange,
}

/// The status report of an object.
pub trait Report {
    /// Fields of the status without which nothing is safe. An API server that drops such a field ends the pass.
    const NEEDED: &'static [&'static str];

    /// The merge patch of the status, after the writes; `None`: unchanged.
    fn patch(&self, tried: &Tried) -> Option<Value>;
}

impl Report for () {
    const NEEDED: &'static [&'static str] = &[];

    fn patch(&self, _: &Tried) -> Option<Value> {
        None
    }
}

/// The answer to a snapshot. Executed in this order: the writes, the status write, then, only if the status was
/// accepted, cancel, acknowledge, dispatch and events.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan<R> {
    /// Writes to the API, in this order.
    pub writes: Vec<Batch>,
    /// The report of the object; `None`: there is no object for it, or the next pass writes it.
    pub report: Option<R>,
    /// Id of an operation that is to be stopped.
    pub cancel: Option<OperationId>,
    /// Id of a finished operation whose result is in the API now.
    pub acknowledge: Option<OperationId>,
    /// The operation to send. The intent is in the API now.
    pub dispatch: Option<Dispatch>,
    /// The events for people.
    pub events: Vec<Event>,
    /// When to look again.
    pub next: Next,
}

impl<R> Plan<R> {
    /// A plan with only these writes.
    pub fn only(writes: Vec<Batch>, next: Next) -> Self {
        let (report, cancel, acknowledge, dispatch) = (None, None, None, None);
        Self { writes, report, cancel, acknowledge, dispatch, events: Vec::new(), next }
    }

    /// In a few words, for the log.
    pub fn describe(&self) -> String {
        let batches = self.writes.iter().filter(|batch| !batch.writes.is_empty());
        let batches = batches.map(|batch| format!("{:?} {}", batch.part, batch.writes.len()));
        let sent = self.dispatch.as_ref().map(Dispatch::kind);
        format!("{}; send {sent:?}, then {:?}", batches.collect::<Vec<_>>().join(", "), self.next)
    }
}

/// The text for a 409.
pub const CONFLICT: &str = "the object changed meanwhile";

/// How each write of a plan went, in the order in which they were made.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tried(pub Vec<(Part, Performed)>);

impl Tried {
    /// Whether a write of a part failed.
    pub fn failed(&self, part: Part) -> bool {
        let failed = |it: &Performed| matches!(it, Performed::Conflict | Performed::Failed(_));
        self.0.iter().any(|(of, performed)| *of == part && failed(performed))
    }

    /// How the first write of a part went; `None`: there was none.
    pub fn first(&self, part: Part) -> Option<&Performed> {
        self.0.iter().find_map(|(of, performed)| (*of == part).then_some(performed))
    }

    /// The text of the first refusal of a part's write.
    pub fn refusal(&self, part: Part) -> Option<&str> {
        self.0.iter().find_map(|(of, performed)| match performed {
            Performed::Failed(text) if *of == part => Some(text.as_str()),
            Performed::Conflict if *of == part && part == Part::Create => Some(CONFLICT),
            Performed::Done
            | Performed::Gone
            | Performed::Refused(_)
            | Performed::Conflict
            | Performed::Failed(_)
            | Performed::Skipped => None,
        })
    }
}

/// The merge patch that adds or removes `finalizer`; `None`: no change. The patch fails if the object has another
/// version, so finalizers of others are never overwritten.
pub fn finalizer_patch(meta: &ObjectMeta, finalizer: &str, hold: FinalizerChange) -> Option<Value> {
    let mut all = meta.finalizers.clone().unwrap_or_default();
    all.retain(|name| name != finalizer);
    match hold {
        FinalizerChange::Keep => return None,
        FinalizerChange::Add => all.push(finalizer.to_owned()),
        FinalizerChange::Remove => {}
    }
    let version = &meta.resource_version;
    Some(json!({ "metadata": { "resourceVersion": version, "finalizers": all } }))
}
