//! The cloud as its users see it, and the state after the death of a process.

use std::fs::OpenOptions;
use std::io::Write;

use super::*;
use crate::spec::{ProviderSpec, Resource};

fn spec() -> ProviderSpec {
    serde_json::from_value(serde_json::json!({
        "region": "eu-1", "image": "linux", "tags": {"vm": {"team": "a"}},
    }))
    .unwrap()
}

fn identity(cluster: &str, name: &str, uid: &str) -> Identity {
    Identity {
        cluster_id: cluster.to_owned(),
        machine_name: name.to_owned(),
        machine_uid: uid.to_owned(),
    }
}

fn new(identity: Identity) -> NewInstance {
    NewInstance {
        identity,
        class: "small".to_owned(),
        spec: spec(),
        identity_tags: [("ostler.dev/cluster-id".to_owned(), "c".to_owned())].into(),
        bootstrap: Bootstrap::read(b"abcdef.0123456789abcdef"),
        previous: None,
        by_name: None,
        previous_clusters: Vec::new(),
    }
}

fn refusal<T: std::fmt::Debug>(outcome: Result<T, CloudError>) -> Refusal {
    match outcome.unwrap_err() {
        CloudError::Refused(refusal) => refusal,
        error @ (CloudError::Journal(_) | CloudError::Away) => panic!("{error}"),
    }
}

/// The id of the instance that is in the way.
fn foreign_of<T: std::fmt::Debug>(outcome: Result<T, CloudError>) -> String {
    let refused = refusal(outcome);
    let Refusal::Foreign(NotOurs { provider_id, .. }) = refused else { panic!("{refused}") };
    provider_id
}

#[test]
fn creating_twice_makes_one_instance() {
    let cloud = Cloud::in_memory(Clock::system());
    let wanted = new(identity("c", "m", "u"));
    let first = cloud.create(&wanted).unwrap();
    assert_eq!(cloud.create(&wanted).unwrap(), first);
    assert_eq!(cloud.instances().unwrap().len(), 1);
    assert!(first.provider_id.starts_with("fake:///eu-1/i-"), "{}", first.provider_id);
}

#[test]
fn the_same_identity_with_another_image_is_refused_and_nothing_changes() {
    let cloud = Cloud::in_memory(Clock::system());
    let mut wanted = new(identity("c", "m", "u"));
    let first = cloud.create(&wanted).unwrap();
    wanted.spec.image = "other".to_owned();
    let refused = refusal(cloud.create(&wanted));
    assert!(matches!(refused, Refusal::Incompatible { paths, .. } if paths == ["image"]));
    assert_eq!(cloud.instances().unwrap(), [first]);
}

#[test]
fn a_machine_whose_uid_changed_gets_its_instance_back_under_the_new_uid() {
    let cloud = Cloud::in_memory(Clock::system());
    let first = cloud.create(&new(identity("c", "m", "old"))).unwrap();
    let restored = identity("c", "m", "new");
    let mut wanted = new(restored.clone());
    wanted.previous = Some(first.provider_id.clone());
    assert_eq!(cloud.create(&wanted).unwrap().provider_id, first.provider_id);
    assert_eq!(cloud.find(&restored, None).unwrap().provider_id, first.provider_id);
    assert!(cloud.find(&identity("c", "m", "old"), None).is_err());
    assert_eq!(cloud.instances().unwrap().len(), 1);
}

#[test]
fn an_instance_of_another_machine_or_cluster_is_neither_adopted_nor_deleted() {
    let cloud = Cloud::in_memory(Clock::system());
    let foreign = cloud.create(&new(identity("other", "m", "u"))).unwrap();
    let neighbour = cloud.create(&new(identity("c", "n", "v"))).unwrap();
    let ours = identity("c", "m", "u");
    for id in [&foreign.provider_id, &neighbour.provider_id] {
        let mut wanted = new(ours.clone());
        wanted.previous = Some(id.clone());
        assert_eq!(foreign_of(cloud.create(&wanted)), *id);
        assert_eq!(cloud.begin_delete(&ours, Some(id)).unwrap(), Vec::<String>::new());
        assert_eq!(foreign_of(cloud.find(&ours, Some(id))), *id);
    }
    assert_eq!(cloud.instances().unwrap().len(), 2);
    assert_eq!(cloud.of_clusters(|id| id == "c", None).unwrap(), [neighbour]);
}

