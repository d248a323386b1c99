//! How many may be connected, and for how long without saying who they are.
//!
//! A connection is *unknown* until a call of it has been authenticated. Unknown connections share a small pool in which
//! no connection can stay: each has little time, and when the pool is full, the oldest connection of the host with most
//! of them goes. So there is always a place for a driver that comes. Known connections are bounded for each principal
//! and altogether.

mod calls;
mod guarded;
mod metrics;

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::task::AtomicWaker;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tonic::transport::server::TcpConnectInfo;

pub(crate) use self::calls::WINDOW;
pub use self::calls::{GateLayer, bounded_server};
pub use self::guarded::Guarded;
use self::metrics::Metrics;
use crate::Peer;

/// Most unknown connections of a listener. An honest driver is unknown for milliseconds; strangers can make the core
/// hold this number times the buffers of a connection.
const UNKNOWN: usize = 128;
/// Fewest connections that a listener is of use with.
const FEWEST: usize = 8;
/// Connections of the same principal. A driver needs one connection, each replica another.
const OF_ONE_PRINCIPAL: usize = 64;
/// Calls of a connection at work without a known caller: health, reflection, and calls in authentication.
const CALLS: usize = 8;

/// How many connections a listener holds, and for how long unknown ones.
#[derive(Debug, Clone)]
pub struct GateRules {
    /// Concurrent connections, each a file descriptor.
    pub connections: usize,
    /// From the connection to its first call.
    pub first_call: Duration,
    /// From the connection to the first call that is authenticated.
    pub unknown: Duration,
}

impl GateRules {
    /// `connections` at the same time, with the times of production.
    pub fn new(connections: usize) -> Self {
        Self {
            connections,
            // A healthy client calls as soon as it is connected.
            first_call: Duration::from_secs(10),
            // For health probes and reflection, and for a driver whose token is late.
            unknown: Duration::from_mins(1),
        }
    }

    fn most(&self) -> usize {
        self.connections.max(FEWEST)
    }

    /// How many may be unknown.
    fn pool(&self) -> usize {
        (self.most() / 4).min(UNKNOWN)
    }
}

/// Why a connection or a call was ended or refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    /// All places are taken by connections that are about to end.
    Full,
    /// A newer connection needed the place.
    Crowded,
    /// The peer never called.
    Silent,
    /// The peer never authenticated.
    Unauthenticated,
    /// The principal has too many connections, or all principals have.
    TooMany,
    /// The connection has too many unauthenticated calls at work.
    Calls,
}

/// The gate of a listener, or of several listeners with shared places. Clones are the same.
#[derive(Clone)]
pub struct Gate(Arc<Inner>);

struct Inner {
    rules: GateRules,
    table: Mutex<Table>,
    metrics: Metrics,
}

#[derive(Default)]
struct Table {
    next: u64,
    /// Connections whose descriptor is not closed yet.
    open: usize,
    unknown: BTreeMap<u64, Arc<Place>>,
    known: HashMap<u64, Arc<str>>,
    of_principal: HashMap<Arc<str>, usize>,
}

/// The key of a peer: nothing on this host, where one user can be many, else the address; of IPv6 the part that a
/// customer gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Host(Option<IpAddr>);

impl Host {
    fn of(address: IpAddr) -> Self {
        let address = address.to_canonical();
        if address.is_loopback() {
            return Self(None);
        }
        let IpAddr::V6(address) = address else { return Self(Some(address)) };
        let network = Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX));
        Self(Some(network.into()))
    }

    fn of_info(info: &dyn Any) -> Self {
        let peer = info.downcast_ref::<Peer>().and_then(|peer| {
            let address = peer.address.parse::<std::net::SocketAddr>();
            address.ok().map(|address| address.ip())
        });
        let tcp = info.downcast_ref::<TcpConnectInfo>().and_then(TcpConnectInfo::remote_addr);
        peer.or_else(|| tcp.map(|address| address.ip())).map_or(Self(None), Self::of)
    }
}

