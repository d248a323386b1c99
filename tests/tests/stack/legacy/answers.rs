//! Answers that no driver should give.

use std::time::Duration;

use ostler_api::machine::WaitReason;
use ostler_proto::legacy::infra::driver_side::{
    CreateResp, DeleteResp, ListResp, Machine, Response,
};
use ostler_proto::legacy::infra::infragrpc_client::InfragrpcClient;
use ostler_proto::legacy::infra::{DriverSide, MachineClassMeta, McMside, SecretMeta};
use ostler_tests::legacy_driver::{OldCloud, registration};
use ostler_tests::world::World;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use crate::legacy::scene::{create, driver, get, has_instance, waits_for, world};

/// Longest wait for the core's next word, on a paused clock; only a failing test waits that long.
const PATIENCE: Duration = Duration::from_hours(2);

/// A driver whose every word is the test's.
pub(crate) struct Raw {
    client: InfragrpcClient<Channel>,
    sender: Option<mpsc::Sender<DriverSide>>,
    stream: Streaming<McMside>,
}

impl Raw {
    /// Opens a stream and hears that it is to register.
    pub(crate) async fn open(world: &World) -> Self {
        let mut client = InfragrpcClient::new(world.legacy().connect().await.unwrap());
        let (sender, answers) = mpsc::channel(8);
        let stream = client.register(ReceiverStream::new(answers)).await.unwrap().into_inner();
        let mut raw = Self { client, sender: Some(sender), stream };
        let asked = raw.next().await;
        assert_eq!((asked.operation_id, asked.operation_type.as_str()), (1, "register"));
        assert_eq!(asked.operationparams, None);
        raw
    }

    /// Opens a stream and registers.
    pub(crate) async fn register(world: &World) -> Self {
        let mut raw = Self::open(world).await;
        raw.answer(1, Some(Response::RegisterResp(registration()))).await;
        raw
    }

    pub(crate) async fn next(&mut self) -> McMside {
        timeout(PATIENCE, self.stream.message()).await.unwrap().unwrap().unwrap()
    }

    /// How the core ended the stream.
    pub(crate) async fn end(&mut self) -> Option<Status> {
        loop {
            match timeout(PATIENCE, self.stream.message()).await.unwrap() {
                Ok(Some(_asked)) => {}
                Ok(None) => return None,
                Err(status) => return Some(status),
            }
        }
    }

    pub(crate) async fn answer(
        &mut self,
        operation_id: i32,
        response: impl Into<Option<Response>>,
    ) {
        let response = response.into();
        let answer = DriverSide { operation_id, operation_type: String::new(), response };
        self.say(answer).await;
    }

    pub(crate) async fn say(&mut self, answer: DriverSide) {
        let _ended = self.sender.as_ref().unwrap().send(answer).await;
    }

    /// Lists nothing until the core wants the instance made.
    pub(crate) async fn until_create(&mut self, mut asked: McMside) -> McMside {
        while asked.operation_type == "list" {
            self.answer(asked.operation_id, list(&[])).await;
            asked = self.next().await;
        }
        asked
    }

    pub(crate) async fn class(&mut self, name: &str) -> Result<String, String> {
        let asked = MachineClassMeta { name: name.to_owned(), revision: 1 };
        let found = self.client.get_machine_class(asked).await.unwrap().into_inner();
        if found.error.is_empty() { Ok(found.data) } else { Err(found.error) }
    }

    pub(crate) async fn secret(&mut self, namespace: &str, name: &str) -> Result<String, String> {
        let (secret_name, name_space) = (name.to_owned(), namespace.to_owned());
        let asked = SecretMeta { secret_name, name_space, revision: 1 };
        let found = self.client.get_secret(asked).await.unwrap().into_inner();
        if found.error.is_empty() { Ok(found.data) } else { Err(found.error) }
    }
}

pub(crate) fn list(machines: &[(&str, &str)]) -> Response {
    let machine = |(id, name): &(&str, &str)| Machine {
        machine_id: (*id).to_owned(),
        machine_name: (*name).to_owned(),
    };
    let list = machines.iter().map(machine).collect();
    Response::Listresponse(ListResp { list, error: String::new() })
}

fn made(id: &str) -> Response {
    Response::Createresponse(CreateResp {
        provider_id: id.to_owned(),
        nodename: String::new(),
        error: String::new(),
    })
}

