//! The content of the page, and the difference to the last content. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use ostler_api::{Machine, MachineDeployment, MachinePool, MachineReserve, MachineSet};
use ostler_lifecycle::deployment::fenceposts;
use ostler_lifecycle::pool;
use ostler_proto::v1alpha1::{OrphanInfo, SessionInfo};
use serde::Serialize;

use super::Source;
use super::rows::{Row, Rows};
use crate::drivers::{Known, show};
use crate::groups::Group;
use crate::serving::Leases;
use crate::status::{phase, unanswered};
use crate::table::Table;
use crate::terminal;
use crate::waits::{self, Waits};
use crate::watched::Seen;

/// Orphans that are shown; more are counted.
const MOST_ORPHANS: usize = 20;

/// The objects of a cluster.
#[derive(Default)]
pub(super) struct Objects {
    pub(super) deployments: Seen<MachineDeployment>,
    pub(super) sets: Seen<MachineSet>,
    pub(super) pools: Seen<MachinePool>,
    pub(super) reserves: Seen<MachineReserve>,
    pub(super) machines: Seen<Machine>,
}

/// What cannot be watched.
#[derive(Debug)]
pub(super) struct Around {
    /// The version of the API server, or what is wrong with it.
    pub(super) api: Result<String, String>,
    pub(super) leases: Leases,
    /// What the core knows, or why it cannot be asked.
    pub(super) known: Result<Known, String>,
}

/// A cluster at a time.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    head: Head,
    machines: BTreeMap<String, Arc<Row>>,
}

impl Snapshot {
    /// Before anything was read.
    pub(super) fn unread() -> Self {
        Self { head: Head { reading: true, ..Head::default() }, ..Self::default() }
    }
}

/// Everything but the machines, of which there are many.
#[derive(Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    cluster: String,
    namespace: Option<String>,
    /// Not everything was read yet.
    reading: bool,
    /// Kinds that cannot be read, and why.
    lacks: Vec<String>,
    /// Absent: not asked yet.
    api: Option<Result<String, String>>,
    cores: Vec<String>,
    /// That no core serves a namespace that has something.
    unserved: Vec<String>,
    phases: BTreeMap<String, usize>,
    waits: Vec<Waits>,
    fleet: Vec<Fleet>,
    /// Absent: not asked yet.
    drivers: Option<Result<Vec<Driver>, String>>,
    /// The operations that drivers were sent longest ago.
    unanswered: Vec<String>,
    orphans: Option<Result<Orphans, String>>,
}

/// A deployment, pool or reserve, or a set that nothing controls.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Fleet {
    #[serde(flatten)]
    group: Group,
    /// All machines of the group, and its machines that are not up to date.
    all: i32,
    old: i32,
    /// The limits of a rollout: how many machines there may be, and how many available ones there are to be.
    most: Option<i32>,
    least: Option<i32>,
    about: String,
}

/// A driver that is connected.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Driver {
    provider: String,
    readiness: String,
    role: String,
    in_flight: u32,
    credit: u32,
    queued: u32,
    heartbeat: String,
    program: String,
    session: String,
}

/// Instances that nothing stands for.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Orphans {
    number: usize,
    /// Why none is deleted.
    held: Option<String>,
    table: Table,
}

impl Objects {
    /// Everything as it is now.
    pub(super) fn snapshot(
        &self,
        source: &Source,
        around: Option<&Around>,
        rows: &mut Rows,
        now: Timestamp,
    ) -> Snapshot {
        let machines = || self.machines.so_far();
        let mut phases = BTreeMap::new();
        for machine in machines() {
            *phases.entry(phase(machine)).or_default() += 1;
        }
        let mut waits = waits::grouped(machines());
        for it in &mut waits {
            it.message = it.message.as_deref().map(terminal::line);
        }
        let known = around.map(|it| it.known.as_ref());
        let head = Head {
            cluster: source.cluster.clone(),
            namespace: source.namespace.clone(),
            reading: self.is_reading(),
            lacks: self.lacks(),
            api: around.map(|it| it.api.clone()),
            cores: around
                .map(|it| it.leases.cores(now).iter().map(ToString::to_string).collect())
                .unwrap_or_default(),
            unserved: around.map(|it| self.unserved(&it.leases, now)).unwrap_or_default(),
            phases,
            waits,
            fleet: self.fleet(),
            drivers: known.map(|it| it.map(drivers).map_err(Clone::clone)),
            unanswered: known
                .and_then(Result::ok)
                .map(|it| unanswered(&it.operations.operations))
                .unwrap_or_default(),
            orphans: known.and_then(Result::ok).map(orphans),
        };
        Snapshot { head, machines: rows.of(machines()) }
    }

