//! A driver that reads nothing.

use ostler_api::ProviderId;
use ostler_api::operation::{self, OperationView, UserData};
use ostler_proto::v1alpha1::driver_service_client::DriverServiceClient;
use ostler_proto::v1alpha1::register_request::Frame;
use ostler_proto::v1alpha1::{
    DriverState, Heartbeat, Hello, OperationKind, Readiness, RegisterRequest,
};
use ostler_sessions::Limits;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Request;
use tonic::transport::Endpoint;

use crate::links::ground::{Ground, OTHER, PROVIDER, Patient, TOKEN, dispatch, status};

/// What HTTP/2 and the sockets take up on the way, beside what is counted.
const PIPES: u64 = 4 << 20;

fn frames() -> impl Iterator<Item = RegisterRequest> {
    let hello = Hello {
        provider: PROVIDER.to_owned(),
        instance_id: "00000000-0000-4000-8000-000000000001".to_owned(),
        operation_kinds: [
            OperationKind::CreateMachine,
            OperationKind::DeleteMachine,
            OperationKind::GetMachineStatus,
            OperationKind::ListMachines,
        ]
        .map(Into::into)
        .to_vec(),
        max_in_flight: 256,
        ..Hello::default()
    };
    let state = DriverState {
        readiness: Readiness::Ready.into(),
        max_in_flight: 256,
        ..DriverState::default()
    };
    let beats = std::iter::repeat_with(|| Frame::Heartbeat(Heartbeat::default()));
    let all = [Frame::Hello(Box::new(hello)), Frame::State(state)].into_iter().chain(beats);
    all.map(|frame| RegisterRequest { frame: Some(frame) })
}

#[tokio::test]
async fn f10_a_driver_that_reads_nothing_costs_little_and_holds_nobody_up() {
    let mut ground = Ground::start().await;
    let other = Patient::of(OTHER);
    let end = other.run(ground.direct);
    ground.ready(OTHER).await;

    let channel =
        Endpoint::from_shared(format!("http://{}", ground.proxy.address())).unwrap().connect_lazy();
    let (said, stream) = mpsc::channel(1);
    let mut request = Request::new(ReceiverStream::new(stream));
    request.metadata_mut().insert("authorization", format!("Bearer {TOKEN}").parse().unwrap());
    // The driver goes on talking, so that the core does not take it for dead, and never reads its stream.
    let talking = tokio::spawn(async move {
        for frame in frames() {
            if said.send(frame).await.is_err() {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    });
    let unread = DriverServiceClient::new(channel).register(request).await.unwrap();
    ground.ready(PROVIDER).await;

    for number in 0..200 {
        let user_data = Some(UserData::new(vec![0; 256 << 10]));
        let (id, uid) = (format!("op-{number}"), format!("uid-{number}"));
        let request = operation::Request::Create { user_data, provider_id: ProviderId::default() };
        ground.sessions.submit(dispatch(PROVIDER, &id, &uid, request)).unwrap();
    }
    // 50 MB are due to the driver: the core sends as much as may stay unread, and keeps the rest in the queue, which
    // has its own limit.
    let states = ground.sessions.providers();
    let deaf = states.iter().find(|state| state.provider == PROVIDER).unwrap();
    let window = Limits::default().unaccepted_bytes;
    assert!(deaf.in_flight <= window / (256 << 10) + 1, "{}", deaf.in_flight);
    assert_eq!(deaf.in_flight + deaf.queued, 200);

    for number in 0..100 {
        let outcome = ground.sessions.call(status(OTHER, &format!("s-{number}"))).await;
        assert!(matches!(&outcome, Err(it) if it.code.name() == "NotFound"));
    }
    ground.gone(PROVIDER).await;
    let most = u64::try_from(window).unwrap() + PIPES;
    assert!(ground.proxy.bytes_down() <= most, "{} bytes", ground.proxy.bytes_down());
    // What was sent is unknown or comes back; what was not sent waits for a driver that reads.
    assert!(matches!(ground.sessions.view("uid-199"), OperationView::InFlight(_)));
    drop(unread);
    talking.abort();
    end.cancel();
}