fn moved(wanted: NewInstance) -> NewInstance {
    NewInstance { previous_clusters: vec!["older".to_owned(), "c".to_owned()], ..wanted }
}

#[test]
fn a_cluster_whose_id_changed_gets_its_instance_back_by_uid_and_by_id_and_makes_none() {
    let now = |uid| identity("now", "m", uid);
    for (uid, by_id) in [("u", false), ("u", true), ("new", true)] {
        let cloud = Cloud::in_memory(Clock::system());
        let first = cloud.create(&new(identity("c", "m", "u"))).unwrap();
        let id = first.provider_id.clone();
        let ours = now(uid);
        let mut wanted = moved(new(ours.clone()));
        wanted.previous = by_id.then(|| id.clone());
        wanted.identity_tags = [(CLUSTER_TAG.to_owned(), "now".to_owned())].into();
        let before = Lookup {
            previous_clusters: &wanted.previous_clusters,
            ..Lookup::of(&ours).known(wanted.previous.as_deref())
        };
        assert_eq!(cloud.look_up(before).unwrap().identity, first.identity, "changes nothing");
        let adopted = cloud.create(&wanted).unwrap();
        assert_eq!((&adopted.provider_id, &adopted.identity), (&id, &ours));
        for resource in Resource::ALL {
            assert_eq!(adopted.tags(resource).tags[CLUSTER_TAG], "now");
        }
        assert_eq!(
            cloud.find(&ours, None).unwrap(),
            adopted,
            "the ids before are not needed any more"
        );
        assert_eq!(cloud.instances().unwrap().len(), 1);
    }
}

#[test]
fn what_only_has_the_name_and_an_id_of_before_is_not_touched() {
    let cloud = Cloud::in_memory(Clock::system());
    let first = cloud.create(&new(identity("c", "m", "u"))).unwrap();
    let ours = identity("now", "m", "new");
    let wanted = moved(new(ours.clone()));
    let lookup = Lookup { previous_clusters: &wanted.previous_clusters, ..Lookup::of(&ours) };
    let not_ours = NotOurs { provider_id: first.provider_id.clone(), cluster_id: "c".to_owned() };
    assert_eq!(refusal(cloud.create(&wanted)), Refusal::Foreign(not_ours.clone()));
    assert_eq!(refusal(cloud.look_up(lookup)), Refusal::Foreign(not_ours.clone()));
    let stopped = cloud.stop(lookup).unwrap();
    assert_eq!(stopped, Stopped { doomed: Vec::new(), not_ours: Some(not_ours) });
    assert_eq!(cloud.instances().unwrap(), [first]);
    // For a cluster that never had this id, the instance simply belongs to another cluster.
    assert!(matches!(refusal(cloud.look_up(Lookup::of(&ours))), Refusal::Absent { .. }));
}

#[test]
fn an_instance_of_an_id_before_is_deleted_by_uid_and_by_id() {
    for (uid, by_id) in [("u", false), ("new", true)] {
        let cloud = Cloud::in_memory(Clock::system());
        let first = cloud.create(&new(identity("c", "m", "u"))).unwrap();
        let ours = identity("now", "m", uid);
        let id = by_id.then_some(first.provider_id.as_str());
        let previous_clusters = &["c".to_owned()];
        let lookup = Lookup { previous_clusters, ..Lookup::of(&ours).known(id) };
        let stopped = cloud.stop(lookup).unwrap();
        assert_eq!(stopped, Stopped { doomed: vec![first.provider_id], not_ours: None });
    }
}

#[test]
fn one_that_has_the_id_of_a_cluster_is_never_found_by_its_name_alone() {
    let cloud = Cloud::in_memory(Clock::system());
    let mut spec = spec();
    spec.tags = serde_json::from_value(serde_json::json!({
        "vm": {"kubernetes.io/cluster/old": "1"},
    }))
    .unwrap();
    let tags = McmTags::of(&spec);
    let mut wanted = new(identity("", "m", ""));
    wanted.spec = spec;
    let unclaimed = cloud.create(&wanted).unwrap();
    let ours = identity("now", "m", "u");
    let lookup = Lookup { by_name: tags.as_ref(), ..Lookup::of(&ours) };
    assert_eq!(cloud.look_up(lookup).unwrap(), unclaimed);
    let listed = |untagged| cloud.of_clusters(|id| id == "now", untagged).unwrap();
    assert_eq!(listed(tags.as_ref()), std::slice::from_ref(&unclaimed));
    assert_eq!(listed(None), []);
    let mut claimed = unclaimed;
    claimed.identity.cluster_id = "c".to_owned();
    cloud.plant(vec![claimed]).unwrap();
    assert!(matches!(refusal(cloud.look_up(lookup)), Refusal::Absent { .. }));
    assert_eq!(listed(tags.as_ref()), []);
}

