//! The page. Pure, but for the question how the API server is.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::Client;
use ostler_api::Machine;
use ostler_api::machine::MachinePhase;
use ostler_proto::json;
use ostler_proto::v1alpha1::{OperationInfo, OperationState, SessionInfo};
use serde_json::{Value, json};

use crate::drivers::{Known, show};
use crate::groups::{self, Group, are_several};
use crate::output::merged;
use crate::serving::Serving;
use crate::table::{self, Table, span};
use crate::terminal;
use crate::waits::Waits;

/// Groups that are shown; more are counted. `-o json` has all.
const MOST_GROUPS: usize = 50;
/// Operations without an answer that are shown, and orphans.
const MOST: usize = 5;

/// What was read.
#[derive(Debug)]
pub(super) struct Report {
    /// The version of the API, and its health.
    pub(super) api: Result<String, String>,
    pub(super) cores: Vec<Serving>,
    /// Says of each namespace with objects that no core serves it.
    pub(super) unserved: Vec<String>,
    /// The core's knowledge, or why the core cannot be asked.
    pub(super) known: Result<Known, String>,
    pub(super) groups: Vec<Group>,
    pub(super) phases: BTreeMap<String, usize>,
    pub(super) waits: Vec<Waits>,
    pub(super) now: Timestamp,
}

/// The version of the API server, if it is ready.
pub(crate) async fn api_of(client: &Client) -> Result<String, String> {
    let version = client.apiserver_version().await.map_err(|error| error.to_string())?;
    let ready = http::Request::get("/readyz").body(Vec::new()).map_err(|it| it.to_string())?;
    match client.request_text(ready).await {
        Ok(_) => Ok(version.git_version),
        Err(error) => Err(format!("{} is not ready: {error}", version.git_version)),
    }
}

/// The phase of a machine, for people.
pub(crate) fn phase(machine: &Machine) -> String {
    let phase = if machine.is_deleting() { MachinePhase::Terminating } else { machine.phase() };
    phase.word().to_owned()
}

/// How many machines are in each phase.
pub(super) fn phases(machines: &[Machine]) -> BTreeMap<String, usize> {
    let mut phases = BTreeMap::new();
    for machine in machines {
        *phases.entry(phase(machine)).or_default() += 1;
    }
    phases
}

impl Report {
    /// For people.
    pub(super) fn page(&self) -> String {
        let mut blocks = vec![self.head()];
        if let Ok(known) = &self.known {
            blocks.extend(drivers(known));
        }
        if !self.groups.is_empty() {
            blocks.push(self.fleet());
        }
        if !self.waits.is_empty() {
            blocks.push(table::render(&self.waiting()));
        }
        blocks.join("\n\n")
    }

    fn head(&self) -> String {
        let mut lines = Vec::new();
        let mut line = |name: &str, value: &str| {
            lines.push(format!("{name:<13}{}", terminal::line(value)).trim_end().to_owned());
        };
        match &self.api {
            Ok(version) => line("API server", &format!("{version}, ready")),
            Err(why) => line("API server", why),
        }
        if self.cores.is_empty() {
            line("Core", "none is seen");
        }
        for (at, core) in self.cores.iter().enumerate() {
            line(if at == 0 { "Core" } else { "" }, &core.to_string());
        }
        self.unserved.iter().for_each(|why| line("", why));
        match &self.known {
            Ok(known) if known.sessions.sessions.is_empty() => line("Drivers", "none is connected"),
            Ok(known) => line("Drivers", &format!("{} connected", known.sessions.sessions.len())),
            Err(why) => line("Drivers", &format!("not known: {why}")),
        }
        let all: usize = self.phases.values().sum();
        let phases: Vec<_> = self.phases.iter().map(|(phase, n)| format!("{n} {phase}")).collect();
        let phases = if all == 0 { String::new() } else { format!(": {}", phases.join(", ")) };
        line("Machines", &format!("{all}{phases}"));
        let waiting: usize = self.waits.iter().map(|it| it.machines).sum();
        line("Waiting", &waiting.to_string());
        if let Ok(known) = &self.known {
            line("Orphans", &orphans(known));
        }
        lines.join("\n")
    }

    fn fleet(&self) -> String {
        let (shown, surplus) = groups::table(self.groups.clone(), MOST_GROUPS);
        let more = (surplus > 0).then(|| format!("\n… and {surplus} more"));
        table::fit(shown, usize::MAX, &[]) + &more.unwrap_or_default()
    }

