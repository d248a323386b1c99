//! Admission of connections: most places are for known clients, few for others.

use std::{
    collections::{BTreeMap, HashMap},
    net::{IpAddr, Ipv6Addr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use parking_lot::{Mutex, MutexGuard};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{
    kind::Kind,
    limits::{REFUSALS, ServeOptions},
    metrics::{Metrics, Why},
    tenant::{Held, Tenant},
};

/// The connections of one listener.
#[derive(Debug)]
pub(super) struct Door {
    options: ServeOptions,
    metrics: Metrics,
    /// Places for strangers.
    places: Arc<Semaphore>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// Connections without credentials so far, in the order of their arrival.
    strangers: BTreeMap<u64, Stranger>,
    guests: usize,
    /// Guests that are no administrators.
    others: usize,
}

#[derive(Debug)]
struct Stranger {
    peer: IpAddr,
    end: CancellationToken,
}

impl State {
    /// The address that has most of the places of strangers.
    fn largest(&self) -> Option<IpAddr> {
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for stranger in self.strangers.values() {
            *counts.entry(stranger.peer).or_default() += 1;
        }
        counts.into_iter().max_by_key(|(_, count)| *count).map(|(peer, _)| peer)
    }

    fn drop_oldest_of(&mut self, peer: IpAddr) {
        let found = self.strangers.iter().find(|(_, one)| one.peer == peer);
        if let Some(stranger) = found.map(|(id, _)| *id).and_then(|id| self.strangers.remove(&id)) {
            stranger.end.cancel();
        }
    }
}

/// A whole IPv6 network counts as one peer.
fn network(peer: IpAddr) -> IpAddr {
    let peer = peer.to_canonical();
    match peer {
        IpAddr::V6(address) if !address.is_loopback() => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64))
        }
        IpAddr::V4(_) | IpAddr::V6(_) => peer,
    }
}

