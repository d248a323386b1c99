//! The bench of a check: its harness, cluster, machines and steps.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ostler_proto::v1alpha1 as proto;
use parking_lot::Mutex;
use proto::operation::Request;
use proto::{MachineRecord, ObjectRevision, Operation};
use tokio::time::Instant;
use uuid::Uuid;

use crate::answer::Answer;
use crate::by_name;
use crate::cloud::Cloud;
use crate::core::library::{ClassContent, SecretData};
use crate::core::session::Session;
use crate::harness::Harness;
use crate::machine::{self, Machine, NAMESPACE};
use crate::manifest::ClassManifest;
use crate::options::Options;
use crate::outcome::{Failure, NotPassed, Outcome, skipped};
use crate::pool::Pool;
use crate::probe::Probe;
use crate::steps::Steps;

/// Labels of the classes of the options of which things are made, each maybe in a place of its own.
const PLACES: [&str; 4] = ["slow", "alt", "hot", "mcm"];
/// Concurrent deletes: the driver's credit holds for cleaning up, too.
const DELETES: u32 = 64;
/// For how long deletions that fail are repeated, as the core does, in all checks together; what is left then is named.
const CLEAN_UP: Duration = Duration::from_mins(1);
/// And so much longer for each thing that is to be deleted.
const EACH: Duration = Duration::from_secs(1);
/// Before the second try; each further one waits so much longer, up to the limit.
const CLEAN_UP_PAUSE: Duration = Duration::from_secs(1);
const CLEAN_UP_LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The place of one check.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) harness: Arc<Harness>,
    cluster_id: String,
    tag: String,
    numbers: AtomicU64,
    facts: Mutex<Facts>,
    /// So many lines the driver had printed before.
    printed: usize,
}

/// The UID of a thing, and the class by which it may have been made.
type Key = (String, String);

#[derive(Debug, Default)]
struct Facts {
    steps: Steps,
    /// Machines that an instance may have been made for.
    made: BTreeMap<Key, Machine>,
    /// Pools that a group may have been made for.
    pools: BTreeMap<Key, Pool>,
    /// Machines that are gone.
    deleted: BTreeSet<Key>,
    /// By cluster and class: what may show an instance.
    lists: BTreeMap<Key, Operation>,
    /// By label.
    classes: BTreeMap<&'static str, Published>,
    /// The check took the cloud away.
    away: bool,
}

#[derive(Debug, Clone)]
struct Published {
    reference: ObjectRevision,
    content: ClassContent,
    secret: Option<SecretData>,
    secret_revision: String,
}

impl Bench {
    pub(crate) fn new(harness: Arc<Harness>) -> Self {
        let tag: String = Uuid::new_v4().simple().to_string().chars().take(8).collect();
        Self {
            printed: harness.output.count(),
            harness,
            cluster_id: format!("conformance-{}", Uuid::new_v4()),
            tag,
            numbers: AtomicU64::new(0),
            facts: Mutex::default(),
        }
    }

    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn options(&self) -> &Options {
        &self.harness.setup.options
    }

    /// A limit of time for this driver.
    pub(crate) fn scaled(&self, time: Duration) -> Duration {
        self.options().scaled(time)
    }

    /// The cluster of this check alone.
    pub(crate) fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    /// Notes what was done, for the one who reads why the check failed.
    pub(crate) fn step(&self, what: impl Display) {
        self.facts.lock().steps.add(what.to_string());
    }

    /// What was done first and last.
    pub(crate) fn steps(&self) -> Vec<String> {
        self.facts.lock().steps.shown()
    }

    /// The last lines that the driver printed since the check began.
    pub(crate) fn output(&self, count: usize) -> Vec<String> {
        self.harness.output.tail_since(self.printed, count)
    }

    // Classes.

    /// The class that works.
    pub(crate) fn class(&self) -> ObjectRevision {
        self.published("good", &self.options().class)
    }

    /// The slow class, or the good class.
    pub(crate) fn slow_class(&self) -> ObjectRevision {
        let class = self.options().slow_class.as_ref();
        class.map_or_else(|| self.class(), |class| self.published("slow", class))
    }

    /// The class that works, with the credentials that the infrastructure refuses.
    pub(crate) fn denied_class(&self) -> ObjectRevision {
        self.denied(&self.class())
    }

    /// A class of this check, with the credentials that the infrastructure refuses.
    pub(crate) fn denied(&self, class: &ObjectRevision) -> ObjectRevision {
        let known = self.facts.lock();
        let found = known.classes.values().find(|it| it.reference == *class);
        let content = found.map_or_else(|| &self.options().class.content, |it| &it.content).clone();
        drop(known);
        let secret = self.options().bad_secret.as_ref().map(|secret| secret.data.clone());
        self.publish("denied", &content, secret)
    }

