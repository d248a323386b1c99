use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};

use super::*;

const COLOUR: &str = "colour";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Colour;

impl CacheIndex for Colour {
    type Object = ConfigMap;
    const KIND: &'static str = "ConfigMap";

    fn of(object: &ConfigMap) -> Vec<(Self, String)> {
        let colour = object.data.iter().flatten().find(|(key, _)| *key == COLOUR);
        colour.map(|(_, value)| (Self, value.clone())).into_iter().collect()
    }
}

fn object(name: &str, version: u64, colour: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some("default".to_owned()),
            resource_version: Some(version.to_string()),
            managed_fields: Some(vec![ManagedFieldsEntry::default()]),
            ..ObjectMeta::default()
        },
        data: Some([(COLOUR.to_owned(), colour.to_owned())].into()),
        ..ConfigMap::default()
    }
}

fn names(cache: &Cache<Colour>, colour: &str) -> Vec<String> {
    cache.find_names(Colour, colour).into_iter().map(|name| name.name).collect()
}

fn version(cache: &Cache<Colour>, name: &str) -> Option<String> {
    cache.get(&ObjectName::new("default", name))?.metadata.resource_version.clone()
}

fn listed(cache: &Cache<Colour>, objects: Vec<ConfigMap>) -> Vec<Change<ConfigMap>> {
    cache.apply(Event::Init);
    for object in objects {
        assert!(cache.apply(Event::InitApply(object)).is_empty());
    }
    cache.apply(Event::InitDone)
}

#[test]
fn an_index_follows_its_objects() {
    let cache = Cache::<Colour>::default();
    cache.apply(Event::Apply(object("a", 1, "red")));
    cache.apply(Event::Apply(object("b", 2, "red")));
    assert_eq!(names(&cache, "red"), ["a", "b"]);
    cache.apply(Event::Apply(object("a", 3, "blue")));
    assert_eq!(names(&cache, "red"), ["b"]);
    assert_eq!(names(&cache, "blue"), ["a"]);
    cache.apply(Event::Delete(object("a", 4, "blue")));
    assert!(names(&cache, "blue").is_empty());
    assert_eq!(cache.find(Colour, "red").len(), 1);
}

#[test]
fn whether_there_is_any_is_known_after_the_first() {
    let cache = Cache::<Colour>::default();
    for number in 0..100 {
        cache.apply(Event::Apply(object(&number.to_string(), 1, "red")));
    }
    let looked = std::cell::Cell::new(0);
    let any = |colour: &str, answer: bool| {
        cache.any(Colour, colour, |_| {
            looked.set(looked.get() + 1);
            answer
        })
    };
    assert!(any("red", true) && !any("blue", true));
    assert_eq!(looked.get(), 1);
    assert!(!any("red", false));
}

#[test]
fn of_managed_fields_is_kept_that_the_object_was_applied() {
    let managed_by = |operation: &str| ManagedFieldsEntry {
        manager: Some("flux".to_owned()),
        operation: Some(operation.to_owned()),
        ..ManagedFieldsEntry::default()
    };
    let bare = ManagedFieldsEntry { manager: None, ..managed_by("Apply") };
    let all = vec![managed_by("Update"), managed_by("Apply"), managed_by("Apply")];
    for (managers, expected) in [
        (vec![ManagedFieldsEntry::default()], None),
        (vec![managed_by("Update")], None),
        (all, Some(vec![bare])),
    ] {
        let mut object = object("a", 1, "red");
        object.metadata.managed_fields = Some(managers);
        let cache = Cache::<Colour>::default();
        cache.apply(Event::Apply(object));
        let kept = cache.get(&ObjectName::new("default", "a")).unwrap();
        assert_eq!(kept.metadata.managed_fields, expected);
    }
}

const ONE: &str = "one";
const OTHER: &str = "other";

/// The pass of a controller over the object of that name.
fn pass(by: &'static str, name: &str) -> Author {
    Author::new(by, &object(name, 0, ""))
}

