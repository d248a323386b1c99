//! Answers of the core in words.

use std::time::Duration;

use ostler_proto::v1alpha1::{
    OperationInfo, OperationKind, OperationState, OrphanFate, OrphanInfo, Readiness, RoleKind,
    SessionInfo, Target,
};

use crate::table::Table;

/// One line for each session.
pub(super) fn sessions(sessions: &[SessionInfo]) -> Table {
    let row = |it: &SessionInfo| {
        vec![
            it.provider.clone(),
            role(it.role()).to_owned(),
            readiness(it).to_owned(),
            format!("{}/{}", it.in_flight, it.credit),
            it.queued.to_string(),
            age(it.age),
            age(it.heartbeat_age),
            format!("{} {}", it.driver_name, it.driver_version).trim().to_owned(),
            it.instance_name.clone(),
            it.peer.clone(),
            it.session_id.clone(),
        ]
    };
    Table {
        heading: vec![
            "PROVIDER",
            "ROLE",
            "READINESS",
            "BUSY",
            "QUEUED",
            "AGE",
            "HEARTBEAT",
            "DRIVER",
            "INSTANCE",
            "PEER",
            "SESSION",
        ],
        rows: sessions.iter().map(row).collect(),
    }
}

/// One line for each operation.
pub(super) fn operations(operations: &[OperationInfo]) -> Table {
    let row = |it: &OperationInfo| {
        vec![
            kind(it.kind()),
            it.target.as_ref().map(target).unwrap_or_default(),
            state(it),
            age(it.age),
            age(it.timeout_left),
            it.delivery.to_string(),
            progress(it),
            it.provider.clone(),
            it.operation_id.clone(),
        ]
    };
    Table {
        heading: vec![
            "OPERATION",
            "TARGET",
            "STATE",
            "AGE",
            "LEFT",
            "SENT",
            "STAGE",
            "PROVIDER",
            "ID",
        ],
        rows: operations.iter().map(row).collect(),
    }
}

/// Before the name of a pool, in the place of the name of a machine.
const POOL: &str = "machinepool/";

/// Without an instance, the parts that are left.
fn ids_of(orphan: &OrphanInfo) -> &[String] {
    if orphan.provider_ids.is_empty() { &orphan.parts } else { &orphan.provider_ids }
}

/// One line for each orphan.
pub(crate) fn orphans(orphans: &[OrphanInfo]) -> Table {
    let row = |it: &OrphanInfo| {
        let pool = it.machine_name.strip_prefix(POOL);
        vec![
            it.provider.clone(),
            match pool {
                Some(_) => "group",
                None if it.provider_ids.is_empty() => "parts",
                None => "instance",
            }
            .to_owned(),
            ids_of(it).join(","),
            pool.unwrap_or(&it.machine_name).to_owned(),
            it.machine_uid.clone(),
            it.machine_class.clone(),
            age(it.known_for),
            fate(it),
        ]
    };
    Table {
        heading: vec!["PROVIDER", "KIND", "ID", "NAME", "UID", "CLASS", "KNOWN", "NEXT"],
        rows: orphans.iter().map(row).collect(),
    }
}

fn fate(orphan: &OrphanInfo) -> String {
    let fate = match orphan.fate() {
        OrphanFate::ToBeConfirmed => "looked at again",
        OrphanFate::Reported => "kept",
        OrphanFate::ToBeDeleted => "deleted",
        OrphanFate::Unspecified => "",
    };
    match orphan.failures {
        0 => fate.to_owned(),
        failures => format!("{fate}, {failures} failed"),
    }
}

/// The name of a Machine, such as `fake-1`, or its UID.
pub(crate) fn target(target: &Target) -> String {
    if target.name.is_empty() { target.uid.clone() } else { target.name.clone() }
}

pub(crate) fn role(role: RoleKind) -> &'static str {
    match role {
        RoleKind::Active => "active",
        RoleKind::Standby => "standby",
        RoleKind::Unspecified => "",
    }
}

pub(crate) fn readiness(session: &SessionInfo) -> &'static str {
    match session.readiness() {
        Readiness::Ready if session.paused.is_some() => "throttled",
        Readiness::Ready if session.slow => "slow",
        Readiness::Ready => "ready",
        Readiness::NotReady => "not-ready",
        Readiness::Draining => "draining",
        Readiness::Unspecified => "",
    }
}

/// `createMachine`, as `invoke` takes it.
pub(crate) fn kind(kind: OperationKind) -> String {
    let name = kind.as_str_name().trim_start_matches("OPERATION_KIND_").to_ascii_lowercase();
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| {
        let mut letters = word.chars();
        let initial = letters.next().map(|letter| letter.to_ascii_uppercase());
        name + &initial.into_iter().chain(letters).collect::<String>()
    })
}

fn state(operation: &OperationInfo) -> String {
    let state = match operation.state() {
        OperationState::Queued => "queued",
        OperationState::Sent => "sent",
        OperationState::Accepted => "accepted",
        OperationState::Away => "away",
        OperationState::Finished => "finished",
        OperationState::Unspecified => "",
    };
    let words = [(operation.cancelled, "cancelled"), (operation.stalled, "stalled")];
    let said = words.iter().filter(|(holds, _)| *holds);
    said.fold(state.to_owned(), |state, (_, word)| format!("{state},{word}"))
}

