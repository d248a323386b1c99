//! Operations on groups go the way of all operations.

use std::collections::BTreeMap;
use std::time::Duration;

use ostler_api::driver::OperationKind;
use ostler_api::names::tag;
use ostler_api::operation::{
    Failure, Outcome, PoolModel, PoolSize, Reason, Request, Success, UserData,
};
use ostler_proto::v1alpha1::{
    self as proto, DriverCapability, MachineErrorCode, MachineRecord, OperationPage,
    PoolMachineRecord, PoolRecord, Readiness, operation, operation_result::Response,
};
use ostler_sessions::SessionsOptions;
use tokio::time::Instant;

use crate::core::{Core, PROVIDER, create, dispatch};
use crate::driver::{Driver, Said, hello, result};
use crate::flow::throttled;

const POOLS: [i32; 7] = [30, 31, 32, 33, 34, 35, 36];

async fn ready(core: &mut Core) -> Driver {
    let mut hello = hello(1);
    hello.operation_kinds.extend(POOLS);
    hello.capabilities.push(DriverCapability::PoolSurge.into());
    let (mut driver, _) = Driver::dial(core, hello).await;
    driver.state(Readiness::Ready, 4).await;
    core.provider_ready().await;
    driver
}

fn group() -> PoolRecord {
    PoolRecord { provider_id: "group".to_owned(), desired: 2, ..PoolRecord::default() }
}

fn instance(id: &str) -> PoolMachineRecord {
    let machine = MachineRecord { provider_id: id.to_owned(), ..MachineRecord::default() };
    let instance_id = id.to_owned();
    PoolMachineRecord { machine: Some(machine), instance_id, state: 4, ..Default::default() }
}