/// Versions before and after, and whether each listener hears of the change: one controller's pass over "s" and over
/// "t", and another controller's over "s".
fn told(changes: &[Change<ConfigMap>]) -> Vec<(u64, u64, [bool; 3])> {
    let version = |object: &Option<Arc<ConfigMap>>| {
        object
            .as_ref()
            .map_or(0, |it| it.metadata.resource_version.as_ref().unwrap().parse().unwrap())
    };
    let who = [(ONE, "s"), (ONE, "t"), (OTHER, "s")];
    let told = |change: &Change<ConfigMap>| {
        who.map(|(by, name)| change.is_news_to(by, &ObjectName::new("default", name)))
    };
    changes.iter().map(|it| (version(&it.old), version(&it.new), told(it))).collect()
}

#[test]
fn the_watch_event_of_our_own_write_is_a_change_to_everyone_but_its_author() {
    let cache = Cache::<Colour>::default();
    cache.apply(Event::Apply(object("a", 1, "red")));
    cache.update(object("a", 5, "blue"), pass(ONE, "s"));
    assert_eq!(names(&cache, "blue"), ["a"], "before the event");
    let event = || Event::Apply(object("a", 5, "blue"));
    assert_eq!(told(&cache.apply(event())), [(1, 5, [false, true, true])]);
    assert!(cache.apply(event()).is_empty(), "once");
}

#[test]
fn several_own_writes_are_one_change_from_what_was_reported_last() {
    let cache = Cache::<Colour>::default();
    cache.apply(Event::Apply(object("a", 1, "red")));
    cache.update(object("a", 2, "blue"), pass(ONE, "s"));
    cache.update(object("a", 3, "green"), pass(ONE, "s"));
    assert!(cache.apply(Event::Apply(object("a", 2, "blue"))).is_empty(), "older than the cache");
    let changes = cache.apply(Event::Apply(object("a", 3, "green")));
    assert_eq!(told(&changes), [(1, 3, [false, true, true])]);

    cache.update(object("a", 4, "red"), pass(ONE, "s"));
    cache.update(object("a", 5, "blue"), pass(OTHER, "s"));
    let changes = cache.apply(Event::Apply(object("a", 5, "blue")));
    assert_eq!(told(&changes), [(3, 5, [true; 3])], "neither knows what the other wrote");
}

#[test]
fn everyone_is_told_of_what_another_client_wrote_after_an_own_write() {
    let cache = Cache::<Colour>::default();
    cache.apply(Event::Apply(object("a", 1, "red")));
    cache.update(object("a", 2, "blue"), pass(ONE, "s"));
    let changes = cache.apply(Event::Apply(object("a", 3, "green")));
    assert_eq!(told(&changes), [(1, 3, [true; 3])]);
    assert!(cache.apply(Event::Apply(object("a", 2, "blue"))).is_empty());
}

#[test]
fn an_own_write_that_only_a_list_shows_is_reported_like_one_of_an_event() {
    let cache = Cache::<Colour>::default();
    listed(&cache, vec![object("a", 1, "red"), object("b", 2, "red"), object("c", 3, "red")]);
    for (name, version) in [("a", 4), ("b", 5), ("c", 6)] {
        cache.update(object(name, version, "blue"), pass(ONE, "s"));
    }
    let mut told = told(&listed(&cache, vec![object("a", 4, "blue"), object("b", 9, "green")]));
    told.sort_unstable();
    assert_eq!(told, [(1, 4, [false, true, true]), (2, 9, [true; 3]), (6, 0, [true; 3])]);
    let again = listed(&cache, vec![object("a", 4, "blue"), object("b", 9, "green")]);
    assert!(again.is_empty());
}

#[test]
fn an_object_that_goes_after_an_own_write_leaves_nothing_behind() {
    let cache = Cache::<Colour>::default();
    cache.apply(Event::Apply(object("a", 1, "red")));
    cache.update(object("a", 2, "blue"), pass(ONE, "s"));
    let changes = cache.apply(Event::Delete(object("a", 3, "blue")));
    assert_eq!(told(&changes), [(2, 0, [true; 3])]);
    let changes = cache.apply(Event::Apply(object("a", 4, "red")));
    assert_eq!(told(&changes), [(0, 4, [true; 3])], "another object of that name");
}

