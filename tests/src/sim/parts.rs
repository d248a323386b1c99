//! Processes: cores, drivers and kubelets, each started again after it ended, as Kubernetes does it.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use ostler_driver_fake::cloud::Cloud;
use ostler_driver_fake::{FakeDriver, Kubelets};
use ostler_driver_sdk::{CancellationToken, Options, run_with};
use ostler_server::{Core, CoreOptions};
use ostler_sessions::{Principal, Providers, StaticTokens};
use prometheus_client::registry::Registry;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_stream::wrappers::ReceiverStream;

use super::api::Front;
use super::driver::{Death, OnCall, SimDriver};

use super::plan::Party;
use super::world::{PROVIDERS, Surroundings, TOKENS};

/// How long a process is down that ended by itself.
const RESTART: Duration = Duration::from_secs(2);
/// How often kubelets renew their Lease. Nothing looks at it here.
const RENEWAL: Duration = Duration::from_secs(35);
/// How long a machine has until it is a Node.
pub const CREATION_TIMEOUT: Duration = Duration::from_mins(4);
/// From the first look that shows an orphan to the look after which it is deleted.
pub const ORPHAN_GRACE: Duration = Duration::from_mins(2);
/// Orders that wait for a process; more than that make no sense.
const ORDERS: usize = 64;

/// An order to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// SIGKILL; a new one starts so much later.
    Kill(Duration),
    /// SIGTERM; a new one starts so much later.
    Stop(Duration),
}

/// A process, through all its restarts.
#[derive(Debug)]
pub struct Part {
    orders: mpsc::Sender<Order>,
    /// Kills the process when the counter reaches zero; counts down while not negative. For drivers, 1 and 2 mean:
    /// during the next call, before and after the effect.
    pub trap: Arc<AtomicI64>,
    /// How long it stays down after the trap.
    pub trap_down: Arc<Mutex<Duration>>,
}

impl Part {
    /// Tells it.
    pub fn order(&self, order: Order) {
        // A process that has so many orders is dying anyway.
        self.orders.try_send(order).ok();
    }

    /// Arms its trap.
    pub fn trap(&self, count: i64, down: Duration) {
        *self.trap_down.lock().unwrap_or_else(PoisonError::into_inner) = down;
        self.trap.store(count, Ordering::SeqCst);
    }

    fn new() -> (Self, mpsc::Receiver<Order>) {
        let (orders, received) = mpsc::channel(ORDERS);
        let part = Self {
            orders,
            trap: Arc::new(AtomicI64::new(-1)),
            trap_down: Arc::new(Mutex::new(RESTART)),
        };
        (part, received)
    }

    /// A function that kills the process from within.
    fn killer(&self) -> Arc<dyn Fn() + Send + Sync> {
        let (orders, down) = (self.orders.clone(), Arc::clone(&self.trap_down));
        Arc::new(move || {
            let down = *down.lock().unwrap_or_else(PoisonError::into_inner);
            orders.try_send(Order::Kill(down)).ok();
        })
    }
}

/// Starts core `number` with `controllers`, and starts it again after each end.
pub fn core(around: &Arc<Surroundings>, number: u8, controllers: &'static str) -> Part {
    let (part, mut orders) = Part::new();
    let (trap, kill) = (Arc::clone(&part.trap), part.killer());
    let on_write: super::api::OnWrite = Arc::new(move || {
        let armed = trap.load(Ordering::SeqCst);
        if armed >= 0 {
            trap.store(armed - 1, Ordering::SeqCst);
        }
        if armed == 0 {
            kill();
        }
        armed == 0
    });
    let around = Arc::clone(around);
    tokio::spawn(async move {
        let place = format!("core-{number}");
        for life in 0_u32.. {
            let name = format!("{place}.{life}");
            around.trace.note(&name, "starts");
            let options = options(&around, &name, number, controllers);
            let front = Front {
                on_write: Some(Arc::clone(&on_write)),
                ..around.front(&name, Some(Party::Core(number)))
            };
            let down = core_life(&around, &name, options, front, &mut orders).await;
            around.network.gone(&name);
            sleep(down).await;
            // Orders from the time without a process are void.
            while orders.try_recv().is_ok() {}
        }
    });
    part
}

/// One process of a core; returns the pause before the next.
async fn core_life(
    around: &Arc<Surroundings>,
    name: &str,
    options: CoreOptions,
    front: Front,
    orders: &mut mpsc::Receiver<Order>,
) -> Duration {
    let connections = around.network.listen(name);
    let incoming = ReceiverStream::new(connections).map(Ok::<_, std::io::Error>);
    let mut registry = Registry::default();
    let starting = Core::start(front.client(), incoming, options, &mut registry);
    let started = tokio::select! {
        biased;
        order = orders.recv() => Err(order),
        started = starting => Ok(started),
    };
    let mut core = match started {
        Ok(Ok(core)) => core,
        Ok(Err(error)) => {
            around.trace.note(name, format_args!("does not start: {error:#}"));
            return RESTART;
        }
        Err(_killed) => {
            around.trace.note(name, "is killed while it starts");
            return RESTART;
        }
    };
    let order = tokio::select! {
        biased;
        order = orders.recv() => order,
        error = core.failure() => {
            around.trace.note(name, format_args!("ends: {error:#}"));
            None
        }
    };
    match order {
        Some(Order::Kill(down)) => {
            around.trace.note(name, "is killed");
            drop(core);
            down
        }
        Some(Order::Stop(down)) => {
            around.trace.note(name, "is told to end");
            core.stop().await;
            around.trace.note(name, "has ended");
            down
        }
        None => RESTART,
    }
}

