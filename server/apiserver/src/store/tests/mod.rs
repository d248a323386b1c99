//! The store against a model, against power cuts, and its watches.

pub(crate) mod disk;
mod durability;
mod history;
mod index;
mod model;
mod watching;

use bytes::Bytes;

use super::{Change, Expect, FIRST_REVISION, Key, Prefix, Record, Store, StoreOptions, WriteError};

fn text(value: &str) -> Bytes {
    Bytes::copy_from_slice(value.as_bytes())
}

fn pod(name: &str) -> Key {
    Key::new("", "pods", "default", name)
}

fn node(name: &str) -> Key {
    Key::new("", "nodes", "", name)
}

fn put(value: &str) -> Change {
    Change::Put(text(value))
}

fn delete(value: &str) -> Change {
    Change::Delete(text(value))
}

async fn memory() -> Store {
    Store::open(StoreOptions::memory()).await.unwrap()
}

async fn create(store: &Store, key: &Key, value: &str) -> u64 {
    store.write(key.clone(), Expect::Absent, put(value)).await.unwrap()
}

fn names(records: &[Record]) -> Vec<&str> {
    records.iter().map(|record| record.key.name()).collect()
}

#[tokio::test]
async fn a_write_is_read_back_at_its_revision() {
    let store = memory().await;
    let revision = create(&store, &pod("a"), "{}").await;
    let record = store.get(&pod("a")).unwrap();
    assert_eq!((record.revision, store.revision()), (revision, revision));
    assert_eq!(record.value, text("{}"));
}

#[tokio::test]
async fn a_write_that_is_not_as_expected_changes_nothing_and_names_the_revision() {
    let store = memory().await;
    let first = create(&store, &pod("a"), "1").await;
    for (key, expect, change, current) in [
        (pod("a"), Expect::Absent, put("2"), Some(first)),
        (pod("a"), Expect::Revision(first + 7), put("2"), Some(first)),
        (pod("a"), Expect::Revision(first + 7), delete("2"), Some(first)),
        (pod("b"), Expect::Revision(first), put("2"), None),
        (pod("b"), Expect::Absent, delete("2"), None),
    ] {
        let refused = store.write(key, expect, change).await.unwrap_err();
        assert!(
            matches!(refused, WriteError::Conflict { current: found } if found == current),
            "{refused:?}"
        );
    }
    assert_eq!(store.revision(), first);
    assert_eq!(store.get(&pod("a")).unwrap().value, text("1"));
}

#[tokio::test]
async fn a_list_is_in_key_order_and_only_of_its_range() {
    let store = memory().await;
    for (namespace, name) in [("ns", "a"), ("ns-b", "b"), ("ns", "c"), ("other", "d")] {
        create(&store, &Key::new("", "pods", namespace, name), "{}").await;
    }
    create(&store, &Key::new("", "podtemplates", "ns", "x"), "{}").await;
    create(&store, &node("n"), "{}").await;
    let all = store.list(&Prefix::resource("", "pods"), None, None);
    assert_eq!(names(&all.records), ["b", "a", "c", "d"], "'-' comes before '/'");
    let one = store.list(&Prefix::namespace("", "pods", "ns"), None, None);
    assert_eq!(names(&one.records), ["a", "c"]);
    assert_eq!(store.list(&Prefix::all(), None, None).records.len(), 6);
}

#[tokio::test]
async fn a_closed_store_refuses_writes_and_still_reads() {
    let store = memory().await;
    create(&store, &pod("a"), "1").await;
    store.clone().close().await;
    let refused = store.write(pod("b"), Expect::Absent, put("2")).await.unwrap_err();
    assert!(matches!(refused, WriteError::Closed));
    assert!(store.get(&pod("a")).is_some());
}

#[test]
fn a_key_gives_its_parts_back() {
    let key = Key::new("apps", "daemonsets", "kube-system", "proxy");
    let parts = (key.group(), key.resource(), key.namespace(), key.name());
    assert_eq!(parts, ("apps", "daemonsets", "kube-system", "proxy"));
    assert_eq!(node("n").namespace(), "");
}