#[test]
fn an_event_from_before_an_own_write_does_not_bring_the_old_state_back() {
    let cache = Cache::<Colour>::default();
    cache.apply(Event::Apply(object("a", 1, "red")));
    cache.update(object("a", 5, "blue"), pass(ONE, "s"));
    assert!(cache.apply(Event::Apply(object("a", 3, "red"))).is_empty());
    assert!(cache.apply(Event::Delete(object("a", 4, "red"))).is_empty());
    assert_eq!(version(&cache, "a").as_deref(), Some("5"));
    let changes = cache.apply(Event::Apply(object("a", 6, "green")));
    assert_eq!(changes.len(), 1);
}

#[test]
fn an_own_write_does_not_resurrect_what_the_watch_saw_deleted() {
    let cache = Cache::<Colour>::default();
    cache.apply(Event::Apply(object("a", 1, "red")));
    cache.apply(Event::Delete(object("a", 3, "red")));
    cache.update(object("a", 2, "red"), pass(ONE, "s"));
    assert!(cache.is_empty());
}

#[test]
fn a_relist_reports_what_changed_meanwhile_and_nothing_else() {
    let cache = Cache::<Colour>::default();
    listed(
        &cache,
        vec![object("same", 1, "red"), object("edited", 2, "red"), object("gone", 3, "red")],
    );
    assert!(cache.is_synced());
    let again =
        vec![object("same", 1, "red"), object("edited", 9, "blue"), object("new", 8, "blue")];
    let mut changes: Vec<_> = listed(&cache, again)
        .into_iter()
        .map(|change| {
            assert!(change.listed);
            let name = change.latest().unwrap().metadata.name.clone().unwrap();
            (name, change.old.is_some(), change.new.is_some())
        })
        .collect();
    changes.sort();
    let expected = [("edited", true, true), ("gone", true, false), ("new", false, true)];
    assert_eq!(changes, expected.map(|(name, old, new)| (name.to_owned(), old, new)));
    assert_eq!(names(&cache, "blue"), ["edited", "new"]);
}

#[test]
fn the_list_of_an_api_that_went_back_in_time_replaces_what_was_seen_of_later() {
    let cache = Cache::<Colour>::default();
    listed(&cache, vec![object("a", 7, "red"), object("b", 9, "red"), object("gone", 8, "red")]);
    cache.update(object("b", 12, "blue"), pass(ONE, "s"));
    let mut changes = told(&listed(&cache, vec![object("a", 3, "blue"), object("b", 4, "green")]));
    changes.sort_unstable();
    assert_eq!(changes, [(7, 3, [true; 3]), (8, 0, [true; 3]), (9, 4, [true; 3])]);
    assert_eq!(
        (names(&cache, "blue"), names(&cache, "green")),
        (vec!["a".into()], vec!["b".into()])
    );
    assert_eq!(told(&cache.apply(Event::Apply(object("a", 5, "green")))), [(3, 5, [true; 3])]);
}

#[test]
fn a_list_that_began_before_an_own_write_does_not_bring_the_old_state_back() {
    let cache = Cache::<Colour>::default();
    listed(&cache, vec![object("a", 1, "red"), object("gone", 2, "red")]);
    cache.apply(Event::Init);
    cache.apply(Event::InitApply(object("a", 1, "red")));
    cache.update(object("a", 5, "blue"), pass(ONE, "s"));
    cache.update(object("gone", 6, "blue"), pass(ONE, "s"));
    assert_eq!(told(&cache.apply(Event::InitDone)), [(6, 0, [true; 3])], "deleted after that");
    assert_eq!(version(&cache, "a").as_deref(), Some("5"));
    let event = cache.apply(Event::Apply(object("a", 5, "blue")));
    assert_eq!(told(&event), [(1, 5, [false, true, true])]);
}

#[test]
fn a_relist_that_breaks_off_changes_nothing() {
    let cache = Cache::<Colour>::default();
    listed(&cache, vec![object("a", 1, "red"), object("b", 2, "red")]);
    cache.apply(Event::Init);
    cache.apply(Event::InitApply(object("a", 1, "red")));
    listed(&cache, vec![object("a", 1, "red"), object("b", 2, "red")]);
    assert_eq!(cache.len(), 2);
}

