//! The verbs as the core calls them, without a core.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ostler_driver_fake::FakeDriver;
use ostler_driver_fake::cloud::{Clock, Cloud};
use ostler_driver_fake::control::ControlFile;
use ostler_driver_fake::spec::Resource;
use ostler_driver_sdk::testing::TestContext;
use ostler_driver_sdk::{
    CancellationToken, Certainty, Code, Context, CreateMachine, DeleteMachine, Driver, DriverError,
    GetMachineStatus, GetVolumeIds, InitializeMachine, ListMachines, UpdateMachine, UserData,
    ValidateClass,
};
use serde_json::{Value, json};

const USER_DATA: &str = "kubelet --token=abcdef.0123456789abcdef";

fn spec(extra: &Value) -> Value {
    let mut spec = json!({"region": "eu-1", "image": "linux"});
    let (Some(spec_map), Some(extra)) = (spec.as_object_mut(), extra.as_object()) else {
        unreachable!("both are objects")
    };
    spec_map.extend(extra.clone());
    spec
}

fn driver() -> FakeDriver {
    let cloud = Cloud::in_memory(Clock::system());
    FakeDriver::new(cloud)
}

fn context(name: &str, spec: &Value) -> TestContext {
    TestContext::new(name, format!("uid-{name}")).provider_spec(spec.to_string())
}

fn ctx(name: &str, spec: &Value) -> Context {
    context(name, spec).build()
}

async fn create(driver: &FakeDriver, ctx: Context) -> Result<String, DriverError> {
    let made = driver.create_machine(CreateMachine::for_tests(ctx, USER_DATA)).await?;
    Ok(made.provider_id().to_owned())
}

async fn update(driver: &FakeDriver, ctx: Context, id: &str) -> Result<Vec<String>, DriverError> {
    let provider_id = id.to_owned();
    let request = UpdateMachine { ctx, provider_id, last_applied_spec_json: None };
    Ok(driver.update_machine(request).await?.applied_paths)
}

async fn delete(driver: &FakeDriver, ctx: Context) -> Result<(), DriverError> {
    driver.delete_machine(DeleteMachine { ctx, provider_id: None }).await.map(drop)
}

fn instances(driver: &FakeDriver) -> usize {
    driver.cloud().instances().unwrap().len()
}

fn outcomes(driver: &FakeDriver) -> Vec<String> {
    driver
        .calls()
        .recent()
        .into_iter()
        .map(|c| c.outcome.map_or_else(String::new, |o| o.word))
        .collect()
}

