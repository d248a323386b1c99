//! Who judges: the invariants as predicates over every request, every change of a cloud and every call
//! of a driver, in the moment it happens.
//!
//! Nothing here asks the product for its view. Pods that still run are seen by the pods, instances by the cloud.

mod checks;
mod creates;
mod groups;
mod nodes;
mod pools;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use ostler_api::machine::{Machine, MachinePhase};
use ostler_api::names;
use ostler_driver_fake::cloud::{Instance, Record, State};
use serde_json::Value;
use tokio::time::Instant;

use self::creates::Creates;
use self::groups::is_gone;
pub use self::pools::is_of;
use super::checks::rules::Rules as Checks;
use super::groups::rules::{Rules, controller};
use super::life::{self, Life, Lives};
use super::plan::Plan;
use super::pools::rules::Rules as Pools;
use super::trace::Trace;

/// A change that the API server made.
#[derive(Clone, Debug)]
pub struct Change {
    /// Who asked.
    pub by: String,
    /// `POST`, `PUT`, `PATCH` or `DELETE`.
    pub method: String,
    /// Where.
    pub path: String,
    /// The object that the caller meant to send.
    pub sent: Value,
    /// The object afterwards, or the answer.
    pub object: Value,
}

impl Change {
    /// Reads a request that was granted.
    pub fn read(by: &str, method: &str, path: &str, sent: &[u8], answer: &[u8]) -> Self {
        Self {
            by: by.to_owned(),
            method: method.to_owned(),
            path: path.to_owned(),
            sent: serde_json::from_slice(sent).unwrap_or_default(),
            object: serde_json::from_slice(answer).unwrap_or_default(),
        }
    }
}

/// The judge. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Oracle {
    trace: Trace,
    epoch: Timestamp,
    /// The possible error between the clocks of the writer and the reader of a time.
    tolerance: Duration,
    /// Drivers break the contract: what they promise cannot be asked of the core.
    lies: bool,
    inner: Arc<Mutex<Books>>,
}

#[derive(Debug, Default)]
struct Books {
    lives: Lives,
    /// Pods that were made and are not gone, by name.
    pods: BTreeMap<String, Pod>,
    nodes: BTreeMap<String, Node>,
    /// Since when a Node is not Ready.
    unready: BTreeMap<String, Instant>,
    /// Instances that exist, of all clouds, by provider id.
    instances: BTreeMap<String, Instance>,
    /// Every instance ever made: UID of its machine by provider id.
    made: BTreeMap<String, String>,
    /// Instances of others, which the product must not touch.
    foreign: BTreeMap<String, Instance>,
    /// UIDs of Machines whose instance a user deleted by hand.
    vanished: BTreeSet<String>,
    /// Ids of operations that were ever written down as an intent.
    intents: BTreeSet<String>,
    /// Provider specs that drivers reported as applied, by UID.
    applied: BTreeMap<String, Vec<Value>>,
    /// Creates that run.
    creates: Creates,
    /// Whether what the cloud does now was given up long ago.
    late: bool,
    /// Instances that a driver reported as gone, or that came unexpectedly.
    unexpected: BTreeSet<String>,
    /// Names of Machines that were gone while their deletion was forced.
    forced: BTreeSet<String>,
    /// UIDs without a Machine for which the core called DeleteMachine, with no intent of that Machine.
    orphans: BTreeSet<String>,
    /// Instances deleted by those calls.
    collected: BTreeSet<String>,
    /// Events of cores.
    told: Vec<String>,
    /// Sets and deployments.
    groups: Rules,
    /// Pools and their groups.
    pools: Pools,
    /// Instances that groups of no pool left behind, and that are gone.
    left: BTreeSet<String>,
    /// Health checks.
    checks: Checks,
}

/// How long a drain may last in the simulation; also set in the options of the cores.
pub const DRAIN_TIMEOUT: Duration = Duration::from_mins(4);
/// After how long without Ready a drain may use force; also set in the options of the cores.
pub const UNREACHABLE_AFTER: Duration = Duration::from_mins(2);

