//! Random operations against a plain map, with reopening in between.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{
    disk::{SharedDisk, open},
    *,
};

#[derive(Clone, Debug)]
enum Step {
    Put { key: u8, value: u16, stale: bool },
    Delete { key: u8, stale: bool },
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..6_u8, any::<u16>(), prop::bool::weighted(0.1))
            .prop_map(|(key, value, stale)| Step::Put { key, value, stale }),
        3 => (0..6_u8, prop::bool::weighted(0.1))
            .prop_map(|(key, stale)| Step::Delete { key, stale }),
        1 => Just(Step::Reopen),
    ]
}

/// What the store must hold: name -> (revision, value), the revision, and each past state.
#[derive(Clone, Default)]
struct Model {
    objects: BTreeMap<String, (u64, String)>,
    past: BTreeMap<u64, BTreeMap<String, (u64, String)>>,
}

impl Model {
    fn expect(&self, name: &str, stale: bool) -> Expect {
        match self.objects.get(name) {
            Some((revision, _)) if stale => Expect::Revision(revision + 1),
            Some((revision, _)) => Expect::Revision(*revision),
            None if stale => Expect::Revision(1),
            None => Expect::Absent,
        }
    }
}

fn contents(records: &[Record]) -> BTreeMap<String, (u64, String)> {
    let entry = |record: &Record| {
        let value = String::from_utf8(record.value.to_vec()).unwrap();
        (record.key.name().to_owned(), (record.revision, value))
    };
    records.iter().map(entry).collect()
}

async fn play(steps: Vec<Step>) {
    let disk = SharedDisk::default();
    let mut store = open(&disk);
    let mut model = Model::default();
    model.past.insert(store.revision(), BTreeMap::new());
    for step in steps {
        let (name, change, stale) = match step {
            Step::Put { key, value, stale } => (format!("p{key}"), put(&value.to_string()), stale),
            Step::Delete { key, stale } => (format!("p{key}"), delete("last"), stale),
            Step::Reopen => {
                store.close().await;
                store = open(&disk);
                continue;
            }
        };
        let exists = model.objects.contains_key(&name);
        let sound = !stale && (exists || matches!(change, Change::Put(_)));
        let expect = model.expect(&name, stale);
        let written = store.write(pod(&name), expect, change.clone()).await;
        assert_eq!(written.is_ok(), sound, "{name} {expect:?} {change:?}");
        if let Ok(revision) = written {
            match change {
                Change::Put(value) => {
                    let value = String::from_utf8(value.to_vec()).unwrap();
                    model.objects.insert(name, (revision, value));
                }
                Change::Delete(_) => {
                    model.objects.remove(&name);
                }
            }
            model.past.insert(revision, model.objects.clone());
        }
        let now = store.list(&Prefix::resource("", "pods"), None, None);
        assert_eq!(contents(&now.records), model.objects);
    }
    for (revision, objects) in &model.past {
        let page = store.list_at(&Prefix::all(), None, None, *revision).await.unwrap();
        assert_eq!(&contents(&page.records), objects, "at revision {revision}");
    }
    store.close().await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn the_store_holds_what_a_map_would_through_reopening_and_in_its_history(
        steps in prop::collection::vec(step(), 1..60)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(play(steps));
    }
}