/// The place of a connection; shared by its bytes and its calls.
struct Place {
    id: u64,
    host: Host,
    state: AtomicU8,
    /// The task that moves the bytes, to be woken at the end.
    waker: AtomicWaker,
    /// Calls at work that are not authenticated.
    calls: AtomicUsize,
    /// Calls in authentication.
    asking: AtomicUsize,
}

/// States of a [`Place`].
mod state {
    /// Connected, and nothing more.
    pub(super) const SILENT: u8 = 0;
    /// The peer has called.
    pub(super) const CALLED: u8 = 1;
    /// A call was authenticated.
    pub(super) const KNOWN: u8 = 2;
    /// The connection is to end.
    pub(super) const ENDED: u8 = 3;
}

impl Place {
    fn state(&self) -> u8 {
        self.state.load(Ordering::Acquire)
    }

    /// Whether the connection is to end; wakes the asking task at that time.
    fn poll_ended(&self, cx: &Context<'_>) -> Poll<()> {
        self.waker.register(cx.waker());
        if self.state() == state::ENDED { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Gate {
    /// A gate without connections.
    pub fn new(rules: GateRules) -> Self {
        Self(Arc::new(Inner { rules, table: Mutex::default(), metrics: Metrics::default() }))
    }

    /// Registers the counters, once, under `name`.
    pub fn register_metrics(&self, name: &str, registry: &mut Registry) {
        metrics::register(&self.0, registry.sub_registry_with_prefix(name));
    }

    /// Takes a connection, if need be in place of an older one. `None`: even that is not possible.
    pub(crate) fn admit(&self, info: &dyn Any) -> Option<Admission> {
        self.enter(Host::of_info(info))
    }

    /// As [`Self::admit`], by the address.
    pub(crate) fn admit_from(&self, address: IpAddr) -> Option<Admission> {
        self.enter(Host::of(address))
    }

    fn enter(&self, host: Host) -> Option<Admission> {
        let mut table = self.0.table.lock();
        if table.open >= self.0.rules.most() {
            drop(table);
            self.0.metrics.refused(Refusal::Full);
            return None;
        }
        let id = table.next;
        table.next += 1;
        table.open += 1;
        let place = Arc::new(Place {
            id,
            host,
            state: AtomicU8::new(state::SILENT),
            waker: AtomicWaker::new(),
            calls: AtomicUsize::new(0),
            asking: AtomicUsize::new(0),
        });
        table.unknown.insert(id, Arc::clone(&place));
        let surplus = table.surplus(self.0.rules.pool(), id);
        drop(table);
        if let Some(oldest) = surplus {
            self.end(&oldest, Refusal::Crowded);
        }
        Some(Admission { gate: self.clone(), place })
    }

    /// Ends a connection that is not known.
    fn end(&self, place: &Place, why: Refusal) {
        if self.0.table.lock().unknown.remove(&place.id).is_none() {
            return;
        }
        place.state.store(state::ENDED, Ordering::Release);
        place.waker.wake();
        self.0.metrics.refused(why);
    }

    /// A connection belongs to `principal` from now on. `false`: the principal has too many connections.
    fn know(&self, place: &Place, principal: &str) -> bool {
        if place.state() == state::KNOWN {
            return true;
        }
        let rules = &self.0.rules;
        let mut table = self.0.table.lock();
        let has = table.of_principal.get(principal).copied().unwrap_or_default();
        // The pool, and as many that are about to end, have places of their own.
        let most = rules.most().saturating_sub(2 * rules.pool());
        if has >= OF_ONE_PRINCIPAL || table.known.len() >= most {
            drop(table);
            self.0.metrics.refused(Refusal::TooMany);
            return false;
        }
        // Known by another call meanwhile, or about to end.
        if table.unknown.remove(&place.id).is_some() {
            let principal: Arc<str> = principal.into();
            table.known.insert(place.id, Arc::clone(&principal));
            table.of_principal.insert(principal, has + 1);
            place.state.store(state::KNOWN, Ordering::Release);
        }
        true
    }

    fn leave(&self, place: &Place) {
        let mut table = self.0.table.lock();
        table.open = table.open.saturating_sub(1);
        table.unknown.remove(&place.id);
        let Some(principal) = table.known.remove(&place.id) else { return };
        if let Some(has) = table.of_principal.get_mut(&principal) {
            *has -= 1;
            if *has == 0 {
                table.of_principal.remove(&principal);
            }
        }
    }
}

impl Table {
    /// The connection to close when there are too many unknown ones: the oldest of the host with the
    /// most connections. Connections whose caller is being looked up are spared as long as others are left.
    fn surplus(&self, pool: usize, newest: u64) -> Option<Arc<Place>> {
        let mut hosts = BTreeMap::<Host, usize>::new();
        for place in self.unknown.values() {
            *hosts.entry(place.host).or_default() += 1;
        }
        let (host, has) = hosts.into_iter().max_by_key(|(_, has)| *has)?;
        let of_one_host = host.0.is_some() && has > pool / 2;
        if self.unknown.len() <= pool && !of_one_host {
            return None;
        }
        let mut theirs =
            self.unknown.values().filter(|it| it.host == host && it.id != newest).peekable();
        let oldest = theirs.peek().copied();
        let idle = theirs.find(|it| it.asking.load(Ordering::Relaxed) == 0);
        idle.or(oldest).cloned()
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("rules", &self.0.rules).finish_non_exhaustive()
    }
}

/// The place of a connection, for as long as its descriptor is open.
#[derive(Debug)]
pub(crate) struct Admission {
    gate: Gate,
    place: Arc<Place>,
}

impl Admission {
    /// Resolves when the connection is to end.
    pub(crate) async fn ended(&self) {
        std::future::poll_fn(|cx| self.place.poll_ended(cx)).await;
    }

    fn pass(&self) -> Pass {
        Pass { gate: self.gate.clone(), place: Arc::clone(&self.place) }
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.gate.leave(&self.place);
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        let mut shown = f.debug_struct("Place");
        shown.field("id", &self.id).field("state", &state).finish_non_exhaustive()
    }
}

/// The calls' handle on the place of their connection; among the extensions of each call.
#[derive(Debug, Clone)]
pub struct Pass {
    gate: Gate,
    place: Arc<Place>,
}

impl Pass {
    /// The caller is `principal`: the connection may stay.
    ///
    /// # Errors
    /// The principal has too many connections.
    pub fn known(&self, principal: &str) -> Result<(), tonic::Status> {
        if self.gate.know(&self.place, principal) {
            return Ok(());
        }
        let message = format!("{principal} has too many connections; close some");
        Err(tonic::Status::resource_exhausted(message))
    }

    /// The call is in authentication until the result is dropped.
    pub(crate) fn asking(&self) -> Asking {
        self.place.asking.fetch_add(1, Ordering::Relaxed);
        Asking(Arc::clone(&self.place))
    }

    fn note_call(&self) {
        let (silent, called) = (state::SILENT, state::CALLED);
        let order = (Ordering::AcqRel, Ordering::Acquire);
        // Known or ended, it does not matter any more.
        let _was_silent =
            self.place.state.compare_exchange(silent, called, order.0, order.1).is_ok();
    }

    fn is_known(&self) -> bool {
        self.place.state() == state::KNOWN
    }

    /// Room for a call that is not authenticated.
    fn turn(&self) -> Option<Turn> {
        let turn = Turn(Arc::clone(&self.place));
        if self.place.calls.fetch_add(1, Ordering::Relaxed) < CALLS {
            return Some(turn);
        }
        self.gate.0.metrics.refused(Refusal::Calls);
        None
    }
}

/// See [`Pass::asking`].
#[derive(Debug)]
pub(crate) struct Asking(Arc<Place>);

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.asking.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A turn among the [`CALLS`].
#[derive(Debug)]
struct Turn(Arc<Place>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