    fn is_reading(&self) -> bool {
        self.deployments.is_reading()
            || self.sets.is_reading()
            || self.pools.is_reading()
            || self.reserves.is_reading()
            || self.machines.is_reading()
    }

    fn lacks(&self) -> Vec<String> {
        let all = [
            self.machines.lack(),
            self.deployments.lack(),
            self.sets.lack(),
            self.pools.lack(),
            self.reserves.lack(),
        ];
        all.into_iter().flatten().map(terminal::line).collect()
    }

    fn unserved(&self, leases: &Leases, now: Timestamp) -> Vec<String> {
        let namespaces = self.machines.objects.keys().chain(self.deployments.objects.keys());
        let namespaces =
            namespaces.chain(self.sets.objects.keys()).chain(self.pools.objects.keys());
        let namespaces: BTreeSet<_> =
            namespaces.chain(self.reserves.objects.keys()).map(|key| &key.0).collect();
        namespaces.into_iter().filter_map(|it| leases.unserved(it, now)).collect()
    }

    /// Groups that are not as wanted come first.
    fn fleet(&self) -> Vec<Fleet> {
        let deployments = self.deployments.objects.values().map(Fleet::of_deployment);
        let sets = self.sets.objects.values().filter_map(Fleet::of_set);
        let pools = self.pools.objects.values().map(Fleet::of_pool);
        let reserves = self.reserves.objects.values().map(Fleet::of_reserve);
        let mut all: Vec<_> = deployments.chain(sets).chain(pools).chain(reserves).collect();
        all.sort_by_key(|it| it.group.is_complete());
        all
    }
}

impl Fleet {
    fn new(mut group: Group, all: i32, about: String) -> Self {
        group.progress = terminal::line(&group.progress);
        let old = all.saturating_sub(group.up_to_date).max(0);
        Self { group, all, old, most: None, least: None, about }
    }

    /// With the limits of its rollout.
    fn within(mut self, surge: i32, unavailable: i32) -> Self {
        let wanted = self.group.wanted;
        self.most = wanted.map(|it| it.saturating_add(surge));
        self.least = wanted.map(|it| it.saturating_sub(unavailable).max(0));
        self
    }

    fn of_deployment(one: &MachineDeployment) -> Self {
        let all = one.status.as_ref().map_or(0, |it| it.replicas);
        let strategy =
            one.spec.strategy.type_.as_ref().map(ToString::to_string).unwrap_or_default();
        let limits = fenceposts::of(&one.spec);
        Self::new(Group::of_deployment(one), all, strategy).within(limits.surge, limits.unavailable)
    }

    fn of_set(one: &MachineSet) -> Option<Self> {
        let all = one.status.as_ref().map_or(0, |it| it.replicas);
        Some(Self::new(Group::of_set(one)?, all, String::new()))
    }

    fn of_pool(one: &MachinePool) -> Self {
        let status = one.status.clone().unwrap_or_default();
        let size =
            status.observed.map(|it| format!("group: {} of {} instances", it.current, it.desired));
        let fleet = Self::new(Group::of_pool(one), status.replicas, size.unwrap_or_default());
        let number = |it: usize| i32::try_from(it).unwrap_or(i32::MAX);
        match pool::budget(one) {
            Some(limits) => fleet.within(number(limits.surge), number(limits.unavailable)),
            None => fleet,
        }
    }