#[test]
fn a_machine_without_a_uid_owns_only_what_it_is_found_by() {
    let cloud = Cloud::in_memory(Clock::system());
    let bare = cloud.create(&new(identity("c", "n", ""))).unwrap();
    cloud.create(&new(identity("", "o", ""))).unwrap();
    let ours = identity("c", "m", "");
    assert_eq!(cloud.stop(Lookup::of(&ours)).unwrap().doomed, Vec::<String>::new());
    let ours = identity("c", "n", "");
    let doomed = cloud.stop(Lookup::of(&ours).known(Some(&bare.provider_id))).unwrap().doomed;
    assert_eq!(doomed, [bare.provider_id]);
}

#[test]
fn two_instances_of_one_identity_are_named_and_both_deleted() {
    let cloud = Cloud::in_memory(Clock::system());
    let ours = identity("c", "m", "u");
    let first = cloud.create(&new(ours.clone())).unwrap();
    let mut twin = first.clone();
    twin.provider_id.push_str("-twin");
    let record = Record::Created { instance: Box::new(twin) };
    cloud.transact(|_| Ok((vec![record], ()))).unwrap();
    assert!(matches!(refusal(cloud.find(&ours, None)), Refusal::Several { count: 2, .. }));
    let doomed = cloud.begin_delete(&ours, None).unwrap();
    assert_eq!(doomed.len(), 2);
    cloud.remove(&doomed).unwrap();
    assert_eq!(cloud.instances().unwrap(), []);
}

#[test]
fn a_full_region_refuses_and_says_when_to_come_back() {
    let cloud = Cloud::in_memory(Clock::system());
    let mut wanted = new(identity("c", "m", "u"));
    wanted.spec.capacity = serde_json::from_value(serde_json::json!({
        "maxInstances": 1, "retryAfter": "30s",
    }))
    .unwrap();
    cloud.create(&wanted).unwrap();
    cloud.create(&wanted).expect("what is there already needs no room");
    wanted.identity = identity("c", "n", "v");
    let Refusal::Full { limit, retry_after, .. } = refusal(cloud.create(&wanted)) else {
        panic!("not full")
    };
    assert_eq!((limit, retry_after), (1, Some(std::time::Duration::from_secs(30))));
    wanted.spec.region = "eu-2".to_owned();
    cloud.create(&wanted).expect("another region has room");
}

#[test]
fn what_is_being_deleted_is_not_made_again() {
    let cloud = Cloud::in_memory(Clock::system());
    let ours = identity("c", "m", "u");
    cloud.create(&new(ours.clone())).unwrap();
    cloud.begin_delete(&ours, None).unwrap();
    assert!(matches!(refusal(cloud.create(&new(ours))), Refusal::BeingDeleted { .. }));
}

#[test]
fn an_instance_runs_when_it_has_booted() {
    let start: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let cloud = Cloud::in_memory(Clock::new(move || start));
    let mut wanted = new(identity("c", "m", "u"));
    wanted.spec.latency.create = "10s".parse().unwrap();
    wanted.spec.latency.boot = "20s".parse().unwrap();
    let made = cloud.create(&wanted).unwrap();
    for (seconds, power) in [(0, Power::Pending), (29, Power::Pending), (30, Power::Running)] {
        let now = start + jiff::SignedDuration::from_secs(seconds);
        assert_eq!(made.power(now), power, "after {seconds} s");
    }
}