fn progress(operation: &OperationInfo) -> String {
    match operation.percent {
        0 => operation.stage.clone(),
        percent => format!("{} {percent}%", operation.stage).trim().to_owned(),
    }
}

/// As kubectl writes ages, e.g. `3m12s`.
pub(crate) fn age(age: Option<prost_types::Duration>) -> String {
    let Some(age) = age.and_then(|age| Duration::try_from(age).ok()) else { return String::new() };
    let seconds = age.as_secs();
    match seconds {
        0 if !age.is_zero() => format!("{}ms", age.as_millis()),
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m{}s", seconds / 60, seconds % 60),
        7200..172_800 => format!("{}h{}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d{}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use ostler_proto::json;
    use ostler_proto::v1alpha1::Operation;

    use super::*;
    use crate::table::render;

    fn seconds(seconds: i64) -> prost_types::Duration {
        prost_types::Duration { seconds, nanos: 0 }
    }

    #[test]
    fn a_session_is_one_line() {
        let session = SessionInfo {
            provider: "fake.ostler.dev".to_owned(),
            role: RoleKind::Active.into(),
            readiness: Readiness::Ready.into(),
            in_flight: 2,
            credit: 64,
            age: Some(seconds(200)),
            heartbeat_age: Some(seconds(4)),
            driver_name: "fake".to_owned(),
            driver_version: "0.1.0".to_owned(),
            session_id: "s-1".to_owned(),
            ..SessionInfo::default()
        };
        let expected = "\
PROVIDER          ROLE     READINESS   BUSY   QUEUED   AGE     HEARTBEAT   DRIVER       INSTANCE   PEER   SESSION
fake.ostler.dev   active   ready       2/64   0        3m20s   4s          fake 0.1.0   -          -      s-1";
        assert_eq!(render(&sessions(&[session])), expected);
    }

    #[test]
    fn an_operation_is_one_line() {
        let operation = OperationInfo {
            operation_id: "op-1".to_owned(),
            kind: OperationKind::CreateMachine.into(),
            target: Some(Target { name: "fake-1".to_owned(), ..Target::default() }),
            provider: "fake.ostler.dev".to_owned(),
            state: OperationState::Accepted.into(),
            age: Some(seconds(5)),
            timeout_left: Some(seconds(1195)),
            stage: "Boot".to_owned(),
            percent: 40,
            delivery: 1,
            cancelled: true,
            ..OperationInfo::default()
        };
        let expected = "\
OPERATION       TARGET   STATE                AGE   LEFT     SENT   STAGE      PROVIDER          ID
createMachine   fake-1   accepted,cancelled   5s    19m55s   1      Boot 40%   fake.ostler.dev   op-1";
        assert_eq!(render(&operations(&[operation])), expected);
    }

    #[test]
    fn an_orphan_is_one_line_and_says_whether_it_is_an_instance_or_a_group() {
        let instance = OrphanInfo {
            provider: "fake.ostler.dev".to_owned(),
            provider_ids: vec!["fake:///eu/i-1".to_owned()],
            machine_name: "b".to_owned(),
            machine_uid: "uid-b".to_owned(),
            machine_class: "small".to_owned(),
            known_for: Some(seconds(5)),
            fate: OrphanFate::Reported.into(),
            ..OrphanInfo::default()
        };
        let group = OrphanInfo {
            provider_ids: vec!["fake:///eu/g-1".to_owned()],
            machine_name: "machinepool/web".to_owned(),
            machine_uid: "uid-p".to_owned(),
            fate: OrphanFate::ToBeDeleted.into(),
            failures: 2,
            ..instance.clone()
        };
        let expected = "\
PROVIDER          KIND       ID               NAME   UID     CLASS   KNOWN   NEXT
fake.ostler.dev   instance   fake:///eu/i-1   b      uid-b   small   5s      kept
fake.ostler.dev   group      fake:///eu/g-1   web    uid-p   small   5s      deleted, 2 failed";
        assert_eq!(render(&orphans(&[instance, group])), expected);
    }

    #[test]
    fn every_operation_has_the_name_that_invoke_takes() {
        let arms = json::arms::<Operation>("request");
        let names: Vec<_> =
            (20..28).chain(30..37).map(|it| kind(OperationKind::try_from(it).unwrap())).collect();
        assert_eq!(names, arms);
    }

    #[test]
    fn ages_are_short() {
        let shown = [5, 119, 120, 7199, 7200, 172_800].map(|it| age(Some(seconds(it))));
        assert_eq!(shown, ["5s", "119s", "2m0s", "119m59s", "2h0m", "2d0h"]);
        let short = prost_types::Duration { seconds: 0, nanos: 4_000_000 };
        assert_eq!(age(Some(short)), "4ms");
        assert_eq!(age(None), "");
    }
}