    fn of_reserve(one: &MachineReserve) -> Self {
        let status = one.status.clone().unwrap_or_default();
        let asked = match &one.spec.replicas {
            Some(IntOrString::Int(number)) => number.to_string(),
            Some(IntOrString::String(text)) => text.clone(),
            None => "0".to_owned(),
        };
        let target = &one.spec.target_ref;
        let about = format!(
            "{asked} for {} {}; {} given",
            target.kind.to_lowercase(),
            target.name,
            status.given
        );
        Self::new(Group::of_reserve(one), status.replicas, terminal::line(&about))
    }
}

fn drivers(known: &Known) -> Vec<Driver> {
    let driver = |it: &SessionInfo| Driver {
        provider: terminal::line(&it.provider),
        readiness: show::readiness(it).to_owned(),
        role: show::role(it.role()).to_owned(),
        in_flight: it.in_flight,
        credit: it.credit,
        queued: it.queued,
        heartbeat: show::age(it.heartbeat_age),
        program: terminal::line(format!("{} {}", it.driver_name, it.driver_version).trim()),
        session: it.session_id.clone(),
    };
    known.sessions.sessions.iter().map(driver).collect()
}

fn orphans(known: &Known) -> Result<Orphans, String> {
    let found = known.orphans.as_ref().map_err(Clone::clone)?;
    let shown: Vec<OrphanInfo> = found.orphans.iter().take(MOST_ORPHANS).cloned().collect();
    let mut table = show::orphans(&shown);
    table.rows.iter_mut().flatten().for_each(|cell| *cell = terminal::line(cell));
    let left_out = usize::try_from(found.left_out).unwrap_or(usize::MAX);
    let number = found.orphans.len().saturating_add(left_out);
    Ok(Orphans { number, held: found.hold.as_ref().map(|it| terminal::line(&it.reason)), table })
}

/// What a page is told.
#[derive(Serialize)]
struct Update<'a> {
    /// By the clock of this computer.
    now: i64,
    /// Machines that are not in it are gone.
    all: bool,
    head: Option<&'a Head>,
    machines: BTreeMap<&'a str, &'a Row>,
    gone: Vec<&'a str>,
}

