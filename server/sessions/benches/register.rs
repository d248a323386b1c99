//! Operations through a session beside frames through bare tonic streams, over TCP loopback in one process:
//! `cargo bench -p ostler-sessions --bench register -- 9`, where 9 is the number of rounds. `-- 9 session 64` runs one of them
//! alone, and with so many in flight alone, for a profiler. CPU is what the process used for a round trip: it says on a busy
//! machine, too, what costs less.
//!
//! * `echo`: one small frame each way; a single task sends all frames, and another echoes.
//! * `calls`: the frames of a session (Operation, OperationCompleted) with the same driver and as many callers, each a
//!   task that waits for its answer; behind them no core, but a slot for each.
//! * `session`: what a controller pays: `call` → Operation → Completed → outcome → acknowledgement.
//!
//! The three take turns in each round, in a new order each time, so that a busy machine is busy for all; ratios are those
//! within a round.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark")]

use ostler_api::ProviderId;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ostler_api::operation::{ClassReference, Dispatch, Lane, Request as Asked, Target};
use ostler_proto::v1alpha1::driver_service_client::DriverServiceClient;
use ostler_proto::v1alpha1::driver_service_server::{DriverService, DriverServiceServer};
use ostler_proto::v1alpha1::{
    DriverState, GetMachineClassRequest, GetMachineClassResponse, GetMachineStatusRequest,
    GetMachineStatusResponse, GetSecretRequest, GetSecretResponse, Heartbeat, Hello, Operation,
    OperationCompleted, OperationKind, OperationResult, Readiness, RegisterRequest,
    RegisterResponse, Target as WireTarget, operation, operation_completed, operation_result,
    register_request, register_response,
};
use ostler_sessions::{
    ClassContent, ClassError, ClassSource, Principal, Providers, SecretContent, SessionEvent,
    Sessions, SessionsOptions, StaticTokens,
};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};

/// The allocator of the product's programs.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const PROVIDER: &str = "bench.ostler.dev";
const TOKEN: &str = "bench";
const ROUND: Duration = Duration::from_secs(1);
/// The first argument says another number.
const ROUNDS: usize = 9;
const SORTS: [&str; 3] = ["echo", "calls", "session"];

#[tokio::main]
async fn main() {
    let mut numbers = std::env::args().filter_map(|it| it.parse().ok());
    let rounds = numbers.next().unwrap_or(ROUNDS);
    let depths = numbers.next().map_or_else(|| vec![1, 64], |depth| vec![depth]);
    let alone = SORTS.iter().position(|sort| std::env::args().any(|it| it == *sort));
    println!("round trips, medians of {rounds} rounds of {ROUND:?} of each, TCP loopback\n");
    println!(
        "| in flight | | per second | of echo | of calls | p99 | CPU |\n|---|---|---|---|---|---|---|"
    );
    for in_flight in depths {
        let mut of: [Vec<Round>; 3] = Default::default();
        for round in 0..rounds {
            for turn in 0..SORTS.len() {
                let sort = (round + turn) % SORTS.len();
                if alone.is_some_and(|alone| alone != sort) {
                    continue;
                }
                let result = match sort {
                    0 => echo(in_flight).await,
                    1 => calls(in_flight).await,
                    _ => session(in_flight).await,
                };
                of.get_mut(sort).unwrap().push(result);
            }
        }
        let [echoes, calls, _] = &of;
        for (name, results) in SORTS.iter().zip(&of).filter(|(_, results)| !results.is_empty()) {
            let ratio = |to: &[Round]| {
                median(results.iter().zip(to).map(|(this, other)| this.rate / other.rate))
            };
            let rate = median(results.iter().map(|it| it.rate));
            let p99 =
                Duration::from_secs_f64(median(results.iter().map(|it| it.p99.as_secs_f64())));
            let cpu = median(results.iter().map(|it| it.cpu));
            let (of_echo, of_calls) = (ratio(echoes), ratio(calls));
            println!(
                "| {in_flight} | {name} | {rate:.0} | {of_echo:.2} | {of_calls:.2} | {p99:.0?} | {cpu:.2} µs |"
            );
        }
    }
}