#[tokio::test(start_paused = true)]
async fn a_named_deletion_carries_both_sizes_and_its_answer_comes_back() {
    let mut core = Core::start();
    let mut driver = ready(&mut core).await;
    assert!(core.sessions.providers()[0].pools.surge);
    let request = Request::DeletePoolMachines {
        provider_id: "group".into(),
        instances: vec!["a".into(), "b".into()],
        size: PoolSize { expected: 5, wanted: 3 },
    };
    core.sessions.submit(dispatch("op-1", "pool-uid", request)).unwrap();
    let sent = driver.take().await;
    let Some(operation::Request::DeletePoolMachines(asked)) = sent.request else {
        panic!("{sent:?}")
    };
    assert_eq!((asked.expected_desired, asked.new_desired), (5, 3));
    assert_eq!(asked.machine_provider_ids, ["a", "b"]);
    let failure = proto::PoolMachineFailure {
        machine_provider_id: "b".to_owned(),
        error: Some(proto::OperationError { code: 9, ..Default::default() }),
    };
    let answer = proto::DeletePoolMachinesResponse {
        pool: Some(group()),
        not_deleted: vec![failure],
        ..Default::default()
    };
    driver.complete("op-1", result(Response::DeletePoolMachines(answer))).await;
    let outcome = core.outcome("pool-uid").await.outcome;
    let Ok(Success::PoolMachinesDeleted { pool, not_deleted }) = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(pool.desired, 2);
    assert_eq!(not_deleted.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn a_group_is_made_with_the_tags_of_its_pool() {
    let mut core = Core::start();
    let mut driver = ready(&mut core).await;
    let user_data = Some(UserData::new(b"canary".to_vec()));
    let model = PoolModel { hash: "h".to_owned(), user_data, zones: vec!["z".to_owned()] };
    let request = Request::CreatePool { desired: 3, model, provider_id: "".into() };
    core.sessions.submit(dispatch("op-1", "pool-uid", request)).unwrap();
    let sent = driver.take().await;
    let Some(operation::Request::CreatePool(asked)) = sent.request else { panic!("{sent:?}") };
    assert_eq!(asked.tags.get(tag::POOL_UID).map(String::as_str), Some("pool-uid"));
    assert!(asked.tags.contains_key(tag::POOL_NAME) && asked.tags.contains_key(tag::CLUSTER_ID));
    let model = asked.model.unwrap();
    assert_eq!((model.hash.as_str(), model.zones.len(), asked.desired), ("h", 1, 3));
    assert!(!format!("{:?}", model.bootstrap).contains("canary"));
}

#[tokio::test(start_paused = true)]
async fn the_instances_of_a_group_come_in_pages() {
    let mut core = Core::start();
    let mut driver = ready(&mut core).await;
    let sessions = core.sessions.clone();
    let request = Request::PoolStatus { provider_id: "group".into(), with_instances: true };
    let reading = tokio::spawn(async move {
        let outcome: Outcome = sessions.call(dispatch("op-1", "pool-uid", request)).await;
        outcome
    });
    driver.take().await;
    for (index, ids) in [(0, ["a", "b"]), (1, ["c", "d"])] {
        let pool_machines = ids.into_iter().map(instance).collect();
        let operation_id = "op-1".to_owned();
        let page = OperationPage { operation_id, index, pool_machines, ..Default::default() };
        driver.say(Said::Page(page)).await;
    }
    let answer =
        proto::GetPoolStatusResponse { pool: Some(group()), pages: 2, ..Default::default() };
    driver.complete("op-1", result(Response::GetPoolStatus(answer))).await;
    let read = reading.await.unwrap();
    let Ok(Success::PoolRead { instances, .. }) = read else { panic!("{read:?}") };
    let ids: Vec<_> = instances.iter().map(|it| it.instance_id.as_str()).collect();
    assert_eq!(ids, ["a", "b", "c", "d"]);
}

#[tokio::test(start_paused = true)]
async fn what_a_driver_says_inside_an_answer_about_a_group_is_scrubbed_and_cut() {
    let error = || {
        Some(proto::OperationError {
            code: 13,
            reason: "CORE_ONLY".to_owned(),
            message: format!("canary-secret {}", "x".repeat(1 << 16)),
            ..Default::default()
        })
    };
    let is_clean = |failure: &Failure| {
        assert_eq!(failure.reason, Reason::Reserved.word());
        assert!(failure.message.starts_with("*** x") && failure.message.len() <= 2 << 10);
    };
    let faulty = |id: &str| {
        let mut one = instance(id);
        one.machine.as_mut().unwrap().fault = error().map(Box::new);
        one
    };
    let mut core = Core::start();
    let mut driver = ready(&mut core).await;
    let size = PoolSize { expected: 2, wanted: 1 };
    let instances = vec!["b".into()];
    let request = Request::DeletePoolMachines { provider_id: "group".into(), instances, size };
    core.sessions.submit(dispatch("op-1", "pool-uid", request)).unwrap();
    driver.take().await;
    let machine_provider_id = "b".to_owned();
    let not_deleted = vec![proto::PoolMachineFailure { machine_provider_id, error: error() }];
    let pool = Some(PoolRecord { fault: error().map(Box::new), ..group() });
    let answer = proto::DeletePoolMachinesResponse { pool, not_deleted, ..Default::default() };
    driver.complete("op-1", result(Response::DeletePoolMachines(answer))).await;
    let outcome = core.outcome("pool-uid").await.outcome;
    let Ok(Success::PoolMachinesDeleted { pool, not_deleted }) = outcome else {
        panic!("{outcome:?}")
    };
    is_clean(&pool.fault.unwrap());
    is_clean(&not_deleted[0].1);

    let request = Request::PoolStatus { provider_id: "group".into(), with_instances: true };
    for pages in [0, 1] {
        let (sessions, request, id) =
            (core.sessions.clone(), request.clone(), format!("read-{pages}"));
        let asked = dispatch(&id, "other-uid", request);
        let reading = tokio::spawn(async move { sessions.call(asked).await });
        driver.take().await;
        let mut machines = vec![faulty("a")];
        if pages == 1 {
            let pool_machines = std::mem::take(&mut machines);
            let page =
                OperationPage { operation_id: id.clone(), pool_machines, ..Default::default() };
            driver.say(Said::Page(page)).await;
        }
        let pool = Some(group());
        let answer = proto::GetPoolStatusResponse { pool, machines, pages };
        driver.complete(&id, result(Response::GetPoolStatus(answer))).await;
        assert_eq!(driver.acknowledged().await, id);
        let read = reading.await.unwrap();
        let Ok(Success::PoolRead { instances, .. }) = read else { panic!("{read:?}") };
        is_clean(instances[0].instance.fault.as_ref().unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn while_the_infrastructure_throttles_no_group_grows_and_instances_go() {
    let mut core = Core::start();
    let mut driver = ready(&mut core).await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    driver.take().await;
    driver.complete("op-1", throttled(MachineErrorCode::ResourceExhausted, Some(90))).await;
    core.outcome("uid-1").await;
    let before = Instant::now();
    let update = Request::UpdatePool {
        provider_id: "group".into(),
        size: Some(PoolSize { expected: 1, wanted: 2 }),
        model: None,
    };
    let mut grows = dispatch("op-2", "pool-1", update);
    grows.timeout = Duration::from_mins(10);
    core.sessions.submit(grows).unwrap();
    let delete = Request::DeletePoolMachines {
        provider_id: "group".into(),
        instances: vec!["a".into()],
        size: PoolSize { expected: 1, wanted: 0 },
    };
    core.sessions.submit(dispatch("op-3", "pool-2", delete)).unwrap();
    assert_eq!(driver.take().await.operation_id, "op-3");
    let answer = proto::DeletePoolMachinesResponse { pool: Some(group()), ..Default::default() };
    driver.complete("op-3", result(Response::DeletePoolMachines(answer))).await;
    core.outcome("pool-2").await;
    assert_eq!(driver.take().await.operation_id, "op-2");
    assert_eq!(before.elapsed(), Duration::from_secs(90));
}

#[tokio::test(start_paused = true)]
async fn machines_and_groups_have_one_rate_of_the_provider() {
    let rates = BTreeMap::from([(PROVIDER.into(), "0.5:2".parse().unwrap())]);
    let mut core = Core::with(SessionsOptions { rates, ..SessionsOptions::default() });
    let mut driver = ready(&mut core).await;
    let before = Instant::now();
    for number in 0..4 {
        let size = Some(PoolSize { expected: 1, wanted: 2 });
        let update = Request::UpdatePool { provider_id: "group".into(), size, model: None };
        let (id, uid) = (format!("op-{number}"), format!("uid-{number}"));
        let next = if number % 2 == 0 { create(&id, &uid) } else { dispatch(&id, &uid, update) };
        core.sessions.submit(next).unwrap();
    }
    let mut times = Vec::new();
    for number in 0..4 {
        assert_eq!(driver.take().await.operation_id, format!("op-{number}"));
        times.push(before.elapsed().as_secs());
    }
    assert_eq!(times, [0, 0, 2, 4]);
}

#[tokio::test(start_paused = true)]
async fn a_driver_without_groups_is_asked_nothing_of_them() {
    let mut core = Core::start();
    let _driver = Driver::ready(&mut core, 1).await;
    let request = Request::PoolStatus { provider_id: "group".into(), with_instances: false };
    let asked = dispatch("op-1", "pool-uid", request);
    assert_eq!(asked.kind(), OperationKind::GetPoolStatus);
    let Err(failure) = core.sessions.call(asked).await else { panic!("an answer") };
    assert_eq!(failure.reason, "CORE_KIND_UNSUPPORTED");
}