/// What a page that knows `before` has to be told, as one event of a stream; `None`: nothing.
pub(super) fn update(before: Option<&Snapshot>, after: &Snapshot) -> Option<String> {
    let known = |key: &String| before.and_then(|it| it.machines.get(key));
    let is_new = |key: &String, row: &Arc<Row>| {
        known(key).is_none_or(|old| !Arc::ptr_eq(old, row) && old != row)
    };
    let machines: BTreeMap<_, _> = after
        .machines
        .iter()
        .filter(|(key, row)| is_new(key, row))
        .map(|(key, row)| (key.as_str(), &**row))
        .collect();
    let before_keys = before.iter().flat_map(|it| it.machines.keys());
    let gone: Vec<_> =
        before_keys.filter(|key| !after.machines.contains_key(*key)).map(String::as_str).collect();
    let head = Some(&after.head).filter(|head| before.is_none_or(|it| it.head != **head));
    if head.is_none() && machines.is_empty() && gone.is_empty() {
        return None;
    }
    let now = Timestamp::now().as_millisecond();
    let text = serde_json::to_string(&Update { now, all: before.is_none(), head, machines, gone });
    text.ok().map(|text| format!("data: {text}\n\n"))
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use ostler_dial::cluster;
    use ostler_proto::v1alpha1::{
        ListOperationsResponse, ListOrphansResponse, ListSessionsResponse,
    };
    use serde_json::{Value, json};

    use super::*;
    use crate::drivers::AdminArgs;
    use crate::terminal::tests::{HOSTILE, assert_harmless};

    fn source() -> Source {
        let config = kube::Config::new(http::Uri::from_static("http://127.0.0.1:1/"));
        let (client, cluster) = (cluster::client(config).unwrap(), "test".to_owned());
        Source { client, cluster, namespace: None, admin: AdminArgs::default(), home: None }
    }

    fn object<K: serde::de::DeserializeOwned>(
        kind: &str,
        name: &str,
        spec: &Value,
        status: &Value,
    ) -> K {
        let group = if ["MachinePool", "MachineReserve"].contains(&kind) {
            "ostler.dev"
        } else {
            "machine.sapcloud.io"
        };
        let metadata = json!({ "name": name, "namespace": "default", "generation": 1, "resourceVersion": status.to_string() });
        let object = json!({ "apiVersion": format!("{group}/v1alpha1"), "kind": kind, "metadata": metadata, "spec": spec, "status": status });
        serde_json::from_value(object).unwrap()
    }

    fn waiting(name: &str, message: &str) -> Machine {
        object(
            "Machine",
            name,
            &json!({}),
            &json!({ "waitingFor": { "reason": "CapacityExhausted", "message": message } }),
        )
    }

    fn objects() -> Objects {
        let mut all = Objects::default();
        let numbers = json!({
            "observedGeneration": 1, "replicas": 12, "updatedReplicas": 5, "readyReplicas": 9, "availableReplicas": 9
        });
        let rolling = json!({ "maxSurge": "20%", "maxUnavailable": 1 });
        let strategy = json!({ "type": "RollingUpdate", "rollingUpdate": rolling });
        let spec = json!({ "replicas": 10, "strategy": strategy });
        all.deployments.take(Ok(Event::Apply(object("MachineDeployment", "web", &spec, &numbers))));
        let status = json!({
            "observedGeneration": 1, "replicas": 3, "readyReplicas": 3, "availableReplicas": 3, "upToDateReplicas": 3,
            "observed": { "desired": 3, "current": 4 }
        });
        let spec = json!({ "replicas": 3, "template": {}, "strategy": { "rollingUpdate": { "maxSurge": 2 } } });
        all.pools.take(Ok(Event::Apply(object("MachinePool", "gpu", &spec, &status))));
        let spec = json!({ "targetRef": { "kind": "MachineDeployment", "name": "web" }, "replicas": "20%" });
        let status = json!({ "observedGeneration": 1, "replicas": 2, "readyReplicas": 1, "updatedReplicas": 2, "given": 7 });
        all.reserves.take(Ok(Event::Apply(object("MachineReserve", "warm", &spec, &status))));
        for name in ["a", "b"] {
            all.machines.take(Ok(Event::Apply(waiting(name, "no quota"))));
        }
        all
    }

    fn known(orphans: Result<ListOrphansResponse, String>) -> Known {
        let session = SessionInfo {
            provider: "fake.ostler.dev".to_owned(),
            credit: 64,
            in_flight: 2,
            queued: 7,
            ..Default::default()
        };
        let sessions = ListSessionsResponse { sessions: vec![session], ..Default::default() };
        Known { sessions, operations: ListOperationsResponse::default(), orphans }
    }

    fn around(known: Result<Known, String>) -> Around {
        Around { api: Ok("v1.33.0".to_owned()), leases: Leases::of(Vec::new()), known }
    }

    fn head(objects: &Objects, around: Option<&Around>) -> Value {
        let snapshot = objects.snapshot(&source(), around, &mut Rows::default(), Timestamp::now());
        serde_json::to_value(snapshot.head).unwrap()
    }

    #[tokio::test]
    async fn the_head_has_what_is_known_and_says_what_is_not() {
        let objects = objects();
        let orphan = OrphanInfo { machine_name: HOSTILE.to_owned(), ..Default::default() };
        let orphans =
            ListOrphansResponse { orphans: vec![orphan; 25], left_out: 100, ..Default::default() };
        let told = head(&objects, Some(&around(Ok(known(Ok(orphans))))));
        for (path, expected) in [
            ("/phases/Pending", json!(2)),
            ("/waits/0/reason", json!("CapacityExhausted")),
            ("/waits/0/machines", json!(2)),
            ("/waits/0/hint", json!("raise the quota, or wait for capacity")),
            // Those that are not as wanted come first.
            ("/fleet/0/name", json!("web")),
            ("/fleet/0/progress", json!("5 of 10 machines are replaced")),
            ("/fleet/0/old", json!(7)),
            ("/fleet/0/most", json!(12)),
            ("/fleet/0/least", json!(9)),
            ("/fleet/0/about", json!("RollingUpdate")),
            ("/fleet/1/name", json!("gpu")),
            ("/fleet/1/most", json!(5)),
            ("/fleet/1/about", json!("group: 4 of 3 instances")),
            ("/fleet/2/kind", json!("machinereserve")),
            ("/fleet/2/wanted", json!(null)),
            ("/fleet/2/about", json!("20% for machinedeployment web; 7 given")),
            ("/drivers/Ok/0/queued", json!(7)),
            ("/orphans/Ok/number", json!(125)),
            (
                "/unserved/0",
                json!(
                    "no core serves namespace default; start `ostler-server --namespace default`"
                ),
            ),
            ("/api/Ok", json!("v1.33.0")),
        ] {
            assert_eq!(told.pointer(path), Some(&expected), "{path}: {told:#}");
        }
        assert_eq!(
            told["orphans"]["Ok"]["table"]["rows"].as_array().map(Vec::len),
            Some(MOST_ORPHANS)
        );
        assert_harmless(&told["orphans"]["Ok"]["table"].to_string());
        let silent = head(&objects, Some(&around(Err("no core listens".to_owned()))));
        assert_eq!(silent["drivers"], json!({ "Err": "no core listens" }));
        assert_eq!(silent["orphans"], Value::Null);
        let early = head(&Objects::default(), None);
        assert_eq!((&early["reading"], &early["drivers"]), (&json!(true), &Value::Null));
    }

    #[tokio::test]
    async fn a_page_is_told_what_is_new_and_nothing_else() {
        let (mut objects, mut rows, source, now) =
            (objects(), Rows::default(), source(), Timestamp::now());
        let mut snapshot = |objects: &Objects| objects.snapshot(&source, None, &mut rows, now);
        let first = snapshot(&objects);
        let same = snapshot(&objects);
        objects.machines.take(Ok(Event::Apply(waiting("a", "still none"))));
        objects.machines.take(Ok(Event::Delete(waiting("b", ""))));
        let changed = snapshot(&objects);
        let told = |before: Option<&Snapshot>, after: &Snapshot| -> Option<Value> {
            let update: String = update(before, after)?;
            serde_json::from_str(update.strip_prefix("data: ")?.strip_suffix("\n\n")?).ok()
        };
        let keys =
            |it: &Value| it["machines"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        let all = told(None, &first).unwrap();
        assert_eq!(
            (keys(&all), &all["all"]),
            (vec!["default/a".to_owned(), "default/b".to_owned()], &json!(true))
        );
        assert_eq!(told(Some(&first), &same), None);
        let new = told(Some(&first), &changed).unwrap();
        assert_eq!(
            (keys(&new), &new["gone"], &new["all"]),
            (vec!["default/a".to_owned()], &json!(["default/b"]), &json!(false))
        );
        assert_eq!(new["head"]["waits"][0]["machines"], json!(1));
    }

    #[tokio::test]
    async fn a_head_that_is_the_same_is_not_repeated() {
        let (mut objects, mut rows, source, now) =
            (Objects::default(), Rows::default(), source(), Timestamp::now());
        let running = |node: &str| {
            let status = json!({ "currentStatus": { "phase": "Running" }, "nodeName": node });
            object::<Machine>("Machine", "a", &json!({}), &status)
        };
        objects.machines.take(Ok(Event::Apply(running("one"))));
        let before = objects.snapshot(&source, None, &mut rows, now);
        objects.machines.take(Ok(Event::Apply(running("other"))));
        let after = objects.snapshot(&source, None, &mut rows, now);
        assert!(update(Some(&before), &after).unwrap().contains(r#""head":null"#));
    }
}