#[tokio::test(start_paused = true)]
async fn answers_that_nobody_asked_for_are_dropped_and_change_nothing() {
    let world = world().await;
    let mut raw = Raw::register(&world).await;
    create(&world, "m", "old").await;
    let asked = raw.next().await;
    assert_eq!(asked.operation_id, 2, "registration was 1");
    for id in [1, 1, 0, -1, 3, i32::MAX] {
        raw.answer(id, list(&[("old:///eu/i-666", "m")])).await;
    }
    let asked = raw.until_create(asked).await;
    raw.answer(asked.operation_id - 1, made("old:///eu/i-666")).await;
    raw.answer(asked.operation_id, made("old:///eu/i-1")).await;
    raw.answer(asked.operation_id, made("old:///eu/i-667")).await;
    world.until("m", "made", has_instance).await;
    assert_eq!(get(&world, "m").await.provider_id(), Some(&"old:///eu/i-1".into()));
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_another_kind_leaves_the_create_unknown_and_the_instance_is_found_by_a_list() {
    let world = world().await;
    let mut raw = Raw::register(&world).await;
    create(&world, "m", "old").await;
    let asked = raw.next().await;
    let asked = raw.until_create(asked).await;
    let gone = Response::Deleteresponse(DeleteResp { error: String::new() });
    raw.answer(asked.operation_id, Some(gone)).await;
    let asked = raw.next().await;
    assert_eq!(asked.operation_type, "list", "looks before it creates again");
    raw.answer(asked.operation_id, list(&[("old:///eu/i-1", "m")])).await;
    world.until("m", "made", has_instance).await;
}

#[tokio::test(start_paused = true)]
async fn after_an_error_without_a_code_a_minute_passes_and_two_lists_before_the_next_create() {
    let world = world().await;
    let mut raw = Raw::register(&world).await;
    create(&world, "m", "old").await;
    let asked = raw.next().await;
    let asked = raw.until_create(asked).await;
    let failed = tokio::time::Instant::now();
    let error = CreateResp {
        provider_id: "Error".to_owned(),
        nodename: "Error".to_owned(),
        error: "RequestTimeout".to_owned(),
    };
    raw.answer(asked.operation_id, Some(Response::Createresponse(error))).await;
    let mut lists = 0;
    loop {
        let asked = raw.next().await;
        if asked.operation_type == "create" {
            break;
        }
        lists += 1;
        raw.answer(asked.operation_id, list(&[])).await;
    }
    assert!(lists >= 2 && failed.elapsed() >= Duration::from_mins(1), "{:?}", failed.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_five_megabytes_ends_the_stream_and_not_the_core() {
    let world = world().await;
    let mut raw = Raw::register(&world).await;
    create(&world, "m", "old").await;
    let asked = raw.next().await;
    raw.answer(asked.operation_id, list(&[("old:///eu/i-1", &"m".repeat(5 << 20))])).await;
    assert!(raw.end().await.is_some());
    let cloud = OldCloud::default();
    let _driver = driver(&world, &cloud);
    world.until("m", "made", has_instance).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_never_answers_is_asked_nothing_else_until_it_does() {
    let world = world().await;
    let mut raw = Raw::register(&world).await;
    create(&world, "m", "old").await;
    let asked = raw.next().await;
    let asked = raw.until_create(asked).await;
    world.until("m", "without a driver", waits_for(WaitReason::DriverUnavailable)).await;
    create(&world, "n", "old").await;
    world.until("n", "without a driver", waits_for(WaitReason::DriverUnavailable)).await;
    // The late answer does not count for the instance, but shows that the driver is free.
    raw.answer(asked.operation_id, made("old:///eu/i-1")).await;
    let asked = raw.next().await;
    assert_eq!(asked.operation_type, "list");
    raw.answer(asked.operation_id, list(&[("old:///eu/i-1", "m"), ("old:///eu/i-2", "n")])).await;
}

#[tokio::test(start_paused = true)]
async fn whoever_does_not_register_properly_is_turned_away() {
    let world = world().await;
    let mut stranger = registration();
    stranger.kind = "NewMachineClass".to_owned();
    let cases = [
        (1, Some(Response::RegisterResp(stranger)), Code::PermissionDenied),
        (2, Some(Response::RegisterResp(registration())), Code::FailedPrecondition),
        (1, Some(list(&[])), Code::FailedPrecondition),
        (1, None, Code::FailedPrecondition),
    ];
    for (id, response, code) in cases {
        let mut raw = Raw::open(&world).await;
        raw.answer(id, response).await;
        assert_eq!(raw.end().await.unwrap().code(), code);
    }
    let mut silent = Raw::open(&world).await;
    assert_eq!(silent.end().await.unwrap().code(), Code::DeadlineExceeded);
}