    fn waiting(&self) -> Table {
        let several = are_several(self.waits.iter().map(|it| it.namespace.as_str()));
        let row = |it: &Waits| {
            let oldest = &it.oldest;
            vec![
                it.reason.clone(),
                it.machines.to_string(),
                if several { format!("{}/{oldest}", it.namespace) } else { oldest.clone() },
                it.since.map(|at| span(self.now.duration_since(at))).unwrap_or_default(),
                it.message.clone().unwrap_or_default(),
            ]
        };
        let heading = vec!["WAITS FOR", "MACHINES", "OLDEST", "FOR", "MESSAGE"];
        Table { heading, rows: self.waits.iter().map(row).collect() }
    }

    /// For scripts.
    pub(super) fn data(&self) -> Value {
        let drivers = match &self.known {
            Ok(known) => json!({
                "drivers": json::to_json(&known.sessions).get("sessions"),
                "operations": json::to_json(&known.operations).get("operations"),
                "orphans": match &known.orphans {
                    Ok(orphans) => json::to_json(orphans),
                    Err(why) => json!({ "error": why }),
                },
            }),
            Err(why) => json!({ "drivers": { "error": why } }),
        };
        let data = json!({
            "apiServer": match &self.api {
                Ok(version) => json!({ "version": version, "ready": true }),
                Err(why) => json!({ "ready": false, "message": why }),
            },
            "cores": self.cores, "unserved": self.unserved, "machines": self.phases,
            "groups": self.groups, "waits": self.waits
        });
        merged(data, drivers)
    }
}

/// A table of the drivers, and what they were asked and have not answered.
fn drivers(known: &Known) -> Vec<String> {
    let sessions = &known.sessions.sessions;
    if sessions.is_empty() {
        return Vec::new();
    }
    let row = |it: &SessionInfo| {
        vec![
            it.provider.clone(),
            show::readiness(it).to_owned(),
            format!("{}/{}", it.in_flight, it.credit),
            it.queued.to_string(),
            show::age(it.heartbeat_age),
            format!("{} {}", it.driver_name, it.driver_version).trim().to_owned(),
        ]
    };
    let heading = vec!["PROVIDER", "READINESS", "BUSY", "QUEUED", "HEARTBEAT", "DRIVER"];
    let mut text = table::render(&Table { heading, rows: sessions.iter().map(row).collect() });
    for line in unanswered(&known.operations.operations) {
        text.push('\n');
        text.push_str(&terminal::line(&line));
    }
    vec![text]
}

/// The operations that a driver was sent longest ago.
pub(crate) fn unanswered(operations: &[OperationInfo]) -> Vec<String> {
    let sent = |it: &&OperationInfo| {
        matches!(it.state(), OperationState::Sent | OperationState::Accepted | OperationState::Away)
    };
    let age = |it: &OperationInfo| it.age.map(|age| (age.seconds, age.nanos));
    let mut sent: Vec<_> = operations.iter().filter(sent).collect();
    sent.sort_by_key(|it| std::cmp::Reverse(age(it)));
    let line = |it: &&OperationInfo| {
        let target = it.target.as_ref().map(show::target).unwrap_or_default();
        let kind = show::kind(it.kind());
        format!("waits for {}: {kind} of {target}, sent {} ago", it.provider, show::age(it.age))
    };
    let left = sent.len().saturating_sub(MOST);
    let more = (left > 0).then(|| format!("… and {left} more"));
    sent.iter().take(MOST).map(line).chain(more).collect()
}