#[tokio::test]
async fn a_machine_lives_from_create_to_delete() {
    let driver = driver();
    let spec = spec(&json!({"initialize": true}));
    let id = create(&driver, ctx("m", &spec)).await.unwrap();
    assert_eq!(create(&driver, ctx("m", &spec)).await.unwrap(), id);
    let request = InitializeMachine {
        ctx: ctx("m", &spec),
        provider_id: id.clone(),
        user_data: UserData::default(),
    };
    for _ in 0..2 {
        let done = driver.initialize_machine(request.clone()).await.unwrap();
        assert_eq!(done.provider_id(), id);
    }
    assert!(driver.cloud().instance(&id).unwrap().unwrap().initialized);
    let status = GetMachineStatus { ctx: ctx("m", &spec), provider_id: None };
    assert_eq!(driver.get_machine_status(status.clone()).await.unwrap().provider_id(), id);
    assert_eq!(driver.list_machines(ListMachines { ctx: ctx("m", &spec) }).await.unwrap().len(), 1);
    delete(&driver, ctx("m", &spec)).await.unwrap();
    delete(&driver, ctx("m", &spec)).await.unwrap();
    assert_eq!(driver.get_machine_status(status).await.unwrap_err().code(), Code::NotFound);
    let other = TestContext::new("m", "uid-m").cluster_id("other").provider_spec(spec.to_string());
    create(&driver, other.build()).await.unwrap();
    assert!(driver.list_machines(ListMachines { ctx: ctx("m", &spec) }).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_bad_spec_is_refused_with_its_path_and_never_keeps_a_machine_from_being_deleted() {
    let driver = driver();
    create(&driver, ctx("m", &spec(&json!({})))).await.unwrap();
    for (bad, path) in [
        (json!({"latency": {"create": "soon"}}), "latency.create"),
        (json!({"colour": "red"}), "colour"),
        (json!({"region": "EU"}), "region"),
    ] {
        let bad = spec(&bad);
        let error = create(&driver, ctx("n", &bad)).await.unwrap_err();
        assert_eq!(
            (error.code(), error.certainty()),
            (Code::InvalidArgument, Certainty::NotApplied)
        );
        assert_eq!(error.violations().first().expect("a violation").path, path);
    }
    delete(&driver, ctx("m", &json!({"region": 7}))).await.unwrap();
    assert_eq!(instances(&driver), 0);
}

#[tokio::test]
async fn bad_credentials_are_an_error_and_never_an_empty_list() {
    let driver = driver();
    let spec = spec(&json!({}));
    for (token, code) in [("invalid", Code::Unauthenticated), ("denied", Code::PermissionDenied)] {
        let ctx = context("m", &spec).secret([("accessToken", token)]).build();
        let error = driver.list_machines(ListMachines { ctx }).await.unwrap_err();
        assert_eq!((error.code(), error.certainty()), (code, Certainty::NotApplied));
    }
}

#[tokio::test]
async fn an_update_changes_tags_keeps_foreign_ones_and_refuses_what_is_fixed() {
    let driver = driver();
    let tags = |vm: Value| spec(&json!({"tags": {"vm": vm, "disk": {"d": "1"}}}));
    let id = create(&driver, ctx("m", &tags(json!({"a": "1"})))).await.unwrap();
    driver.cloud().tag_as_stranger(&id, Resource::Vm, ("theirs", "x")).unwrap();
    let second = tags(json!({"b": "2"}));
    assert_eq!(update(&driver, ctx("m", &second), &id).await.unwrap(), ["tags.vm"]);
    assert_eq!(update(&driver, ctx("m", &second), &id).await.unwrap(), Vec::<String>::new());
    let vm = driver.cloud().instance(&id).unwrap().unwrap().vm.tags;
    assert_eq!((vm.get("a"), vm.get("b").map(String::as_str)), (None, Some("2")));
    assert!(vm.contains_key("theirs") && vm.contains_key("ostler.dev/machine-uid"), "{vm:?}");

    let mut fixed = second.clone();
    fixed["image"] = json!("other");
    let error = update(&driver, ctx("m", &fixed), &id).await.unwrap_err();
    assert_eq!(
        (error.code(), error.reason_word()),
        (Code::FailedPrecondition, "NOT_HOT_UPDATABLE")
    );
    assert_eq!(error.violations().first().expect("a violation").path, "image");
}

#[tokio::test]
async fn a_half_applied_update_that_is_taken_back_leaves_no_trace() {
    let driver = driver();
    let first = spec(&json!({"tags": {"vm": {"v": "1"}, "network": {"v": "1"}}}));
    let id = create(&driver, ctx("m", &first)).await.unwrap();
    let before = driver.cloud().instance(&id).unwrap();
    let half = spec(&json!({
        "tags": {"vm": {"v": "2", "new": "x"}, "network": {"v": "2"}},
        "faults": [{"operation": "UpdateMachine", "applyPartially": 1}],
    }));
    let error = update(&driver, ctx("m", &half), &id).await.unwrap_err();
    assert_eq!((error.code(), error.certainty()), (Code::Unavailable, Certainty::Partial));
    let now = driver.cloud().instance(&id).unwrap().unwrap();
    assert_eq!((&*now.vm.tags["v"], &*now.network.tags["v"]), ("2", "1"));
    update(&driver, ctx("m", &first), &id).await.unwrap();
    assert_eq!(driver.cloud().instance(&id).unwrap(), before);
}

#[tokio::test]
async fn a_fault_before_the_work_leaves_nothing_and_one_after_it_leaves_the_instance() {
    let cases = [
        (json!({"code": "Unavailable"}), Certainty::NotApplied, 0),
        (json!({"code": "Internal", "afterEffect": true}), Certainty::Unknown, 1),
    ];
    for (mut fault, certainty, left) in cases {
        let driver = driver();
        fault["operation"] = json!("CreateMachine");
        fault["call"] = json!(1);
        let spec = spec(&json!({"faults": [fault]}));
        let error = create(&driver, ctx("m", &spec)).await.unwrap_err();
        assert_eq!(error.certainty(), certainty, "{spec}");
        assert_eq!(instances(&driver), left, "{spec}");
        create(&driver, ctx("m", &spec)).await.unwrap();
        assert_eq!(instances(&driver), 1, "{spec}");
    }
}

#[tokio::test]
async fn a_crash_after_the_work_happens_once_and_the_instance_is_found_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cloud");
    let spec = spec(&json!({
        "faults": [{"operation": "CreateMachine", "call": 1, "crashAfterEffect": true}],
    }));
    let crashes = Arc::new(AtomicUsize::new(0));
    let start = || {
        let crashes = Arc::clone(&crashes);
        FakeDriver::new(Cloud::open(&path, Clock::system()).unwrap()).on_crash(move || {
            crashes.fetch_add(1, Ordering::SeqCst);
        })
    };
    let driver = start();
    let create_once = create(&driver, ctx("m", &spec));
    tokio::select! {
        biased;
        answer = create_once => panic!("a dead process answered {answer:?}"),
        () = async { while crashes.load(Ordering::SeqCst) == 0 { tokio::task::yield_now().await } } => {}
    }
    assert_eq!(outcomes(&driver), ["Crashed"]);
    drop(driver);
    let driver = start();
    create(&driver, ctx("m", &spec)).await.unwrap();
    assert_eq!((instances(&driver), crashes.load(Ordering::SeqCst)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_does_the_work_and_never_answers() {
    let driver = driver();
    let spec = spec(&json!({"faults": [{"operation": "CreateMachine", "lostReply": true}]}));
    let waited = tokio::time::timeout(Duration::from_hours(1), create(&driver, ctx("m", &spec)));
    waited.await.unwrap_err();
    assert_eq!((instances(&driver), outcomes(&driver)), (1, vec!["LostReply".to_owned()]));
}

#[tokio::test]
async fn an_answer_may_name_another_instance_or_none() {
    for id in ["", "fake:///eu-1/i-dup"] {
        let fault = json!({"operation": "CreateMachine", "returnProviderId": id});
        let spec = spec(&json!({"faults": [fault]}));
        assert_eq!(create(&driver(), ctx("m", &spec)).await.unwrap(), id);
    }
}

#[tokio::test(start_paused = true)]
async fn things_take_as_long_as_the_class_says() {
    let driver = driver();
    let spec = spec(&json!({
        "initialize": true,
        "latency": {"create": "1s", "initialize": "2s", "update": "3s", "delete": "4s"},
    }));
    let start = tokio::time::Instant::now();
    let id = create(&driver, ctx("m", &spec)).await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 1);
    let request = InitializeMachine {
        ctx: ctx("m", &spec),
        provider_id: id.clone(),
        user_data: UserData::default(),
    };
    drop(driver.initialize_machine(request).await.unwrap());
    assert_eq!(start.elapsed().as_secs(), 3);
    update(&driver, ctx("m", &spec), &id).await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 6);
    delete(&driver, ctx("m", &spec)).await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_tells_the_truth_about_what_it_left() {
    let driver = driver();
    let spec = spec(&json!({"latency": {"create": "1h", "initialize": "1h", "delete": "1h"}}));
    let cancelled = CancellationToken::new();
    cancelled.cancel();
    let ctx = || context("m", &spec).cancellation(cancelled.clone()).build();
    let id = create(&driver, ctx()).await.expect("the instance is there");
    let request = InitializeMachine { ctx: ctx(), provider_id: id, user_data: UserData::default() };
    let error = driver.initialize_machine(request).await.unwrap_err();
    assert_eq!((error.code(), error.certainty()), (Code::Canceled, Certainty::NotApplied));
    let error = delete(&driver, ctx()).await.unwrap_err();
    assert_eq!((error.code(), error.certainty()), (Code::Canceled, Certainty::Partial));
}

#[tokio::test]
async fn a_control_file_switches_faults_while_the_driver_runs() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("control.json");
    let driver = driver().control_file(ControlFile::new(&path));
    let spec = spec(&json!({}));
    create(&driver, ctx("a", &spec)).await.unwrap();
    let faults = json!({"faults": [
        {"name": "quota", "operation": "CreateMachine", "machine": "b", "code": "ResourceExhausted"},
    ]});
    std::fs::write(&path, faults.to_string()).unwrap();
    let error = create(&driver, ctx("b", &spec)).await.unwrap_err();
    assert_eq!(error.code(), Code::ResourceExhausted);
    create(&driver, ctx("c", &spec)).await.unwrap();
    std::fs::write(&path, "{").unwrap();
    let error = create(&driver, ctx("d", &spec)).await.unwrap_err();
    assert_eq!(error.reason_word(), "CONTROL_FILE");
    std::fs::remove_file(&path).unwrap();
    create(&driver, ctx("b", &spec)).await.unwrap();
    let calls = driver.calls().recent();
    let hit = calls.iter().find(|call| call.name == "b").and_then(|call| call.outcome.clone());
    assert_eq!(hit.expect("an outcome").faults, ["quota"]);
}

#[tokio::test]
async fn volumes_of_this_provider_have_ids_and_others_have_none() {
    let ours = json!({"csi": {"driver": "fake.ostler.dev", "volumeHandle": "vol-1"}});
    let theirs = json!({"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-2"}});
    let ask = |pv_specs_json| {
        let ctx = ctx("m", &spec(&json!({})));
        async { driver().get_volume_ids(GetVolumeIds { ctx, pv_specs_json }).await }
    };
    let ids = ask(vec![ours.to_string(), theirs.to_string(), "{}".to_owned()]).await.unwrap();
    assert_eq!(ids, ["vol-1", "", ""]);
    assert_eq!(ask(vec!["{".to_owned()]).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn a_class_is_reviewed_without_touching_the_cloud() {
    let review = |new: Value, old: Option<Value>| async move {
        let request = ValidateClass {
            ctx: ctx("class", &json!({})),
            provider_spec_json: new.to_string(),
            old_provider_spec_json: old.map(|old| old.to_string()),
        };
        driver().validate_class(request).await.unwrap()
    };
    let base = spec(&json!({}));
    let good = review(base.clone(), None).await;
    assert!(good.violations.is_empty() && good.change_is_hot_updatable);
    let bad = review(json!({"region": "eu-1"}), None).await;
    assert_eq!(bad.violations.len(), 1);
    let hot = review(spec(&json!({"tags": {"vm": {"a": "b"}}})), Some(base.clone())).await;
    assert!(hot.change_is_hot_updatable);
    let cold = review(spec(&json!({"machineType": "large"})), Some(base)).await;
    assert_eq!(cold.not_hot_updatable_paths, ["machineType"]);
    assert!(!cold.change_is_hot_updatable);
}

#[tokio::test]
async fn a_throttled_call_says_when_to_come_back_and_an_instance_shows_late_in_lists() {
    let driver = driver();
    let spec = spec(&json!({"throttle": {"calls": 2, "per": "1h"}, "latency": {"list": "1h"}}));
    create(&driver, ctx("m", &spec)).await.unwrap();
    let request = ListMachines { ctx: ctx("class", &spec) };
    assert_eq!(driver.list_machines(request.clone()).await.unwrap(), []);
    let error = driver.list_machines(request).await.unwrap_err();
    assert_eq!((error.code(), error.reason_word()), (Code::ResourceExhausted, "THROTTLED"));
    assert_eq!(instances(&driver), 1);
}

#[tokio::test]
async fn a_seeded_cloud_lists_its_instances_and_is_seeded_once() {
    let driver = driver();
    for _ in 0..2 {
        driver.cloud().seed("test", 20_000).unwrap();
    }
    let listed = driver.list_machines(ListMachines { ctx: ctx("class", &spec(&json!({}))) });
    assert_eq!(listed.await.unwrap().len(), 20_000);
}
