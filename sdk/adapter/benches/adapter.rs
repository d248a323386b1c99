//! One operation through adapter and stream beside one of the Rust driver on the stream:
//! `cargo bench -p ostler-adapter`.
//!
//! Four processes: the core, the driver in Rust, the adapter, and a unary driver in Rust behind it. Both
//! drivers have the same calls, which do nothing or wait as an infrastructure would. Their rounds take turns,
//! so that a busy machine is busy for both.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark")]

#[path = "adapter/drivers.rs"]
mod drivers;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ostler_api::operation::{ClassReference, Dispatch, Lane, Request, Target, UserData};
use ostler_sessions::{
    ClassContent, ClassError, ClassSource, Principal, Providers, SecretContent, SessionEvent,
    Sessions, SessionsOptions, StaticTokens, Term,
};
use tokio::net::TcpListener;
use uuid::Uuid;

use self::drivers::{ADAPTED, DIRECT, ROLE, TOKEN};

/// The allocator of the product's programs.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ROUND: Duration = Duration::from_millis(400);
const WARM_UP: Duration = Duration::from_secs(1);
/// The first argument says another number.
const ROUNDS: usize = 15;

fn main() {
    let role = std::env::var(ROLE);
    let mut builder = match role.as_deref() {
        // As the adapter itself.
        Ok("adapter") => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = builder.enable_all().build().unwrap();
    match role.as_deref() {
        Ok(role) => runtime.block_on(drivers::run(role)),
        Err(_) => runtime.block_on(measure()),
    }
}

async fn measure() {
    let directory = tempfile::tempdir().unwrap();
    let (sessions, endpoint) = core().await;
    let mut events = sessions.subscribe();
    let processes = ["direct", "unary", "adapter"]
        .map(|role| Process::start(role, &endpoint, directory.path()));
    for _ in [DIRECT, ADAPTED] {
        while !matches!(events.recv().await, Ok(SessionEvent::ProviderReady { .. })) {}
    }
    let bench = Bench { sessions, processes: &processes };
    let rounds = std::env::args().find_map(|it| it.parse().ok()).unwrap_or(ROUNDS);
    println!(
        "medians of {rounds} pairs of rounds of {ROUND:?}; direct: the driver in Rust on the stream\n"
    );
    println!(
        "| call | in flight | direct | adapter | more | direct | adapter | ratio | CPU direct | CPU adapter |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for (class, work) in [("idle", ""), ("10", ", 10 ms of work")] {
        for verb in [Verb::Status, Verb::Create] {
            for in_flight in [1, 64] {
                let row = pairs(&bench, verb, class, in_flight, rounds).await;
                println!("| {verb:?}{work} | {in_flight} {row}");
            }
        }
    }
}

/// Rounds of one driver.
#[derive(Debug, Default)]
struct Side {
    /// The median time of a call in each round, in microseconds.
    micros: Vec<f64>,
    /// Calls per second in each.
    rates: Vec<f64>,
    /// Of all rounds.
    calls: f64,
    /// CPU time of all processes in all rounds, in microseconds.
    cpu: f64,
}

impl Side {
    fn row(direct: &Self, adapted: &Self) -> String {
        let of = |values: &[f64]| median(values.iter().copied());
        let pairs = |a: &[f64], b: &[f64], f: fn(f64, f64) -> f64| {
            median(a.iter().zip(b).map(|(&a, &b)| f(a, b)))
        };
        format!(
            "| {:.0} µs | {:.0} µs | {:.0} µs | {:.0} /s | {:.0} /s | {:.2} | {:.0} µs | {:.0} µs |",
            of(&direct.micros),
            of(&adapted.micros),
            pairs(&direct.micros, &adapted.micros, |direct, adapted| adapted - direct),
            of(&direct.rates),
            of(&adapted.rates),
            pairs(&direct.rates, &adapted.rates, |direct, adapted| adapted / direct),
            direct.cpu / direct.calls,
            adapted.cpu / adapted.calls,
        )
    }
}

/// Rounds of both drivers, in turns, as the rest of a row.
async fn pairs(
    bench: &Bench<'_>,
    verb: Verb,
    class: &'static str,
    in_flight: usize,
    rounds: usize,
) -> String {
    let Bench { sessions, processes } = bench;
    let round = |provider, time| round(sessions, provider, verb, class, in_flight, time);
    let (mut direct, mut adapted) = (Side::default(), Side::default());
    for provider in [DIRECT, ADAPTED] {
        round(provider, WARM_UP).await;
    }
    for _ in 0..rounds {
        for (provider, side) in [(DIRECT, &mut direct), (ADAPTED, &mut adapted)] {
            let before = cpu(processes);
            let (micros, rate, calls) = round(provider, ROUND).await;
            side.cpu += cpu(processes) - before;
            side.micros.push(micros);
            side.rates.push(rate);
            side.calls += calls;
        }
    }
    Side::row(&direct, &adapted)
}

struct Bench<'a> {
    sessions: Sessions,
    processes: &'a [Process],
}

