//! Two drivers on one state file, which restart and crash at will, see one cloud.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use ostler_driver_fake::FakeDriver;
use ostler_driver_fake::cloud::{
    Bootstrap, Clock, Cloud, CloudError, Identity, Instance, Lookup, NewInstance, Refusal,
};
use ostler_driver_fake::spec::ProviderSpec;
use proptest::prelude::*;

/// A step of driver 0 or 1, with machine 0, 1 or 2.
#[derive(Debug, Clone)]
enum Step {
    Create(usize, usize),
    Initialize(usize, usize),
    BeginDelete(usize, usize),
    Delete(usize, usize),
    Count(usize),
    Restart(usize),
    /// A third one died in the middle of a line.
    Tear,
}

fn step() -> impl Strategy<Value = Step> {
    let (driver, machine) = (0..2_usize, 0..3_usize);
    prop_oneof![
        4 => (driver.clone(), machine.clone()).prop_map(|(d, m)| Step::Create(d, m)),
        2 => (driver.clone(), machine.clone()).prop_map(|(d, m)| Step::Initialize(d, m)),
        1 => (driver.clone(), machine.clone()).prop_map(|(d, m)| Step::BeginDelete(d, m)),
        2 => (driver.clone(), machine).prop_map(|(d, m)| Step::Delete(d, m)),
        1 => driver.clone().prop_map(Step::Count),
        1 => driver.prop_map(Step::Restart),
        1 => Just(Step::Tear),
    ]
}

fn identity(machine: usize) -> Identity {
    Identity {
        cluster_id: "c".to_owned(),
        machine_name: format!("m-{machine}"),
        machine_uid: format!("uid-{machine}"),
    }
}

fn new(machine: usize) -> NewInstance {
    let spec: ProviderSpec =
        serde_json::from_str(r#"{"region":"eu-1","image":"linux","initialize":true}"#).unwrap();
    NewInstance {
        identity: identity(machine),
        class: "small".to_owned(),
        spec,
        identity_tags: [].into(),
        bootstrap: Bootstrap::default(),
        previous: None,
        by_name: None,
        previous_clusters: Vec::new(),
    }
}

fn open(path: &Path) -> Cloud {
    Cloud::open(path, Clock::system()).unwrap()
}

/// Refusals are answers; everything else is a defect.
fn answered<T>(outcome: Result<T, CloudError>) {
    if let Err(error) = outcome {
        let expected = |refusal: &Refusal| {
            matches!(refusal, Refusal::Absent { .. } | Refusal::BeingDeleted { .. })
        };
        assert!(matches!(&error, CloudError::Refused(refusal) if expected(refusal)), "{error:?}");
    }
}

fn take(step: &Step, drivers: &mut [Cloud; 2], path: &Path) {
    match *step {
        Step::Create(d, m) => answered(drivers[d].create(&new(m))),
        Step::Initialize(d, m) => {
            answered(drivers[d].initialize(Lookup::of(&identity(m)).known(Some(""))));
        }
        Step::BeginDelete(d, m) => answered(drivers[d].begin_delete(&identity(m), None)),
        Step::Delete(d, m) => {
            let doomed = drivers[d].begin_delete(&identity(m), None).unwrap();
            answered(drivers[d].remove(&doomed));
        }
        Step::Count(d) => answered(drivers[d].count("rule").map(drop)),
        Step::Restart(d) => drivers[d] = open(path),
        Step::Tear => {
            let mut file = std::fs::OpenOptions::new().append(true).open(path).unwrap();
            file.write_all(br#"{"record":"deleted","prov"#).unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn all_see_the_same_cloud_and_no_machine_has_two_instances(
        steps in proptest::collection::vec(step(), 1..40)
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cloud");
        let mut drivers = [open(&path), open(&path)];
        let mut counted = 0;
        for step in &steps {
            take(step, &mut drivers, &path);
            counted += u64::from(matches!(step, Step::Count(_)));
            let seen: Vec<Instance> = drivers[0].instances().unwrap();
            prop_assert_eq!(&drivers[1].instances().unwrap(), &seen);
            let read = Cloud::read(&path).unwrap();
            prop_assert_eq!(&read.instances().cloned().collect::<Vec<_>>(), &seen);
            prop_assert_eq!(read.counter("rule"), counted);
            let machines: BTreeSet<_> = seen.iter().map(|i| &i.identity.machine_uid).collect();
            prop_assert_eq!(machines.len(), seen.len());
        }
    }
}

/// It is the worst mistake that a driver can make: what cannot be read is not absent.
#[tokio::test]
async fn a_state_file_that_cannot_be_read_for_a_moment_tells_of_no_instance_that_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let (path, away) = (dir.path().join("cloud"), dir.path().join("away"));
    let cloud = open(&path);
    cloud.create(&new(0)).unwrap();
    let driver = FakeDriver::new(cloud.clone());
    let events = driver.told().clone();
    tokio::spawn(driver.watch());
    let told = tokio::time::timeout(Duration::from_secs(1), events.next());
    let moved = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        std::fs::rename(&path, &away).unwrap();
        tokio::time::sleep(Duration::from_millis(500)).await;
        std::fs::rename(&away, &path).unwrap();
    };
    let (told, ()) = tokio::join!(told, moved);
    assert!(told.is_err(), "{told:?}");
    let doomed = cloud.begin_delete(&identity(0), None).unwrap();
    cloud.remove(&doomed).unwrap();
    assert_eq!(events.next().await.provider_id, doomed[0]);
}
