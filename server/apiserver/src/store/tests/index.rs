//! Compares the finds of an index with a look at every object.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{
    disk::{SharedDisk, open},
    *,
};

const NODE: &str = "spec.nodeName";

#[derive(Clone, Debug)]
enum Step {
    Put { pod: u8, text: String },
    Delete { pod: u8 },
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let text = prop_oneof![
        6 => (0..3_u8).prop_map(|node| format!(r#"{{"spec":{{"nodeName":"n{node}"}}}}"#)),
        1 => Just(r#"{"spec":{}}"#.to_owned()),
        1 => Just("{}".to_owned()),
        1 => Just(r#"{"spec":{"nodeName":"no"#.to_owned()),
    ];
    prop_oneof![
        8 => (0..9_u8, text).prop_map(|(pod, text)| Step::Put { pod, text }),
        3 => (0..9_u8).prop_map(|pod| Step::Delete { pod }),
        1 => Just(Step::Reopen),
    ]
}

fn at(pod: u8) -> Key {
    Key::new("", "pods", ["a", "b", "c"][usize::from(pod % 3)], &format!("p{pod}"))
}

fn keys(records: &[Record]) -> Vec<Key> {
    records.iter().map(|record| record.key.clone()).collect()
}

async fn play(steps: Vec<Step>) {
    let disk = SharedDisk::default();
    let mut store = open(&disk);
    let mut pods: BTreeMap<Key, String> = BTreeMap::new();
    for step in steps {
        let (key, change) = match &step {
            Step::Put { pod, text } => (at(*pod), put(text)),
            Step::Delete { pod } => (at(*pod), delete("last")),
            Step::Reopen => {
                store.close().await;
                store = open(&disk);
                continue;
            }
        };
        let expect = store.get(&key).map_or(Expect::Absent, |it| Expect::Revision(it.revision));
        if store.write(key.clone(), expect, change).await.is_ok() {
            match step {
                Step::Put { text, .. } => pods.insert(key, text),
                Step::Delete { .. } | Step::Reopen => pods.remove(&key),
            };
        }
        for node in ["n0", "n1", "n2", "n"] {
            let wanted = format!("\"{node}\"");
            let meant = |text: &str| text.contains(&wanted) || text.ends_with("no");
            for prefix in [Prefix::resource("", "pods"), Prefix::namespace("", "pods", "b")] {
                let there = pods.iter().filter(|(key, text)| prefix.contains(key) && meant(text));
                let there: Vec<Key> = there.map(|(key, _)| key.clone()).collect();
                let found = store.list_by(&prefix, (NODE, node), None, None).unwrap();
                assert_eq!(keys(&found.records), there);
                assert_eq!(found.revision, store.revision());
                let after = there.first();
                let rest = store.list_by(&prefix, (NODE, node), after, None).unwrap();
                assert_eq!(keys(&rest.records), there.get(1..).unwrap_or_default());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]
    #[test]
    fn what_an_index_finds_is_what_a_look_at_every_object_finds(
        steps in prop::collection::vec(step(), 1..60)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(play(steps));
    }
}

#[tokio::test]
async fn a_machine_is_found_by_its_name_in_all_namespaces() {
    let store = memory().await;
    let group = "machine.sapcloud.io";
    for (namespace, name) in [("a", "m"), ("a", "n"), ("b", "m"), ("b", "mm")] {
        create(&store, &Key::new(group, "machines", namespace, name), "{}").await;
    }
    let everywhere = Prefix::resource(group, "machines");
    let found = store.list_by(&everywhere, ("metadata.name", "m"), None, None).unwrap();
    assert_eq!(keys(&found.records), ["a", "b"].map(|it| Key::new(group, "machines", it, "m")));
}

#[tokio::test]
async fn events_are_found_by_either_name_of_a_field_and_what_has_no_index_is_not() {
    let store = memory().await;
    let event = Key::new("", "events", "default", "e");
    create(&store, &event, r#"{"involvedObject":{"uid":"u","name":"web"}}"#).await;
    let events = Prefix::resource("", "events");
    for (label, value, found) in [
        ("involvedObject.uid", "u", Some(1)),
        ("regarding.uid", "u", Some(1)),
        ("involvedObject.name", "web", Some(1)),
        ("regarding.name", "other", Some(0)),
        ("regarding.name", "", None),
        ("reason", "Joined", None),
        (NODE, "n", None),
    ] {
        let page = store.list_by(&events, (label, value), None, None);
        assert_eq!(page.map(|page| page.records.len()), found, "{label}={value}");
    }
    let past = store.revision() - 1;
    assert!(store.list_by(&events, ("regarding.uid", "u"), None, Some(past)).is_none());
}