impl Door {
    pub(super) fn new(options: ServeOptions, metrics: Metrics) -> Arc<Self> {
        let places = Arc::new(Semaphore::new(options.strangers()));
        Arc::new(Self { options, metrics, places, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Takes a place for a connection, from the oldest stranger if there is no other.
    pub(super) async fn admit(self: &Arc<Self>, peer: IpAddr) -> Option<Arc<Guest>> {
        let peer = network(peer);
        self.make_room(peer);
        let place = Arc::clone(&self.places).acquire_owned().await.ok()?;
        let end = CancellationToken::new();
        let mut state = self.state();
        let id = state.next;
        state.next += 1;
        state.strangers.insert(id, Stranger { peer, end: end.clone() });
        self.metrics.strangers().inc();
        Some(Arc::new(Guest {
            door: Arc::clone(self),
            id,
            end,
            known: CancellationToken::new(),
            standing: Mutex::new(Standing::Stranger { _place: place }),
            refusals: AtomicUsize::new(0),
        }))
    }

    fn make_room(&self, peer: IpAddr) {
        let mut state = self.state();
        let own = state.strangers.values().filter(|one| one.peer == peer).count();
        let victim = if !peer.is_loopback() && own >= self.options.strangers_of_one() {
            Some(peer)
        } else if state.strangers.len() >= self.options.strangers() {
            state.largest()
        } else {
            None
        };
        if let Some(victim) = victim {
            state.drop_oldest_of(victim);
            self.metrics.ended(Why::Crowded);
        }
    }
}

#[derive(Debug)]
enum Standing {
    Stranger {
        _place: OwnedSemaphorePermit,
    },
    /// `limited`: no administrator.
    Known {
        limited: bool,
        _held: Held,
    },
}

/// A connection with its place. Dropping the guest frees the place.
#[derive(Debug)]
pub(super) struct Guest {
    door: Arc<Door>,
    id: u64,
    /// The connection is to end immediately.
    pub(super) end: CancellationToken,
    /// Valid credentials were shown.
    known: CancellationToken,
    standing: Mutex<Standing>,
    /// Answers to refused requests, until they are read.
    refusals: AtomicUsize,
}

impl Guest {
    /// Valid credentials were shown: the connection leaves the places of strangers.
    ///
    /// # Errors
    /// The tenant has too many connections.
    pub(super) fn introduce(&self, tenant: &Arc<Tenant>) -> Result<(), &'static str> {
        if self.known.is_cancelled() {
            return Ok(());
        }
        let mut standing = self.standing.lock();
        if matches!(*standing, Standing::Known { .. }) {
            return Ok(());
        }
        let (options, limited) = (self.door.options, tenant.limited);
        let mut state = self.door.state();
        if limited && tenant.held(Kind::Connection) >= options.guests_of_one() {
            return Err("this user has too many connections");
        }
        let crowded = limited && state.others >= options.guests_of_others();
        if crowded || state.guests >= options.guests() {
            return Err("the users of this server have too many connections");
        }
        state.guests += 1;
        state.others += usize::from(limited);
        state.strangers.remove(&self.id);
        drop(state);
        *standing = Standing::Known { limited, _held: tenant.take(Kind::Connection, 1) };
        self.door.metrics.strangers().dec();
        self.known.cancel();
        Ok(())
    }

    /// Ends when the connection should have been introduced by now, and is not.
    pub(super) async fn overdue(&self, deadline: Instant) {
        if self.known.run_until_cancelled(sleep_until(deadline)).await.is_none() {
            std::future::pending::<()>().await;
        }
    }

    /// Counts an answer to a request that was refused or came without credentials. None if there are
    /// too many that the client has not read.
    pub(super) fn refusal(self: &Arc<Self>) -> Option<Refusal> {
        let refusal = Refusal(Arc::clone(self));
        (self.refusals.fetch_add(1, Relaxed) < REFUSALS).then_some(refusal)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let standing = self.standing.get_mut();
        let mut state = self.door.state.lock();
        match standing {
            Standing::Stranger { .. } => {
                state.strangers.remove(&self.id);
                self.door.metrics.strangers().dec();
            }
            Standing::Known { limited, .. } => {
                state.guests -= 1;
                state.others -= usize::from(*limited);
            }
        }
    }
}

/// An answer to a refused request that is not read.
#[derive(Debug)]
pub(super) struct Refusal(Arc<Guest>);

impl Drop for Refusal {
    fn drop(&mut self) {
        self.0.refusals.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::{limits::Limits, tenant::Ledger};

    const LOCAL: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn door(connections: usize) -> (Arc<Door>, Ledger) {
        let metrics = Metrics::new();
        let ledger = Ledger::new(Limits::default(), metrics.clone());
        (Door::new(ServeOptions { connections }, metrics), ledger)
    }

    fn peer(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[tokio::test]
    async fn the_oldest_stranger_makes_room_and_those_who_are_known_stay() {
        let (door, ledger) = door(16);
        let known = door.admit(LOCAL).await.unwrap();
        known.introduce(&ledger.tenant("admin", false)).unwrap();
        let mut strangers = Vec::new();
        for _ in 0..4 {
            strangers.push(door.admit(LOCAL).await.unwrap());
        }
        let next = tokio::spawn({
            let door = Arc::clone(&door);
            async move { door.admit(LOCAL).await }
        });
        strangers[0].end.cancelled().await;
        assert!(!next.is_finished(), "the place is free when the connection is closed, no sooner");
        drop(strangers.remove(0));
        assert!(next.await.unwrap().is_some());
        assert!(strangers.iter().all(|one| !one.end.is_cancelled()));
        assert!(!known.end.is_cancelled());
    }

    #[tokio::test]
    async fn who_has_most_strangers_makes_room_for_others() {
        let (door, _) = door(64);
        let first = door.admit(peer(1)).await.unwrap();
        let mut crowd = Vec::new();
        for _ in 0..4 {
            crowd.push(door.admit(peer(2)).await.unwrap());
        }
        // The fifth of one address drops the first of it, though there is room.
        let fifth = tokio::spawn({
            let door = Arc::clone(&door);
            async move { door.admit(peer(2)).await }
        });
        crowd[0].end.cancelled().await;
        assert!(!first.end.is_cancelled());
        assert!(fifth.await.unwrap().is_some());
    }

    #[tokio::test]
    async fn others_leave_places_for_administrators() {
        let (door, ledger) = door(64);
        let mut guests = Vec::new();
        for at in 0..48 {
            let guest = door.admit(LOCAL).await.unwrap();
            match guest.introduce(&ledger.tenant(&format!("n{}", at % 40), true)) {
                Ok(()) => guests.push(guest),
                Err(why) => assert!(why.contains("users of this server"), "{why}"),
            }
        }
        assert_eq!(guests.len(), 36, "three quarters of 48");
        let admin = door.admit(LOCAL).await.unwrap();
        admin.introduce(&ledger.tenant("admin", false)).unwrap();
        guests.clear();
        let node = ledger.tenant("n1", true);
        for at in 0..8 {
            let guest = door.admit(LOCAL).await.unwrap();
            let wanted = if at < 6 { Ok(()) } else { Err("this user has too many connections") };
            assert_eq!(guest.introduce(&node), wanted, "an eighth of 48 for one identity");
            guests.push(guest);
        }
    }

    #[test]
    fn a_network_of_addresses_is_one_peer() {
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:127.0.0.1"), LOCAL);
        assert!(of("::1").is_loopback());
    }
}