    /// A class of the options that may be missing.
    pub(crate) fn other_class(
        &self,
        label: &'static str,
        class: Option<&ClassManifest>,
    ) -> Outcome<ObjectRevision> {
        let class = class.ok_or_else(|| skipped(format_args!("--{label}-class is not given")))?;
        Ok(self.published(label, class))
    }

    /// A class under a name of this check, with the secret of the options.
    pub(crate) fn published(&self, label: &'static str, class: &ClassManifest) -> ObjectRevision {
        if let Some(known) = self.facts.lock().classes.get(label) {
            return known.reference.clone();
        }
        let secret = self.options().secret.as_ref().map(|secret| secret.data.clone());
        self.publish(label, &class.content, secret)
    }

    /// A new revision of a class under a name of this check, with this secret. That of --hot-class is one of the class that
    /// works: a driver that keeps classes by their names never sees the change.
    pub(crate) fn publish(
        &self,
        label: &'static str,
        content: &ClassContent,
        secret: Option<SecretData>,
    ) -> ObjectRevision {
        let reference = ObjectRevision {
            uid: String::new(),
            namespace: NAMESPACE.to_owned(),
            name: format!("{}-{}", if label == "hot" { "good" } else { label }, self.tag),
            revision: format!("r{}", self.number()),
        };
        let content = content.clone();
        let secret_revision = format!("s{}", self.number());
        let published =
            Published { reference: reference.clone(), content, secret, secret_revision };
        self.serve(&published);
        self.facts.lock().classes.insert(label, published);
        reference
    }

    /// Another secret for a class that is published.
    pub(crate) fn replace_secret(&self, label: &'static str, secret: Option<SecretData>) {
        let revision = format!("s{}", self.number());
        let mut facts = self.facts.lock();
        if let Some(published) = facts.classes.get_mut(label) {
            published.secret = secret;
            published.secret_revision = revision;
            let published = published.clone();
            drop(facts);
            self.serve_secret(&published);
        }
    }

    fn serve(&self, published: &Published) {
        let ObjectRevision { name, revision, .. } = &published.reference;
        let core = self.harness.core();
        core.library().put_class(name, revision, published.content.clone());
        self.serve_secret(published);
    }

    fn serve_secret(&self, published: &Published) {
        let name = &published.reference.name;
        let secret = published.secret.clone();
        self.harness.core().library().put_secret(name, &published.secret_revision, secret);
    }

    /// Ends the core as a crash would; another one serves the same classes.
    pub(crate) async fn restart_core(&self) -> Outcome {
        self.step("restarted the core, which forgot everything");
        self.harness.restart_core().await?;
        self.serve_all();
        Ok(())
    }

    /// A core that no check has broken yet, with the same classes.
    pub(crate) async fn renew(&self) -> Outcome {
        self.harness.renew().await?;
        self.serve_all();
        Ok(())
    }

    fn serve_all(&self) {
        let published: Vec<Published> = self.facts.lock().classes.values().cloned().collect();
        for published in &published {
            self.serve(published);
        }
    }

    // Machines.

    /// A new machine of the class that works.
    pub(crate) fn machine(&self) -> Machine {
        self.machine_of(&self.class())
    }

    /// A new machine whose create takes time, if there is a class for that.
    pub(crate) fn slow_machine(&self) -> Machine {
        self.machine_of(&self.slow_class())
    }

    /// A new machine.
    pub(crate) fn machine_of(&self, class: &ObjectRevision) -> Machine {
        let uid = Uuid::new_v4().to_string();
        let given = self.options().secret.as_ref().and_then(|secret| secret.user_data.clone());
        let own = || user_data_of(&uid);
        Machine {
            name: format!("{}-{}-{}", self.options().name_prefix, self.tag, self.number()),
            cluster_id: self.cluster_id.clone(),
            class: class.clone(),
            user_data: Some(given.unwrap_or_else(own)),
            adopt_by_name: false,
            previous: Vec::new(),
            uid,
        }
    }

    /// A new pool of the class that works.
    pub(crate) fn pool(&self) -> Pool {
        let name = format!("{}-{}-{}", self.options().name_prefix, self.tag, self.number());
        Pool::new(name, &self.cluster_id, &self.class())
    }