/// Events that are kept; more than any life has.
const MOST_TOLD: usize = 10_000;

impl Oracle {
    /// Without any knowledge. `epoch` is the time when `trace` began.
    pub fn new(trace: Trace, epoch: Timestamp, plan: &Plan) -> Self {
        let (tolerance, lies) = (plan.tolerance(), plan.lies());
        let lag = plan.lag();
        let (groups, pools) = (Rules::new(lag), Pools::new(lag));
        let checks = Checks::new(lag, tolerance);
        let books = Books { groups, pools, checks, ..Books::default() };
        Self { trace, epoch, tolerance, lies, inner: Arc::new(Mutex::new(books)) }
    }

    /// The possible error between the clocks of the writer and the reader of a time.
    pub fn tolerance(&self) -> Duration {
        self.tolerance
    }

    /// A rule is broken that no core can keep whose drivers lie.
    fn broken(&self, what: impl Display) {
        if self.lies {
            self.trace.note("ORACLE", format_args!("after a lie: {what}"));
        } else {
            self.trace.violation(what);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Books> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The true time.
    pub fn now(&self) -> Timestamp {
        self.epoch + self.trace.elapsed()
    }

    /// The machines that exist, as they were written last, by UID.
    pub fn lives(&self) -> Lives {
        self.lock().lives.clone()
    }

    /// Whether some machine has not come to where it may stay.
    pub fn is_busy(&self) -> bool {
        let rests = |machine: &Machine| {
            let phase = machine.phase();
            let settled = [MachinePhase::Running, MachinePhase::Failed].contains(&phase);
            settled && !machine.is_deleting()
        };
        self.lock().lives.values().any(|life| !rests(&life.machine))
    }

    /// Whether the Machine of this UID has this instance's id.
    pub fn knows(&self, uid: &str, provider_id: &str) -> bool {
        let books = self.lock();
        books
            .lives
            .get(uid)
            .is_some_and(|life| life.machine.provider_id() == Some(&provider_id.into()))
    }

    /// Former instances of the Machine with this UID.
    pub fn gone(&self, uid: &str) -> BTreeSet<String> {
        let books = self.lock();
        let gone = |(id, of): &(&String, &String)| *of == uid && !books.instances.contains_key(*id);
        books.made.iter().filter(gone).map(|(id, _)| id.clone()).collect()
    }

    /// Instances that a driver reported as gone too early, and that are gone now, with their Machines.
    pub fn lied_about(&self) -> BTreeSet<String> {
        let books = self.lock();
        let gone = |id: &&String| {
            let lives = |uid: &String| books.lives.contains_key(uid);
            !books.instances.contains_key(*id) && !books.made.get(*id).is_some_and(lives)
        };
        books.unexpected.iter().filter(gone).cloned().collect()
    }

    /// A user takes this instance away: not the product's doing.
    pub fn by_hand(&self, instance: &Instance) {
        let mut books = self.lock();
        books.vanished.insert(instance.identity.machine_uid.clone());
    }

    /// A driver reports an existing instance as gone.
    pub fn lied(&self, provider_id: &str) {
        self.lock().unexpected.insert(provider_id.to_owned());
    }

    /// Does in a cloud what was asked for so long ago that everybody has given it up.
    pub fn late(&self, work: impl FnOnce()) {
        self.lock().late = true;
        work();
        self.lock().late = false;
    }

    /// Orphans that were collected without a word.
    pub fn untold(&self) -> Vec<String> {
        let books = self.lock();
        let told = |id: &&String| books.told.iter().any(|note| note.contains(id.as_str()));
        books.collected.iter().filter(|id| !told(id)).cloned().collect()
    }

    /// A client asks for something, whatever becomes of it.
    pub fn asks(&self, by: &str, method: &str, path: &str, body: &[u8]) {
        if path.ends_with("/leases/machine-controller") && by.starts_with("core") {
            self.lock().creates.leads(by);
        }
        let is_event = method == "POST" && path.ends_with("/events");
        if !is_event || !by.starts_with("core") {
            return;
        }
        let event: Value = serde_json::from_slice(body).unwrap_or_default();
        let note = event.get("note").and_then(Value::as_str).unwrap_or_default();
        let mut books = self.lock();
        if books.told.len() < MOST_TOLD {
            books.told.push(note.to_owned());
        }
    }

    /// Whether a rule is about what is there. The others are not read: reading takes most of the time.
    pub fn judges(path: &str) -> bool {
        let judged = [
            "machines",
            "nodes",
            "pods",
            "machinesets",
            "machinedeployments",
            "machinepools",
            "machinehealthchecks",
            "machinereserves",
        ];
        path.split('/').any(|segment| judged.contains(&segment))
    }

    /// An object was changed.
    pub fn wrote(&self, change: &Change) {
        let kind = change.object.get("kind").and_then(Value::as_str).unwrap_or_default();
        let segments: Vec<&str> = change.path.trim_matches('/').split('/').collect();
        match (kind, segments.as_slice()) {
            ("Machine", _) => self.machine(change),
            ("MachineSet", _) => self.set(change),
            ("MachineDeployment", _) => self.deployment(change),
            ("MachinePool", _) => self.pool(change),
            ("MachineHealthCheck", _) => self.check(change),
            ("MachineReserve", _) => self.reserve(change),
            ("Status", [.., "machinehealthchecks", name]) if change.method == "DELETE" => {
                self.lock().checks.check(name, None);
            }
            ("Status", [.., "machinepools", name]) if change.method == "DELETE" => {
                self.lock().pools.gone(name);
            }
            ("Pod", _) => self.pod(change),
            ("Node", _) => self.node(change),
            // A deletion that is done immediately answers a Status.
            ("Status", [.., "nodes", name]) if change.method == "DELETE" => {
                let mut books = self.lock();
                books.checks.node_gone(name, self.now());
                let gone = books.nodes.remove(*name);
                drop(books);
                let uid = gone.and_then(|node| node.metadata.uid);
                self.check_meant(change, uid.as_deref());
            }
            ("Status", [.., "pods", name]) if change.method == "DELETE" => {
                let gone = self.lock().pods.remove(*name);
                let uid = gone.and_then(|pod| pod.metadata.uid);
                self.check_meant(change, uid.as_deref());
            }
            ("Status", [.., "machines", name]) if change.method == "DELETE" => {
                self.vanished(change, name);
            }
            ("Status", [.., plural @ ("machinesets" | "machinedeployments"), name])
                if change.method == "DELETE" =>
            {
                self.lock().groups.gone(plural, name);
            }
            // The body of an eviction is no pod; what it does shows in what the kubelet does.
            _ => {}
        }
    }

    fn machine(&self, change: &Change) {
        let Ok(machine) = serde_json::from_value::<Machine>(change.object.clone()) else { return };
        let uid = machine.uid().to_owned();
        let mut books = self.lock();
        books.intents.extend(machine.intent().map(|operation| operation.id.to_string()));
        let before = books.lives.get(&uid).map(|life| life.machine.clone());
        let ours = change.by.starts_with("core");
        if let (Some(before), true) = (&before, ours) {
            if let Some(lost) = life::lost(before, &change.sent) {
                self.trace.violation(format_args!("lost update: {lost}"));
            }
            let of_a_set = controller(&before.metadata).is_some();
            if change.method == "DELETE" && !before.is_deleting() && !of_a_set {
                // No user of the simulation deletes Nodes, which would be the one reason.
                self.trace.violation(format_args!("model: a core deletes {}", before.name()));
            }
        }
        if let Some(before) = &before {
            // Answers come in the order of the writes: there is one server and no delay before here.
            let exists = |id: &str| books.instances.contains_key(id);
            if let Some(wrong) = life::wrong(before, &machine, exists) {
                self.broken(format_args!("model: {}: {wrong}", machine.name()));
            }
            let went = before.has_finalizer() && !machine.has_finalizer();
            if went && ours {
                self.check_finalizer(&books, &machine);
            }
        }
        if ours {
            self.check_applied(&books, before.as_ref(), &machine);
        }
        for wrong in books.groups.machine(before.as_ref(), &machine, &change.method, ours) {
            self.broken(wrong);
        }
        self.pooled(&mut books, before.as_ref(), &machine, change);
        self.checked(&mut books, before.as_ref(), &machine, ours);
        if is_gone(change, &machine.metadata) {
            books.groups.machine_gone(&uid);
            books.pools.machine_gone(&uid);
            books.checks.machine_gone(&uid);
            books.lives.remove(&uid);
            if machine.wants_force() {
                books.forced.insert(machine.name().to_owned());
            }
        } else {
            let name = machine.name().to_owned();
            books.lives.insert(uid, Life { name, machine });
        }
    }

    /// A deletion is of what was meant, and not of what has its name now.
    fn check_meant(&self, change: &Change, there: Option<&str>) {
        let meant = change.sent.pointer("/preconditions/uid").and_then(Value::as_str);
        if let (Some(meant), Some(there)) = (meant, there)
            && meant != there
        {
            self.trace.violation(format_args!(
                "precondition: {} was deleted for {meant}, and it is {there}",
                change.path
            ));
        }
    }

    /// INV-3: no instance of this identity is left.
    fn check_finalizer(&self, books: &Books, machine: &Machine) {
        let mut left = books.instances.values();
        let left = left
            .find(|it| pools::is_of(it, machine) && !books.unexpected.contains(&it.provider_id));
        if let Some(left) = left {
            self.broken(format_args!(
                "INV-3: {} has no finalizer any more, and its instance {} exists",
                machine.name(),
                left.provider_id
            ));
        }
    }

    /// INV-6: what is said to be applied was reported as applied.
    fn check_applied(&self, books: &Books, before: Option<&Machine>, machine: &Machine) {
        let key = names::annotation::LAST_APPLIED_PROVIDER_SPEC;
        let Some(now) = machine.annotation(key) else { return };
        if before.and_then(|before| before.annotation(key)) == Some(now) {
            return;
        }
        let spec: Value = serde_json::from_str(now).unwrap_or_default();
        let reported = books.applied.get(machine.uid()).is_some_and(|all| all.contains(&spec));
        if !reported {
            self.broken(format_args!(
                "INV-6: {} is said to have a spec that no driver reported as applied: {now}",
                machine.name()
            ));
        }
    }

    /// A cloud changes.
    pub fn cloud(&self, cloud: &str, record: &Record, before: &State) {
        match record {
            Record::Created { instance } if instance.member.is_some() => {
                self.member(cloud, instance, before);
            }
            Record::Created { instance } => self.created(cloud, instance),
            Record::Deleting { provider_id } => {
                if let Some(instance) = before.instance(provider_id) {
                    self.trace.note(cloud, format_args!("stops {provider_id}"));
                    self.stopped(instance);
                }
            }
            Record::Deleted { provider_id } => {
                self.trace.note(cloud, format_args!("removes {provider_id}"));
                self.removed(provider_id, before);
            }
            Record::Retagged { provider_id, .. } | Record::Tagged { provider_id, .. } => {
                self.trace.note(cloud, format_args!("tags {provider_id}"));
                if self.lock().foreign.contains_key(provider_id) {
                    self.trace.violation(format_args!("INV-5: {provider_id} is not ours"));
                }
            }
            Record::Initialized { provider_id } => {
                self.trace.note(cloud, format_args!("initializes {provider_id}"));
            }
            Record::Opened { .. }
            | Record::Behaves { .. }
            | Record::Joined { .. }
            | Record::Left { .. }
            | Record::Changes { .. }
            | Record::Counted { .. } => {}
            Record::Ungrouped { provider_id } => self.ungrouped(provider_id, before),
            Record::Grouped { group } => self.grouped(cloud, group, before),
        }
    }

    /// An instance of another cluster, which was there before.
    pub fn foreign(&self, instance: &Instance) {
        self.lock().foreign.insert(instance.provider_id.clone(), instance.clone());
    }

    /// INV-1: a Machine never has two instances.
    fn created(&self, cloud: &str, instance: &Instance) {
        let uid = &instance.identity.machine_uid;
        self.trace.note(
            cloud,
            format_args!("makes {} for {}", instance.provider_id, instance.identity.machine_name),
        );
        let mut books = self.lock();
        let other = books.instances.values().find(|it| it.identity.machine_uid == *uid);
        if let Some(other) = other {
            self.broken(format_args!(
                "INV-1: {} has {} and gets {}",
                instance.identity.machine_name, other.provider_id, instance.provider_id
            ));
        }
        let wanted = books.lives.get(uid).is_some_and(|it| !it.machine.is_deleting());
        let left = books.late && !wanted;
        if left {
            books.unexpected.insert(instance.provider_id.clone());
        }
        books.made.insert(instance.provider_id.clone(), uid.clone());
        books.instances.insert(instance.provider_id.clone(), instance.clone());
    }

    /// INV-4 and INV-5: only our own, and only without pods, after the deadline, or by force.
    fn stopped(&self, instance: &Instance) {
        let mut books = self.lock();
        if books.foreign.contains_key(&instance.provider_id) {
            self.trace.violation(format_args!("INV-5: {} is deleted", instance.provider_id));
        }
        let uid = &instance.identity.machine_uid;
        if !books.lives.contains_key(uid) {
            self.trace.count("orphan collected".to_owned());
            if !books.late && books.orphans.contains(uid) {
                books.collected.insert(instance.provider_id.clone());
            }
        }
        if books.vanished.contains(uid) || books.unexpected.contains(&instance.provider_id) {
            return;
        }
        let name = &instance.identity.machine_name;
        let Some(life) = books.lives.get(uid) else { return };
        if !life.machine.is_deleting() && !books.late {
            self.broken(format_args!(
                "the instance of {name} is deleted, and nobody deleted the Machine"
            ));
        }
        self.check_empty(&books, instance, life);
    }

    /// A driver begins a call. INV-8: a mutation was written down before it was sent. INV-1: no create
    /// while another one runs, and none before a driver looked what became of the one before.
    pub fn call_began(&self, driver: &str, (verb, uid, operation): (&str, &str, &str)) {
        let mut books = self.lock();
        let mutation = ["CreateMachine", "InitializeMachine", "UpdateMachine", "DeleteMachine"];
        let mutation = [mutation.as_slice(), &pools::MUTATIONS].concat();
        let intended = books.intents.contains(operation);
        if verb == "DeleteMachine" && !intended && !books.lives.contains_key(uid) {
            books.orphans.insert(uid.to_owned());
        } else if verb == "DeletePool" && !intended {
            if let Some(wrong) = books.pools.collected(uid) {
                self.broken(wrong);
            }
        } else if mutation.contains(&verb) && !intended {
            self.trace.violation(format_args!("INV-8: {verb} {operation} was never written down"));
        }
        let wrong = match verb {
            "CreateMachine" => books.creates.began(driver, uid, operation),
            "GetMachineStatus" => {
                books.creates.looked(uid);
                Vec::new()
            }
            _ => Vec::new(),
        };
        for wrong in wrong {
            self.trace.violation(format_args!("{wrong}"));
        }
    }

    /// A call ended, with an answer or with its process.
    pub fn call_ended(&self, driver: &str, uid: &str, verb: &str) {
        if verb == "CreateMachine" {
            self.lock().creates.ended(driver, uid);
        }
    }

    /// A driver applied the whole spec.
    pub fn applied(&self, uid: &str, spec: &str) {
        let spec = serde_json::from_str(spec).unwrap_or_default();
        self.lock().applied.entry(uid.to_owned()).or_default().push(spec);
    }
}