fn options(around: &Arc<Surroundings>, name: &str, number: u8, controllers: &str) -> CoreOptions {
    let tokens = PROVIDERS.iter().zip(TOKENS).fold(StaticTokens::new(), |all, (name, token)| {
        all.with(token, Principal::new(*name, Providers::named([*name])))
    });
    let mut options = CoreOptions {
        authenticator: Some(Arc::new(tokens)),
        clock: around.clock(number),
        ..CoreOptions::default()
    };
    name.clone_into(&mut options.settings.identity);
    options.settings.controllers = controllers.parse().expect("there are such controllers");
    // Longer than usual: most of what a quiet world does would be to renew its Lease.
    options.settings.lease =
        (Duration::from_secs(40), Duration::from_secs(30), Duration::from_secs(12));
    options.settings.api_check.timeout = Duration::from_mins(1);
    options.settings.api_check.period = Duration::from_secs(40);
    let lifecycle = &mut options.settings.lifecycle;
    lifecycle.creation_timeout = CREATION_TIMEOUT;
    lifecycle.health_timeout = Duration::from_mins(3);
    lifecycle.drain_timeout = super::oracle::DRAIN_TIMEOUT;
    lifecycle.unreachable_after = super::oracle::UNREACHABLE_AFTER;
    lifecycle.resource_exhausted_retry = Duration::from_mins(1);
    options.settings.resync = Duration::from_mins(5);
    options.settings.orphans.period = Duration::from_mins(3);
    options.settings.orphans.grace = ORPHAN_GRACE;
    if let Some(mutation) = around.mutation {
        mutation.tune(&mut options);
    }
    options
}

/// Starts a driver, and starts it again whenever it ended.
pub fn driver(around: &Arc<Surroundings>, number: u8, provider: usize) -> Part {
    let (part, mut orders) = Part::new();
    let around = Arc::clone(around);
    let (trap, kill) = (Arc::clone(&part.trap), part.killer());
    let on_call: OnCall = Arc::new(move || {
        let armed = trap.swap(-1, Ordering::SeqCst);
        (armed >= 1).then(|| Death { after_effect: armed == 2, die: Arc::clone(&kill) })
    });
    tokio::spawn(async move {
        for life in 0_u32.. {
            let name = format!("driver-{number}.{life}");
            around.trace.note(&name, "starts");
            let (end, mut task) = driver_life(&around, &name, provider, Arc::clone(&on_call));
            let order = tokio::select! {
                biased;
                order = orders.recv() => order,
                _ = &mut task => None,
            };
            let down = match order {
                Some(Order::Kill(down)) => {
                    around.trace.note(&name, "is killed");
                    task.abort();
                    down
                }
                Some(Order::Stop(down)) => {
                    around.trace.note(&name, "is told to end");
                    end.cancel();
                    // A kill may come while the core finishes.
                    tokio::select! {
                        biased;
                        _ = orders.recv() => task.abort(),
                        _ = &mut task => {}
                    }
                    around.trace.note(&name, "has ended");
                    down
                }
                None => RESTART,
            };
            around.network.gone(&name);
            sleep(down).await;
            while orders.try_recv().is_ok() {}
        }
    });
    part
}

fn driver_life(
    around: &Surroundings,
    name: &str,
    provider: usize,
    on_call: OnCall,
) -> (CancellationToken, JoinHandle<()>) {
    let driver = SimDriver {
        name: name.to_owned(),
        provider: PROVIDERS[provider],
        fake: FakeDriver::new(around.clouds[provider].clone()),
        sky: around.sky.clone(),
        search: around.search.clone(),
        trace: around.trace.clone(),
        oracle: around.oracle.clone(),
        on_call,
        mutation: around.mutation,
        pools: around.pools,
        lists: Arc::default(),
        answered: Arc::default(),
    };
    let end = CancellationToken::new();
    let options = Options::new(around.network.connector(name, TOKENS[provider]))
        .shutdown(end.clone())
        .instance_name(name.to_owned());
    let task = tokio::spawn(async move {
        run_with(driver, options).await.expect("the provider has a good name");
    });
    (end, task)
}

/// Starts the kubelets of a cloud, for ever.
pub fn kubelets(around: &Arc<Surroundings>, cloud: Cloud, number: usize) {
    let client = around.front(&format!("kubelets-{number}"), Some(Party::Kubelets)).client();
    tokio::spawn(async move {
        let ended =
            Kubelets::new(cloud, client).renew_every(RENEWAL).run(CancellationToken::new()).await;
        ended.expect("a cloud in memory has no journal that could fail");
    });
}
