//! What sessions cost: a thousand drivers that connect together, the memory of an idle session, and that of operations
//! that wait for a driver: `cargo bench -p ostler-sessions --bench load`.
//!
//! The core is a separate process, to measure its memory alone. Commands come on stdin, a word a line.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark")]

use ostler_api::ProviderId;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ostler_api::operation::{self, ClassReference, Dispatch, Lane, Target, UserData};
use ostler_proto::v1alpha1::driver_service_client::DriverServiceClient;
use ostler_proto::v1alpha1::{
    DriverState, Hello, OperationKind, Readiness, RegisterRequest, register_request,
    register_response,
};
use ostler_sessions::{
    ClassContent, ClassError, ClassSource, Principal, Providers, SecretContent, Sessions,
    SessionsOptions, StaticTokens, Term,
};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Request;
use tonic::transport::{Channel, Endpoint};

const DRIVERS: usize = 1000;
const QUEUED: usize = 1000;
const CORE: &str = "OSTLER_BENCH_CORE";

fn main() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    if std::env::var_os(CORE).is_some() {
        runtime.block_on(core());
    } else {
        runtime.block_on(measure());
    }
}

async fn measure() {
    let mut core = Core::start();
    let idle = core.resident();
    let channel_of = |_| Endpoint::from_shared(core.endpoint.clone()).unwrap().connect_lazy();
    let channels: Vec<Channel> = (0..DRIVERS).map(channel_of).collect();
    let started = Instant::now();
    let mut connecting = JoinSet::new();
    for (number, channel) in channels.into_iter().enumerate() {
        connecting.spawn(async move {
            loop {
                match connect(channel.clone(), number).await {
                    Ok(held) => return held,
                    // Too many together: each comes back at a time of its own, as drivers do.
                    Err(status) => {
                        assert_eq!(status.code(), tonic::Code::Unavailable, "{status}");
                        let spread = u64::try_from(number % 100).unwrap();
                        tokio::time::sleep(Duration::from_millis(1000 + 5 * spread)).await;
                    }
                }
            }
        });
    }
    let sessions = connecting.join_all().await;
    println!("{DRIVERS} drivers connected together: all welcomed after {:.2?}", started.elapsed());
    let connected = core.resident();
    println!(
        "memory of an idle session: {:.1} KiB (core {} MiB before, {} MiB with {DRIVERS})",
        kib_each(connected, idle, DRIVERS),
        idle / 1024,
        connected / 1024,
    );
    core.say("queue");
    let queued = core.resident();
    println!(
        "memory of an operation that waits for its driver: {:.1} KiB ({QUEUED} queued: {} MiB)",
        kib_each(queued, connected, QUEUED),
        queued / 1024,
    );
    drop(sessions);
}

#[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
fn kib_each(after: u64, before: u64, count: usize) -> f64 {
    after.saturating_sub(before) as f64 / count as f64
}

fn provider(number: usize) -> String {
    format!("bench-{number}.ostler.dev")
}

type Held =
    (mpsc::Sender<RegisterRequest>, tonic::Streaming<ostler_proto::v1alpha1::RegisterResponse>);

/// A driver of a provider of its own; returns once it is welcome.
async fn connect(channel: Channel, number: usize) -> Result<Held, tonic::Status> {
    use register_request::Frame;
    let (out, frames) = mpsc::channel(4);
    let hello = Hello {
        provider: provider(number),
        instance_id: uuid::Uuid::new_v4().to_string(),
        operation_kinds: [
            OperationKind::CreateMachine,
            OperationKind::DeleteMachine,
            OperationKind::GetMachineStatus,
            OperationKind::ListMachines,
        ]
        .map(Into::into)
        .to_vec(),
        max_in_flight: 16,
        ..Hello::default()
    };
    // Ready for sixteen, and answers none: what else is sent to it waits.
    let state = DriverState {
        readiness: Readiness::Ready.into(),
        max_in_flight: 16,
        ..DriverState::default()
    };
    for frame in [Frame::Hello(Box::new(hello)), Frame::State(state)] {
        out.send(RegisterRequest { frame: Some(frame) }).await.unwrap();
    }
    let mut request = Request::new(ReceiverStream::new(frames));
    let token = format!("Bearer token-{number}");
    request.metadata_mut().insert("authorization", token.parse().unwrap());
    let mut client = DriverServiceClient::new(channel);
    let mut heard = client.register(request).await?.into_inner();
    let welcome = heard.message().await.unwrap().unwrap();
    assert!(matches!(welcome.frame, Some(register_response::Frame::Welcome(_))), "{welcome:?}");
    Ok((out, heard))
}

/// The core, seen from outside.
struct Core {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    endpoint: String,
}

impl Core {
    fn start() -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .env(CORE, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut core = Self { child, stdin, stdout, endpoint: String::new() };
        core.endpoint = core.line();
        core
    }

    /// Tells the core something and waits until it is done.
    fn say(&mut self, word: &str) {
        writeln!(self.stdin, "{word}").unwrap();
        self.line();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// In KiB.
    fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").trim().parse().unwrap()
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        let _already_gone = self.child.kill();
        let _already_reaped = self.child.wait();
    }
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

/// The core itself.
async fn core() {
    let tokens = (0..DRIVERS).fold(StaticTokens::new(), |tokens, number| {
        let principal = Principal::new(format!("bench-{number}"), Providers::Any);
        tokens.with(&format!("token-{number}"), principal)
    });
    let options = SessionsOptions::default();
    let sessions = Sessions::new(options, Arc::new(NoClasses), Arc::new(tokens));
    sessions.lead(Term(1));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("http://{}", listener.local_addr().unwrap());
    let serving = sessions.clone();
    tokio::spawn(async move { serving.serve_tcp(listener, std::future::pending()).await.unwrap() });
    let lines = tokio::task::spawn_blocking(move || {
        for _ in std::io::stdin().lock().lines().map_while(Result::ok) {
            for number in 0..QUEUED {
                sessions.submit(create(number)).unwrap();
            }
            println!("queued");
        }
    });
    lines.await.unwrap();
}

/// As the controllers send it, with a kilobyte of user data.
fn create(number: usize) -> Dispatch {
    let uid = uuid::Uuid::new_v4().to_string();
    Dispatch {
        provider: provider(0).into(),
        id: uuid::Uuid::new_v4().to_string().into(),
        idempotency_key: format!("{uid}:c"),
        target: Target {
            kind: "Machine".to_owned(),
            namespace: "default".to_owned(),
            name: format!("machine-{number}"),
            uid: uid.into(),
        },
        class: None,
        request: operation::Request::Create {
            user_data: Some(UserData::new(vec![b'x'; 1024])),
            provider_id: ProviderId::default(),
        },
        timeout: Duration::from_mins(20),
        checkpoint: String::new(),
        adopt_by_name: false,
        machine: None,
        lane: Lane::User,
    }
}
