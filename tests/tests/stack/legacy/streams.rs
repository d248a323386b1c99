//! Streams that break, come twice, or are left behind; and the service by its second name.

use ostler_api::machine::WaitReason;
use ostler_proto::legacy::service::driver_side::{RegisterationResp, Response};
use ostler_proto::legacy::service::servicegrpc_client::ServicegrpcClient;
use ostler_proto::legacy::service::{DriverSide, MachineClassMeta};
use ostler_tests::legacy_driver::{KIND, OldCloud};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;

use crate::legacy::answers::Raw;
use crate::legacy::scene::{PATH, create, driver, gone, has_instance, waits_for, world};

#[tokio::test(start_paused = true)]
async fn a_stream_that_breaks_while_an_instance_is_made_leaves_exactly_one() {
    let world = world().await;
    let cloud = OldCloud::default();
    let _driver = driver(&world, &cloud);
    cloud.hold(true);
    create(&world, "m", "old").await;
    cloud.until_made(1).await;
    world.legacy().hang_up();
    world.until("m", "without a driver", waits_for(WaitReason::DriverUnavailable)).await;
    cloud.hold(false);
    world.until("m", "made", has_instance).await;
    assert_eq!((cloud.made(), cloud.streams()), (1, 2));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_newest_registration_wins_though_the_old_stream_is_still_open() {
    let world = world().await;
    let mut old = Raw::register(&world).await;
    create(&world, "m", "old").await;
    assert_eq!(old.next().await.operation_type, "list");
    let cloud = OldCloud::default();
    let _driver = driver(&world, &cloud);
    assert_eq!(old.end().await.unwrap().code(), Code::Unavailable);
    assert!(old.class(PATH).await.is_err());
    world.until("m", "made", has_instance).await;
    assert_eq!(cloud.made(), 1);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn streams_that_were_left_behind_take_nothing_from_the_one_that_lives() {
    let world = world().await;
    let mut left = Vec::new();
    for _ in 0..40 {
        left.push(Raw::register(&world).await);
    }
    let cloud = OldCloud::default();
    let _driver = driver(&world, &cloud);
    create(&world, "m", "old").await;
    world.until("m", "made", has_instance).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_unregisters_gets_nothing_more_and_its_stream_ends_in_order() {
    use ostler_proto::legacy::infra::DriverSide;
    let world = world().await;
    let mut raw = Raw::register(&world).await;
    create(&world, "m", "old").await;
    let asked = raw.next().await;
    let unregister =
        DriverSide { operation_type: "unregister".to_owned(), ..DriverSide::default() };
    raw.say(unregister).await;
    // The running operation may finish.
    raw.answer(asked.operation_id, crate::legacy::answers::list(&[])).await;
    assert!(raw.end().await.is_none());
    world.until("m", "without a driver", waits_for(WaitReason::DriverUnavailable)).await;
}

#[tokio::test(start_paused = true)]
async fn the_service_answers_by_its_second_name_too() {
    let world = world().await;
    let mut client = ServicegrpcClient::new(world.legacy().connect().await.unwrap());
    let (sender, answers) = mpsc::channel(8);
    let mut stream = client.register(ReceiverStream::new(answers)).await.unwrap().into_inner();
    let asked = stream.message().await.unwrap().unwrap();
    assert_eq!((asked.operation_id, asked.operation_type.as_str()), (1, "register"));
    let [group, version, kind] = KIND.map(str::to_owned);
    let registration =
        RegisterationResp { name: "externalDriver".to_owned(), group, kind, version };
    let response = Some(Response::RegisterResp(registration));
    let answer = DriverSide { operation_id: 1, operation_type: "register".to_owned(), response };
    sender.send(answer).await.unwrap();
    create(&world, "m", "old").await;
    let asked = stream.message().await.unwrap().unwrap();
    assert_eq!((asked.operation_id, asked.operation_type.as_str()), (2, "list"));
    let name = asked.operationparams.unwrap().machine_class_meta_data.unwrap().name;
    assert_eq!(name, PATH);
    let class = MachineClassMeta { name, revision: 1 };
    let class = client.get_machine_class(class).await.unwrap().into_inner();
    assert!(class.error.is_empty() && class.data.contains("\"OldMachineClass\""), "{class:?}");
}

#[tokio::test(start_paused = true)]
async fn a_core_that_stops_ends_old_streams_and_machines_go_on_with_the_next_one() {
    let mut world = world().await;
    let cloud = OldCloud::default();
    let _driver = driver(&world, &cloud);
    create(&world, "m", "old").await;
    world.until("m", "made", has_instance).await;
    world.stop_core().await;
    world.start_core().await;
    crate::legacy::scene::delete(&world, "m").await;
    world.until("m", "gone", gone).await;
    assert_eq!(cloud.vms(), []);
    world.stop().await;
}