    /// By which class something is deleted and looked for: the one of the options that it is made of, since that says
    /// where it is. The good class in place of refused classes.
    fn class_of(&self, operation: &Operation) -> ObjectRevision {
        let facts = self.facts.lock();
        let classes = PLACES.iter().filter_map(|label| facts.classes.get(label));
        let mut references = classes.map(|it| it.reference.clone());
        let found = references.find(|it| Some(it) == operation.machine_class.as_ref());
        drop(facts);
        found.unwrap_or_else(|| self.class())
    }

    /// Remembers that an operation may make an instance or a group.
    pub(crate) fn track(&self, operation: &Operation) {
        let Some(proto::Target { name, uid, .. }) = operation.target.clone() else { return };
        let cluster_id = operation.cluster_id.clone();
        let previous = operation.previous_cluster_ids.clone();
        match &operation.request {
            Some(Request::CreateMachine(_)) => {
                let class = self.class_of(operation);
                let mut facts = self.facts.lock();
                let list = (cluster_id.clone(), class.name.clone());
                facts.lists.insert(list, machine::list(&class, &cluster_id));
                let adopt_by_name = operation.adopt_by_name;
                let known = (uid.clone(), class.name.clone());
                let user_data = None;
                let machine =
                    Machine { name, uid, cluster_id, class, user_data, adopt_by_name, previous };
                facts.made.insert(known, machine);
            }
            Some(Request::CreatePool(_)) => {
                let class = self.class_of(operation);
                let known = (uid.clone(), class.name.clone());
                let pool = Pool::new(name, &cluster_id, &class);
                let mut facts = self.facts.lock();
                // A pool of another cluster keeps its own id, which its group has.
                if !previous.is_empty() || !facts.pools.contains_key(&known) {
                    facts.pools.insert(known, Pool { uid, previous, ..pool });
                }
            }
            _ => {}
        }
    }

    /// Of a driver that tells no UIDs, the names tell whose the records are.
    pub(crate) fn identify(&self, session: &Session, answer: &mut Answer) {
        if by_name::declared(&session.hello) {
            answer.by_name = true;
            let facts = self.facts.lock();
            let of_name = |name: &str| facts.made.values().find(|it| it.name == name);
            by_name::identify(answer, |name| of_name(name).map(|it| it.uid.clone()));
        }
    }

    /// Whether a listed instance is any of the suite's business. One that machine-controller-manager
    /// made, and that has the tags of the class, belongs to the user who gave the class.
    pub(crate) fn counts(&self, record: &MachineRecord) -> bool {
        let own = record.machine_name.starts_with(&self.options().name_prefix);
        own || !record.machine_uid.is_empty()
    }

    /// What looks into the cloud.
    pub(crate) fn probe(&self) -> Outcome<Probe> {
        let command = self.options().probe_cmd.clone();
        let command = command.ok_or_else(|| skipped("--probe-cmd is not given"))?;
        Ok(Probe::new("--probe-cmd", command, self.scaled(Duration::from_secs(20))))
    }

    /// The suite between driver and cloud.
    pub(crate) fn cloud(&self) -> Outcome<Arc<Cloud>> {
        self.harness.setup.cloud.clone().ok_or_else(|| skipped("--cloud is not given"))
    }

    /// Takes the cloud away after so many changes more; `None` brings it back.
    pub(crate) async fn break_cloud(&self, after: Option<u32>) -> Outcome {
        let how = match after {
            None => "off".to_owned(),
            Some(0) => "on".to_owned(),
            Some(changes) => format!("after {changes}"),
        };
        if let Some(cloud) = self.harness.setup.cloud.as_ref().filter(|it| it.is_between()) {
            cloud.goes_away(after);
            self.facts.lock().away = after.is_some();
            self.step(format_args!("between driver and cloud: break {how}"));
            return Ok(());
        }
        let probe = self.probe()?;
        if after.is_some() {
            // Also if the check is given up while the command runs.
            self.facts.lock().away = true;
        }
        let done = probe.break_cloud(&how).await;
        if done.is_ok() != after.is_some() {
            self.facts.lock().away = false;
        }
        done?;
        self.step(format_args!("--probe-cmd break {how}"));
        Ok(())
    }

    /// Brings the cloud back, if the check took it away; why that did not work.
    pub(crate) async fn repair(&self) -> Option<String> {
        if !self.facts.lock().away {
            return None;
        }
        match self.break_cloud(None).await {
            Ok(()) => None,
            Err(
                NotPassed::Failed(Failure { came: why, .. })
                | NotPassed::Skipped(why)
                | NotPassed::NotOffered(why),
            ) => Some(format!("the cloud is still away: {why}")),
        }
    }

    // The end.