fn orphans(known: &Known) -> String {
    let found = match &known.orphans {
        Ok(found) => found,
        Err(why) => return format!("not known: {why}"),
    };
    let all = found.orphans.len() + usize::try_from(found.left_out).unwrap_or(usize::MAX);
    let names: Vec<_> =
        found.orphans.iter().take(MOST).map(|it| it.machine_name.as_str()).collect();
    let shown = match (all, names.len()) {
        (0, _) => "none".to_owned(),
        (all, few) if few < all => format!("{all}: {} and {} more", names.join(", "), all - few),
        (all, _) => format!("{all}: {}", names.join(", ")),
    };
    let held = found.hold.as_ref().map(|it| format!("; only reported: {}", it.reason));
    let see = if all == 0 { "" } else { "; see `ostler drivers orphans`" };
    format!("{shown}{}{see}", held.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use ostler_proto::v1alpha1::{
        ListOperationsResponse, ListOrphansResponse, ListSessionsResponse, OperationKind,
        OrphanInfo, Readiness, Target,
    };

    use super::*;

    const fn seconds(seconds: i64) -> prost_types::Duration {
        prost_types::Duration { seconds, nanos: 0 }
    }

    fn known() -> Known {
        let session = SessionInfo {
            provider: "fake.ostler.dev".to_owned(),
            readiness: Readiness::Ready.into(),
            in_flight: 2,
            credit: 64,
            heartbeat_age: Some(seconds(12)),
            driver_name: "fake".to_owned(),
            driver_version: "0.1.0".to_owned(),
            ..SessionInfo::default()
        };
        let operation = OperationInfo {
            kind: OperationKind::GetMachineStatus.into(),
            target: Some(Target { name: "web-1".to_owned(), ..Target::default() }),
            provider: "fake.ostler.dev".to_owned(),
            state: OperationState::Sent.into(),
            age: Some(seconds(12)),
            ..OperationInfo::default()
        };
        let orphan = OrphanInfo { machine_name: "lost".to_owned(), ..OrphanInfo::default() };
        Known {
            sessions: ListSessionsResponse { sessions: vec![session], ..Default::default() },
            operations: ListOperationsResponse {
                operations: vec![operation],
                ..Default::default()
            },
            orphans: Ok(ListOrphansResponse { orphans: vec![orphan], ..Default::default() }),
        }
    }

    fn report(known: Result<Known, String>) -> Report {
        let pool = serde_json::from_value(json!({
            "apiVersion": "ostler.dev/v1alpha1", "kind": "MachinePool",
            "metadata": { "name": "p", "namespace": "default", "generation": 1 },
            "spec": { "replicas": 2, "template": {} },
            "status": { "observedGeneration": 1, "replicas": 1, "readyReplicas": 1 }
        }));
        let now = "2026-01-01T12:00:00Z".parse().unwrap();
        let wait = Waits {
            reason: "CapacityExhausted".to_owned(),
            machines: 51,
            oldest: "web-7".to_owned(),
            namespace: "default".to_owned(),
            since: Some("2026-01-01T11:57:00Z".parse().unwrap()),
            message: Some("vCPU quota 9 of 9".to_owned()),
            hint: None,
        };
        Report {
            api: Ok("v1.33.0".to_owned()),
            cores: Vec::new(),
            unserved: vec!["no core serves namespace shop".to_owned()],
            known,
            groups: vec![Group::of_pool(&pool.unwrap())],
            phases: [("Running".to_owned(), 9), ("Pending".to_owned(), 51)].into(),
            waits: vec![wait],
            now,
        }
    }

    #[test]
    fn a_cluster_is_one_page() {
        insta::assert_snapshot!(report(Ok(known())).page(), @r"
        API server   v1.33.0, ready
        Core         none is seen
                     no core serves namespace shop
        Drivers      1 connected
        Machines     60: 51 Pending, 9 Running
        Waiting      51
        Orphans      1: lost; see `ostler drivers orphans`

        PROVIDER          READINESS   BUSY   QUEUED   HEARTBEAT   DRIVER
        fake.ostler.dev   ready       2/64   0        12s         fake 0.1.0
        waits for fake.ostler.dev: getMachineStatus of web-1, sent 12s ago

        NAME            PROGRESS                  WANTED   UP-TO-DATE   READY   AVAILABLE
        machinepool/p   1 of 2 machines running   2        0            1       0

        WAITS FOR           MACHINES   OLDEST   FOR    MESSAGE
        CapacityExhausted   51         web-7    3m0s   vCPU quota 9 of 9
        ");
        let page = report(Err("no core listens".to_owned())).page();
        assert!(page.contains("Drivers      not known: no core listens"), "{page}");
        assert!(!page.contains("Orphans"), "{page}");
    }

    #[test]
    fn a_script_gets_all_of_it() {
        let data = report(Ok(known())).data();
        for (path, expected) in [
            ("/machines/Pending", json!(51)),
            ("/waits/0/oldest", json!("web-7")),
            ("/groups/0/kind", json!("machinepool")),
            ("/drivers/0/provider", json!("fake.ostler.dev")),
            ("/orphans/orphans/0/machineName", json!("lost")),
        ] {
            assert_eq!(data.pointer(path), Some(&expected), "{path}: {data:#}");
        }
    }
}