/// The CPU time of this process and of `processes`, in microseconds.
fn cpu(processes: &[Process]) -> f64 {
    let ids = processes.iter().map(|it| it.0.id()).chain([std::process::id()]);
    let ticks = ids.flat_map(|id| {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
        let (_, rest) = stat.rsplit_once(')').unwrap();
        // utime and stime, in hundredths of a second.
        let ticks: Vec<f64> =
            rest.split(' ').skip(12).take(2).map(|it| it.parse().unwrap()).collect();
        ticks
    });
    ticks.sum::<f64>() * 10_000.0
}

fn median(of: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = of.collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap()
}

#[derive(Debug, Clone, Copy)]
enum Verb {
    Status,
    Create,
}

/// The median time of a call in microseconds, calls per second, and how many there were.
async fn round(
    sessions: &Sessions,
    provider: &'static str,
    verb: Verb,
    class: &'static str,
    in_flight: usize,
    time: Duration,
) -> (f64, f64, f64) {
    let over = Arc::new(AtomicBool::new(false));
    let times = Arc::new(Mutex::new(Vec::new()));
    let done = Arc::new(AtomicU64::new(0));
    let began = Instant::now();
    let callers: Vec<_> = (0..in_flight)
        .map(|_| {
            let (sessions, over) = (sessions.clone(), Arc::clone(&over));
            let (times, done) = (Arc::clone(&times), Arc::clone(&done));
            tokio::spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    let asked = call(provider, verb, class);
                    let began = Instant::now();
                    sessions.call(asked).await.unwrap();
                    let took = began.elapsed();
                    done.fetch_add(1, Ordering::Relaxed);
                    times.lock().unwrap().push(took.as_secs_f64() * 1e6);
                }
            })
        })
        .collect();
    tokio::time::sleep(time).await;
    let count = u32::try_from(done.load(Ordering::Relaxed)).unwrap();
    let rate = f64::from(count) / began.elapsed().as_secs_f64();
    over.store(true, Ordering::Relaxed);
    for caller in callers {
        caller.await.unwrap();
    }
    let times = std::mem::take(&mut *times.lock().unwrap());
    let calls = f64::from(u32::try_from(times.len()).unwrap());
    (median(times.into_iter()), rate, calls)
}

fn call(provider: &'static str, verb: Verb, class: &'static str) -> Dispatch {
    let uid = Uuid::new_v4().to_string();
    let user_data = || UserData::new(vec![b'#'; 1024]);
    let request = match verb {
        Verb::Status => Request::Status { provider_id: format!("bench:///{uid}").into() },
        Verb::Create => {
            Request::Create { user_data: Some(user_data()), provider_id: String::new().into() }
        }
    };
    Dispatch {
        provider: provider.into(),
        id: Uuid::new_v4().to_string().into(),
        idempotency_key: format!("{uid}:c"),
        target: Target { uid: uid.into(), name: "worker-1".to_owned(), ..Target::default() },
        class: Some(ClassReference {
            namespace: provider.to_owned(),
            name: class.to_owned(),
            revision: REVISION.into(),
        }),
        request,
        timeout: Duration::from_mins(1),
        checkpoint: String::new(),
        adopt_by_name: false,
        machine: None,
        lane: Lane::User,
    }
}

const REVISION: &str = "1";

/// Classes whose namespace is their provider, and whose name is how many milliseconds a call takes.
struct Classes;

#[ostler_sessions::async_trait]
impl ClassSource for Classes {
    fn class(&self, namespace: &str, name: &str) -> Result<ClassContent, ClassError> {
        let work: u64 = name.parse().unwrap_or_default();
        Ok(ClassContent {
            uid: "c".into(),
            revision: REVISION.into(),
            provider: namespace.into(),
            provider_spec_json: format!(
                "{{\"work\": {work}, \"image\": \"{}\"}}",
                "x".repeat(1024)
            ),
            secret_revision: Some(REVISION.into()),
            ..ClassContent::default()
        })
    }

    async fn secret(&self, _: &ClassReference) -> Result<SecretContent, ClassError> {
        let data = BTreeMap::from([("key".to_owned(), b"value of a secret".to_vec())]);
        Ok(SecretContent { revision: REVISION.into(), data })
    }
}

async fn core() -> (Sessions, String) {
    let principal = Principal::new("bench", Providers::Any);
    let tokens = StaticTokens::new().with(TOKEN, principal);
    let sessions = Sessions::new(SessionsOptions::default(), Arc::new(Classes), Arc::new(tokens));
    sessions.lead(Term(1));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let serving = sessions.clone();
    tokio::spawn(async move { serving.serve_tcp(listener, std::future::pending()).await });
    (sessions, endpoint)
}

/// This program, started again in another role. Killed when dropped.
struct Process(Child);

impl Process {
    fn start(role: &str, endpoint: &str, directory: &Path) -> Self {
        let command = Command::new(std::env::current_exe().unwrap())
            .env(ROLE, role)
            .env("OSTLER_ENDPOINT", endpoint)
            .env("OSTLER_BENCH_DIRECTORY", directory)
            .stdin(Stdio::piped())
            .spawn();
        Self(command.unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