    /// How long all deletions together may take.
    pub(crate) fn clean_up_limit(&self) -> Duration {
        let count = u32::try_from(self.undeleted().len()).unwrap_or(u32::MAX);
        self.scaled(CLEAN_UP + EACH * count)
    }

    /// Names everything that the check may have made and that is not known to be gone.
    pub(crate) fn undeleted(&self) -> Vec<String> {
        let facts = self.facts.lock();
        let machines = facts.made.iter().map(|(key, it)| (key, &it.name));
        let all = machines.chain(facts.pools.iter().map(|(key, it)| (key, &it.name)));
        let left = all.filter(|(key, _)| !facts.deleted.contains(*key));
        left.map(|(_, name)| format!("{name} was not deleted")).collect()
    }

    /// The UIDs of all machines that the check may have made something for.
    pub(crate) fn made(&self) -> Vec<String> {
        self.facts.lock().made.keys().map(|(uid, _)| uid.clone()).collect()
    }

    /// Deletes everything that the check may have made; what is left all the same.
    pub(crate) async fn clean_up(&self) -> Vec<String> {
        if self.undeleted().is_empty() {
            return Vec::new();
        }
        self.harness.proxy.heal();
        self.harness.proxy.refuse(false);
        let (began, marks) = (Instant::now(), &self.harness.setup.marks);
        // A driver that cannot delete says so in each check: the next ones wait no longer for the same.
        let until = began + self.clean_up_limit().saturating_sub(marks.undeleted());
        let mut tried = 0;
        loop {
            // What a check gave up may run on for a while, and no deletion begins beside it.
            let pause = (CLEAN_UP_PAUSE * tried).min(CLEAN_UP_LONGEST_PAUSE);
            tokio::time::sleep(self.scaled(pause)).await;
            tried += 1;
            let left = match self.try_clean_up().await {
                Ok(left) if left.is_empty() && self.undeleted().is_empty() => return left,
                Ok(left) => left,
                Err(NotPassed::Failed(Failure { expected, came })) => {
                    vec![format!("expected {expected}, came {came}")]
                }
                Err(NotPassed::Skipped(reason) | NotPassed::NotOffered(reason)) => vec![reason],
            };
            if Instant::now() >= until {
                marks.not_deleted_for(began.elapsed());
                return left.into_iter().chain(self.undeleted()).collect();
            }
            if self.harness.core().current().is_none() {
                self.harness.forget_process();
            }
        }
    }

    /// Deletes once each thing that is not known to be gone. Returns which instances are there all the same.
    async fn try_clean_up(&self) -> Outcome<Vec<String>> {
        let driver = self.connect().await?;
        let (deletions, lists) = {
            let facts = self.facts.lock();
            let machines = facts.made.iter().map(|(key, it)| (key.clone(), it.delete("")));
            let pools = facts.pools.iter().map(|(key, it)| (key.clone(), it.delete("")));
            let all = pools.chain(machines).filter(|(key, _)| !facts.deleted.contains(key));
            (all.collect::<Vec<_>>(), facts.lists.clone())
        };
        let lanes = driver.session.hello.max_in_flight.clamp(1, DELETES);
        for some in deletions.chunks(usize::try_from(lanes).unwrap_or(1)) {
            let asked: Vec<_> = some
                .iter()
                .map(|(_, operation)| driver.start(operation.clone()))
                .collect::<Outcome<_>>()?;
            for (asked, (key, _)) in asked.into_iter().zip(some) {
                if asked.answer().await?.result().is_ok() {
                    self.facts.lock().deleted.insert(key.clone());
                }
            }
        }
        let (mut left, made) = (BTreeSet::new(), self.made());
        for list in lists.into_values() {
            let listed = driver.ask(list).await?;
            let parts = listed.parts()?.into_iter().filter(|it| made.contains(&it.machine_uid));
            left.extend(parts.map(|it| format!("{} {} of {}", it.kind, it.id, it.machine_name)));
            let records = listed.machines()?;
            let records = records.into_iter().filter(|record| self.counts(record));
            left.extend(records.map(|it| format!("{} {}", it.machine_name, it.provider_id)));
        }
        Ok(left.into_iter().collect())
    }
}

/// User data of a machine, with its mark.
pub(crate) fn user_data_of(uid: &str) -> Vec<u8> {
    format!("#cloud-config\n# {}\n", user_data_mark(uid)).into_bytes()
}

/// Stands in the user data of a machine and must be seen nowhere else.
pub(crate) fn user_data_mark(uid: &str) -> String {
    format!("ostler-canary-{}", uid.replace('-', ""))
}