fn unreadable(name: &str, version: u64) -> Unreadable {
    let mut meta = object(name, version, "").metadata;
    meta.managed_fields = None;
    Unreadable { meta, why: "it is broken".to_owned() }
}

#[test]
fn an_object_that_becomes_unreadable_stays_as_it_was_and_is_reported_once_for_each_revision() {
    let cache = Cache::<Colour>::default();
    listed(&cache, vec![object("a", 1, "red"), object("b", 2, "red")]);
    assert!(!cache.has_unreadable());
    let is_new = |version| cache.skip(None, Seen::Changed, &unreadable("a", version)).0;
    assert!(is_new(3) && !is_new(3) && is_new(4));
    assert!(cache.has_unreadable());
    assert_eq!(version(&cache, "a").as_deref(), Some("1"), "what could be read last");
    assert_eq!(names(&cache, "red"), ["a", "b"]);
    cache.apply(Event::Apply(object("a", 5, "blue")));
    assert!(!cache.has_unreadable(), "it was fixed");
    assert_eq!(names(&cache, "blue"), ["a"]);
}

#[test]
fn an_unreadable_object_in_a_list_is_not_gone() {
    let cache = Cache::<Colour>::default();
    listed(&cache, vec![object("a", 1, "red"), object("b", 2, "red")]);
    cache.apply(Event::Init);
    assert!(cache.skip(None, Seen::Listed, &unreadable("a", 3)).0);
    assert!(cache.skip(None, Seen::Listed, &unreadable("never-read", 4)).0);
    cache.apply(Event::InitApply(object("b", 2, "red")));
    assert!(cache.apply(Event::InitDone).is_empty(), "nothing was deleted");
    assert_eq!(names(&cache, "red"), ["a", "b"]);
    assert!(cache.has_unreadable());

    cache.apply(Event::Init);
    assert!(!cache.skip(None, Seen::Listed, &unreadable("a", 3)).0, "it was reported already");
    let changes = cache.apply(Event::InitDone);
    assert_eq!(changes.len(), 1, "b was deleted");
    assert_eq!(names(&cache, "red"), ["a"]);
    assert!(cache.has_unreadable());

    listed(&cache, Vec::new());
    assert!(cache.is_empty() && !cache.has_unreadable());
}

#[test]
fn an_unreadable_object_that_is_deleted_is_gone() {
    let cache = Cache::<Colour>::default();
    listed(&cache, vec![object("a", 1, "red")]);
    cache.skip(None, Seen::Changed, &unreadable("a", 3));
    let (news, change) = cache.skip(None, Seen::Gone, &unreadable("a", 4));
    assert!(!news && change.is_some_and(|change| change.old.is_some() && change.new.is_none()));
    assert!(cache.is_empty() && !cache.has_unreadable());
    // The object may be readable by then: the API server sends the current version.
    cache.skip(None, Seen::Changed, &unreadable("b", 5));
    assert!(cache.apply(Event::Delete(object("b", 6, ""))).is_empty());
    assert!(!cache.has_unreadable());
}

#[test]
fn a_list_of_one_namespace_keeps_the_unreadable_objects_of_another() {
    let cache = Cache::<Colour>::default();
    cache.consists_of(2);
    let mut elsewhere = unreadable("a", 1);
    elsewhere.meta.namespace = Some("other".to_owned());
    cache.skip(Some("other"), Seen::Changed, &elsewhere);
    cache.apply_part(Some("default"), Event::Init);
    cache.apply_part(Some("default"), Event::InitDone);
    assert!(cache.has_unreadable());
    let told = cache.unreadable_in("other");
    assert_eq!(told.as_deref(), Some("ConfigMap other/a cannot be read: it is broken"));
    assert_eq!(cache.unreadable_in("default"), None);
    cache.apply_part(Some("other"), Event::Init);
    cache.apply_part(Some("other"), Event::InitDone);
    assert!(!cache.has_unreadable());
}