/// The result of a round.
struct Round {
    /// Round trips in a second.
    rate: f64,
    p99: Duration,
    /// Microseconds of all threads for a round trip.
    cpu: f64,
}

/// Finished round trips, with their times in nanoseconds.
#[derive(Default)]
struct Trips {
    count: AtomicU64,
    times: Mutex<Vec<u64>>,
}

impl Trips {
    fn ended(&self, began: Instant) {
        let nanoseconds = u64::try_from(began.elapsed().as_nanos()).unwrap();
        // One in sixteen is enough for a percentile, and costs the rate little.
        if self.count.fetch_add(1, Ordering::Relaxed).is_multiple_of(16) {
            self.times.lock().unwrap().push(nanoseconds);
        }
    }

    fn p99(&self) -> Duration {
        let mut times = self.times.lock().unwrap();
        times.sort_unstable();
        Duration::from_nanos(times.get(times.len() * 99 / 100).copied().unwrap_or_default())
    }
}

fn median(of: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = of.collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Counts for one round.
async fn round(trips: &Trips) -> Round {
    let done = &trips.count;
    // The first moments warm up.
    tokio::time::sleep(ROUND / 4).await;
    trips.times.lock().unwrap().clear();
    let (before, start, used) = (done.load(Ordering::Relaxed), Instant::now(), cpu());
    tokio::time::sleep(ROUND).await;
    let count = f64::from(u32::try_from(done.load(Ordering::Relaxed) - before).unwrap());
    let (took, cpu) = (start.elapsed().as_secs_f64(), (cpu() - used) / count);
    Round { rate: count / took, p99: trips.p99(), cpu }
}

/// CPU microseconds used by this process.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let (_, rest) = stat.rsplit_once(')').unwrap();
    // utime and stime, in hundredths of a second.
    rest.split(' ').skip(12).take(2).map(|it| it.parse::<f64>().unwrap()).sum::<f64>() * 10_000.0
}

fn client(listener: &TcpListener) -> DriverServiceClient<tonic::transport::Channel> {
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let endpoint = tonic::transport::Endpoint::from_shared(endpoint).unwrap();
    DriverServiceClient::new(endpoint.connect_lazy())
}

/// Answers every frame with one.
struct Echo;

#[tonic::async_trait]
impl DriverService for Echo {
    type RegisterStream = ReceiverStream<Result<RegisterResponse, Status>>;

    async fn register(
        &self,
        request: Request<Streaming<RegisterRequest>>,
    ) -> Result<Response<Self::RegisterStream>, Status> {
        let mut frames = request.into_inner();
        let (out, answers) = mpsc::channel(64);
        tokio::spawn(async move {
            while let Ok(Some(frame)) = frames.message().await {
                let Some(register_request::Frame::Heartbeat(beat)) = frame.frame else { return };
                let frame = Some(register_response::Frame::Heartbeat(beat));
                let answer = RegisterResponse { frame };
                if out.send(Ok(answer)).await.is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(answers)))
    }

    async fn get_machine_class(
        &self,
        _: Request<GetMachineClassRequest>,
    ) -> Result<Response<GetMachineClassResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn get_secret(
        &self,
        _: Request<GetSecretRequest>,
    ) -> Result<Response<GetSecretResponse>, Status> {
        Err(Status::unimplemented(""))
    }
}

async fn echo(in_flight: usize) -> Round {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = client(&listener);
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let server = Server::builder().add_service(DriverServiceServer::new(Echo));
    let server = tokio::spawn(server.serve_with_incoming(incoming));
    let (out, frames) = mpsc::channel(in_flight);
    let frame = |number| {
        let sent_at = Some(prost_types::Timestamp { seconds: number, nanos: 0 });
        let beat = Heartbeat { sent_at, ..Heartbeat::default() };
        RegisterRequest { frame: Some(register_request::Frame::Heartbeat(beat)) }
    };
    let mut began = vec![Instant::now(); in_flight];
    for number in 0..i64::try_from(in_flight).unwrap() {
        out.send(frame(number)).await.unwrap();
    }
    let trips = Arc::new(Trips::default());
    let counted = Arc::clone(&trips);
    let echo = tokio::spawn(async move {
        let mut answers = client.register(ReceiverStream::new(frames)).await.unwrap().into_inner();
        while let Ok(Some(answer)) = answers.message().await {
            let Some(register_response::Frame::Heartbeat(beat)) = answer.frame else { return };
            let number = beat.sent_at.unwrap_or_default().seconds;
            let began = began.get_mut(usize::try_from(number).unwrap()).unwrap();
            counted.ended(*began);
            *began = Instant::now();
            out.send(frame(number)).await.unwrap();
        }
    });
    let round = round(&trips).await;
    echo.abort();
    server.abort();
    round
}

/// A core that only knows the callers and their answers.
struct Least {
    in_flight: usize,
    trips: Arc<Trips>,
    cluster_id: String,
}

#[tonic::async_trait]
impl DriverService for Least {
    type RegisterStream = ReceiverStream<Result<RegisterResponse, Status>>;

