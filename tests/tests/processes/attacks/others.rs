//! Those who must not suffer: a client that asks for `/readyz`, and a node that renews its Lease,
//! each on new connections, for as long as an attack runs; and the memory of the process meanwhile.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::attacks::client::{Answer, Client, MERGE};
use crate::attacks::table;
use crate::attacks::up::Up;

/// Where the others dial from.
const SOMEBODY: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const NODE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);
/// A client gives up after this, and so do probes long before.
const GIVE_UP: Duration = Duration::from_secs(10);
/// Between two requests of the same client.
const PAUSE: Duration = Duration::from_millis(50);
/// Requests of each client, however short the attack is.
const ENOUGH: u32 = 5;
/// Between two looks at the memory.
const LOOK: Duration = Duration::from_millis(10);
/// The most that a client without rights of an administrator may make the process take, above what
/// it has at rest.
pub(crate) const ALLOWANCE_KIB: u64 = 64 << 10;

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

/// Statistics of one client's requests.
#[derive(Debug, Default)]
pub(crate) struct Served {
    pub(crate) good: u32,
    pub(crate) bad: u32,
    pub(crate) slowest: Duration,
    pub(crate) first_bad: Option<String>,
}

impl Served {
    fn note(&mut self, took: Duration, outcome: Result<(), String>) {
        self.slowest = self.slowest.max(took);
        match outcome {
            Ok(()) => self.good += 1,
            Err(why) => {
                self.bad += 1;
                self.first_bad.get_or_insert(why);
            }
        }
    }
}

/// A running attack, and the clients that measure its effect.
pub(crate) struct Attack {
    name: &'static str,
    by: &'static str,
    idle_kib: u64,
    end: CancellationToken,
    readyz: JoinHandle<Served>,
    lease: JoinHandle<Served>,
    peak_kib: JoinHandle<u64>,
}

/// The measurements of an attack.
#[derive(Debug)]
pub(crate) struct Seen {
    name: &'static str,
    pub(crate) above_idle_kib: u64,
    pub(crate) readyz: Served,
    pub(crate) lease: Served,
}

impl Attack {
    /// Everybody is at work and the memory at rest is known: the attack may begin. The name begins with its number.
    pub(crate) async fn begin(up: &Up, name: &'static str, by: &'static str) -> Self {
        let somebody = Client::admin(up).from(SOMEBODY);
        let node = Client::node(up, "witnes", "witness").await.from(NODE);
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "witness", "namespace": "kube-node-lease"},
            "spec": {"holderIdentity": "witness", "leaseDurationSeconds": 40}});
        node.post(LEASES, &lease).await.unwrap().good();
        let end = CancellationToken::new();
        let (pid, ends) = (up.pid, end.clone());
        let idle_kib = resident_kib(pid).unwrap();
        let readyz = tokio::spawn(series(end.clone(), move || {
            let somebody = somebody.clone();
            async move { verdict(somebody.get("/readyz").await) }
        }));
        let lease = tokio::spawn(series(end.clone(), move || {
            let node = node.clone();
            let renewal = json!({"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}}).to_string();
            async move { verdict(node.patch(&format!("{LEASES}/witness"), MERGE, renewal).await) }
        }));
        let peak_kib = tokio::spawn(async move {
            let mut peak = idle_kib;
            while !ends.is_cancelled() {
                peak = peak.max(resident_kib(pid).unwrap_or_default());
                sleep(LOOK).await;
            }
            peak
        });
        Self { name, by, idle_kib, end, readyz, lease, peak_kib }
    }

    /// The attack is over; writes its row.
    pub(crate) async fn end(self, outcome: &str) -> Seen {
        // A client that waits for an answer gets it, or gives up.
        self.end.cancel();
        let (readyz, lease) = (self.readyz.await.unwrap(), self.lease.await.unwrap());
        let above_idle_kib = self.peak_kib.await.unwrap() - self.idle_kib;
        let seconds = |served: &Served| format!("{:.2} s", served.slowest.as_secs_f64());
        let all = readyz.good + readyz.bad + lease.good + lease.bad;
        table::add(
            self.name,
            &[
                self.by.to_owned(),
                format!("{} MiB", above_idle_kib >> 10),
                seconds(&readyz),
                seconds(&lease),
                format!("{} of {all}", readyz.bad + lease.bad),
                outcome.to_owned(),
            ],
        );
        Seen { name: self.name, above_idle_kib, readyz, lease }
    }
}

impl Seen {
    /// A client without rights of an administrator gets no more memory than this.
    pub(crate) fn took_little_memory(&self) -> &Self {
        let kib = self.above_idle_kib;
        assert!(kib <= ALLOWANCE_KIB, "{}: {} MiB above idle", self.name, kib >> 10);
        self
    }

    /// No other client was left without an answer.
    pub(crate) fn left_others_alone(&self) -> &Self {
        for (who, served) in [("/readyz", &self.readyz), ("the Lease of a node", &self.lease)] {
            assert!(served.bad == 0 && served.good > 0, "{}: {who}: {served:?}", self.name);
        }
        self
    }
}

async fn series<F: Future<Output = Result<(), String>>>(
    end: CancellationToken,
    mut ask: impl FnMut() -> F,
) -> Served {
    let mut served = Served::default();
    loop {
        let begun = Instant::now();
        let answered = timeout(GIVE_UP, ask()).await;
        served.note(begun.elapsed(), answered.unwrap_or_else(|_| Err("no answer".to_owned())));
        let over = end.run_until_cancelled(sleep(PAUSE)).await.is_none();
        if over && (served.good >= ENOUGH || served.bad > 0) {
            return served;
        }
    }
}

fn verdict(answer: Result<Answer, String>) -> Result<(), String> {
    match answer? {
        answer if answer.code == 200 => Ok(()),
        answer => Err(format!("{}: {}", answer.code, String::from_utf8_lossy(&answer.body))),
    }
}

/// Anonymous memory of the process: pages of the executable come and go, and are not counted.
pub(crate) fn resident_kib(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}