#[test]
fn everything_is_there_again_after_a_restart_and_a_reader_sees_it_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cloud");
    let cloud = Cloud::open(&path, Clock::system()).unwrap();
    let ours = identity("c", "m", "u");
    let made = cloud.create(&new(ours.clone())).unwrap();
    cloud.create(&new(identity("c", "gone", "v"))).unwrap();
    let gone = cloud.begin_delete(&identity("c", "gone", "v"), None).unwrap();
    cloud.remove(&gone).unwrap();
    cloud.initialize(Lookup::of(&ours).known(Some(&made.provider_id))).unwrap();
    cloud.tag_as_stranger(&made.provider_id, Resource::Disk, ("backup", "daily")).unwrap();
    cloud.joined(&made.provider_id).unwrap();
    assert_eq!((cloud.count("rule").unwrap(), cloud.count("rule").unwrap()), (1, 2));
    let before = cloud.instances().unwrap();

    let seen = Cloud::read(&path).unwrap();
    assert_eq!(seen.instances().cloned().collect::<Vec<_>>(), before);
    drop(cloud);
    let cloud = Cloud::open(&path, Clock::system()).unwrap();
    assert_eq!(cloud.instances().unwrap(), before);
    assert!(before[0].joined_at.is_some() && before[0].disk.tags.contains_key("backup"));
    assert_eq!(cloud.count("rule").unwrap(), 3);
}

#[test]
fn a_line_that_a_crash_cut_off_is_dropped_and_the_next_one_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cloud");
    let cloud = Cloud::open(&path, Clock::system()).unwrap();
    cloud.create(&new(identity("c", "m", "u"))).unwrap();
    let tear = || {
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"record\":\"created\",\"inst").unwrap();
    };
    tear();
    assert_eq!(Cloud::read(&path).unwrap().instances().count(), 1);
    cloud.create(&new(identity("c", "n", "v"))).unwrap();
    assert_eq!(Cloud::read(&path).unwrap().instances().count(), 2);
    tear();
    let cloud = Cloud::open(&path, Clock::system()).unwrap();
    assert_eq!(cloud.instances().unwrap().len(), 2);
    assert_eq!(Cloud::read(&path).unwrap().instances().count(), 2);
}

#[test]
fn a_damaged_line_in_the_middle_is_an_error_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cloud");
    std::fs::write(&path, "{\"record\":\"opened\",\"format\":1}\nx\n{}\n").unwrap();
    let error = Cloud::open(&path, Clock::system()).unwrap_err();
    assert!(error.to_string().contains("line 2"), "{error}");
}

#[test]
fn a_state_file_of_another_version_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cloud");
    std::fs::write(&path, "{\"record\":\"opened\",\"format\":9}\n").unwrap();
    let error = Cloud::open(&path, Clock::system()).unwrap_err();
    assert!(error.to_string().contains("format 9"), "{error}");
}

#[test]
fn two_drivers_on_one_state_file_never_make_two_instances() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cloud");
    let first = Cloud::open(&path, Clock::system()).unwrap();
    let second = Cloud::open(&path, Clock::system()).unwrap();
    let ours = identity("c", "m", "u");
    let made = first.create(&new(ours.clone())).unwrap();
    assert_eq!(second.create(&new(ours.clone())).unwrap(), made);
    assert_eq!((first.count("rule").unwrap(), second.count("rule").unwrap()), (1, 2));
    let doomed = second.begin_delete(&ours, None).unwrap();
    second.remove(&doomed).unwrap();
    assert_eq!(first.instances().unwrap(), []);
}

#[test]
fn the_state_file_is_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cloud");
    Cloud::open(&path, Clock::system()).unwrap();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn a_sync_covers_everything_that_was_written_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let cloud = Cloud::open(&dir.path().join("cloud"), Clock::system()).unwrap();
    cloud.create(&new(identity("c", "m", "u"))).unwrap();
    cloud.durable().await.unwrap();
    assert_eq!(*cloud.inner.synced.lock().await, 1);
}

#[test]
fn whoever_lags_behind_looks_at_everything() {
    let mut state = State::default();
    let touch = |state: &mut State, id: &str| {
        let cloud = Cloud::in_memory(Clock::system());
        let mut made = cloud.create(&new(identity("c", "m", "u"))).unwrap();
        made.provider_id = id.to_owned();
        state.apply(Record::Created { instance: Box::new(made) });
    };
    touch(&mut state, "a");
    let seen = state.revision();
    touch(&mut state, "b");
    assert_eq!(state.changes_since(seen), Changes::These(vec!["b".to_owned()]));
    for _ in 0..5000 {
        state.apply(Record::Initialized { provider_id: "a".to_owned() });
    }
    assert_eq!(state.changes_since(seen), Changes::All);
}