    async fn register(
        &self,
        request: Request<Streaming<RegisterRequest>>,
    ) -> Result<Response<Self::RegisterStream>, Status> {
        let mut frames = request.into_inner();
        let (out, answers) = mpsc::channel(256);
        let waiting: Vec<Mutex<Option<oneshot::Sender<OperationCompleted>>>> =
            (0..self.in_flight).map(|_| Mutex::default()).collect();
        let waiting = Arc::new(waiting);
        for caller in 0..self.in_flight {
            let (out, waiting) = (out.clone(), Arc::clone(&waiting));
            let (trips, cluster_id) = (Arc::clone(&self.trips), self.cluster_id.clone());
            tokio::spawn(async move {
                loop {
                    let began = Instant::now();
                    let (sender, answer) = oneshot::channel();
                    *waiting.get(caller).unwrap().lock().unwrap() = Some(sender);
                    let operation = operation(caller, &cluster_id);
                    let frame = Some(register_response::Frame::Operation(operation));
                    if out.send(Ok(RegisterResponse { frame })).await.is_err() {
                        return;
                    }
                    drop(answer.await);
                    trips.ended(began);
                }
            });
        }
        tokio::spawn(async move {
            while let Ok(Some(frame)) = frames.message().await {
                if let Some(register_request::Frame::Completed(completed)) = frame.frame {
                    let caller: usize = completed.operation_id.parse().unwrap();
                    let sender = waiting.get(caller).unwrap().lock().unwrap().take().unwrap();
                    drop(sender.send(*completed));
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(answers)))
    }

    async fn get_machine_class(
        &self,
        _: Request<GetMachineClassRequest>,
    ) -> Result<Response<GetMachineClassResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn get_secret(
        &self,
        _: Request<GetSecretRequest>,
    ) -> Result<Response<GetSecretResponse>, Status> {
        Err(Status::unimplemented(""))
    }
}

/// As the core sends [`read`].
fn operation(caller: usize, cluster_id: &str) -> Box<Operation> {
    let id = caller.to_string();
    let request = operation::Request::GetMachineStatus(GetMachineStatusRequest::default());
    Box::new(Operation {
        idempotency_key: format!("{id}:s"),
        target: Some(WireTarget { uid: id.clone(), ..WireTarget::default() }),
        operation_id: id,
        fencing_term: 1,
        delivery: 1,
        timeout: Some(prost_types::Duration { seconds: 60, nanos: 0 }),
        cluster_id: cluster_id.to_owned(),
        request: Some(request),
        ..Operation::default()
    })
}

async fn calls(in_flight: usize) -> Round {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let driver = tokio::spawn(drive(client(&listener)));
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let trips = Arc::new(Trips::default());
    // A new UUID for every default: once, as a core does.
    let cluster_id = SessionsOptions::default().cluster_id;
    let least = Least { in_flight, trips: Arc::clone(&trips), cluster_id };
    let server = Server::builder().add_service(DriverServiceServer::new(least));
    let server = tokio::spawn(server.serve_with_incoming(incoming));
    let round = round(&trips).await;
    driver.abort();
    server.abort();
    round
}

struct NoClasses;

#[ostler_sessions::async_trait]
impl ClassSource for NoClasses {
    fn class(&self, _: &str, _: &str) -> Result<ClassContent, ClassError> {
        Err(ClassError::NotFound)
    }

    async fn secret(&self, _: &ClassReference) -> Result<SecretContent, ClassError> {
        Err(ClassError::NotFound)
    }
}

async fn session(in_flight: usize) -> Round {
    let principal = Principal::new("bench", Providers::Any);
    let tokens = StaticTokens::new().with(TOKEN, principal);
    let options = SessionsOptions::default();
    let sessions = Sessions::new(options, Arc::new(NoClasses), Arc::new(tokens));
    sessions.lead(ostler_sessions::Term(1));
    let mut events = sessions.subscribe();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = client(&listener);
    let serving = sessions.clone();
    let server = tokio::spawn(async move {
        serving.serve_tcp(listener, std::future::pending()).await.unwrap();
    });
    let driver = tokio::spawn(drive(client));
    while !matches!(events.recv().await, Ok(SessionEvent::ProviderReady { .. })) {}
    let trips = Arc::new(Trips::default());
    let callers: Vec<_> = (0..in_flight)
        .map(|caller| {
            let (sessions, trips) = (sessions.clone(), Arc::clone(&trips));
            tokio::spawn(async move {
                for number in 0_u64.. {
                    let began = Instant::now();
                    // Without its driver a call fails immediately: such a caller would go on for ever, and take a CPU from the rounds
                    // that follow.
                    if sessions.call(read(&format!("{caller}-{number}"))).await.is_err() {
                        return;
                    }
                    trips.ended(began);
                }
            })
        })
        .collect();
    let round = round(&trips).await;
    driver.abort();
    for caller in callers {
        caller.await.unwrap();
    }
    server.abort();
    round
}

fn read(id: &str) -> Dispatch {
    Dispatch {
        provider: PROVIDER.into(),
        id: id.into(),
        idempotency_key: format!("{id}:s"),
        target: Target { uid: id.into(), ..Target::default() },
        class: None,
        request: Asked::Status { provider_id: ProviderId::default() },
        timeout: Duration::from_mins(1),
        checkpoint: String::new(),
        adopt_by_name: false,
        machine: None,
        lane: Lane::User,
    }
}

/// A driver that answers immediately.
async fn drive(mut client: DriverServiceClient<tonic::transport::Channel>) {
    use register_request::Frame;
    let (out, frames) = mpsc::channel(256);
    let say = async |frame| {
        // The core goes first.
        drop(out.send(RegisterRequest { frame: Some(frame) }).await);
    };
    say(Frame::Hello(Box::new(Hello {
        provider: PROVIDER.to_owned(),
        instance_id: uuid::Uuid::new_v4().to_string(),
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
    })))
    .await;
    let state = DriverState {
        readiness: Readiness::Ready.into(),
        max_in_flight: 256,
        ..DriverState::default()
    };
    say(Frame::State(state)).await;
    let mut request = Request::new(ReceiverStream::new(frames));
    request.metadata_mut().insert("authorization", format!("Bearer {TOKEN}").parse().unwrap());
    let mut heard = client.register(request).await.unwrap().into_inner();
    while let Ok(Some(frame)) = heard.message().await {
        match frame.frame {
            Some(register_response::Frame::Operation(operation)) => {
                let operation_id = operation.operation_id;
                let status = GetMachineStatusResponse::default();
                let response = operation_result::Response::GetMachineStatus(status);
                let result = OperationResult { response: Some(response) };
                let outcome = Some(operation_completed::Outcome::Result(result));
                let completed =
                    OperationCompleted { operation_id, outcome, ..OperationCompleted::default() };
                say(Frame::Completed(Box::new(completed))).await;
            }
            Some(register_response::Frame::Heartbeat(beat)) => say(Frame::Heartbeat(beat)).await,
            Some(
                register_response::Frame::Welcome(_)
                | register_response::Frame::Cancel(_)
                | register_response::Frame::ResultAck(_)
                | register_response::Frame::Role(_)
                | register_response::Frame::Draining(_)
                | register_response::Frame::Invalidate(_)
                | register_response::Frame::ProtocolError(_),
            )
            | None => {}
        }
    }
}
