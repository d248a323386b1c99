//! Counts of held amounts, for each identity and for all together.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::{
    kind::Kind,
    limits::{Limits, OWN_WORK, SHARE},
    metrics::Metrics,
};

/// How much of a kind may be held when more is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quota {
    pub(super) each: usize,
    pub(super) all: usize,
}

impl Quota {
    /// A limit for all; an identity has a share.
    fn shared(all: usize) -> Self {
        Self { each: (all / SHARE).max(1), all }
    }

    pub(super) fn of(kind: Kind, limits: &Limits) -> Self {
        match kind {
            Kind::Read => Self::shared(limits.reads),
            Kind::Write => Self::shared(limits.writes),
            Kind::Watch => Self::shared(limits.watches),
            Kind::RequestBytes => Self::shared(limits.request_bytes),
            Kind::AnswerBytes => Self::shared(limits.answer_bytes),
            Kind::UnwrittenBytes => Self::shared(limits.unwritten_bytes),
            Kind::WatchBytes => Self::shared(limits.watch_bytes),
            Kind::Heartbeat => Self { each: super::limits::HEARTBEATS, all: usize::MAX },
            Kind::Connection => Self { each: usize::MAX, all: usize::MAX },
        }
    }
}

#[derive(Debug, Default)]
struct Counts([AtomicUsize; Kind::ALL.len()]);

impl Counts {
    fn of(&self, kind: Kind) -> &AtomicUsize {
        // The array has a place for each kind.
        self.0.get(kind as usize).unwrap_or(&self.0[0])
    }

    fn get(&self, kind: Kind) -> usize {
        self.of(kind).load(Relaxed)
    }
}

/// Finds the tenant of a name. Clones are the same one. The book has tenants that hold something, and no others.
#[derive(Clone, Debug)]
pub(super) struct Ledger(Arc<Book>);

#[derive(Debug)]
struct Book {
    tenants: Mutex<HashMap<String, Weak<Tenant>>>,
    limited: Counts,
    metrics: Metrics,
    limits: Limits,
}

/// An identity and its held amounts.
pub(super) struct Tenant {
    name: String,
    /// Limited in number and bytes; administrators are not.
    pub(super) limited: bool,
    held: Counts,
    /// Turns at being worked on.
    pub(super) work: Arc<Semaphore>,
    book: Arc<Book>,
}

impl fmt::Debug for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenant").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Ledger {
    pub(super) fn new(limits: Limits, metrics: Metrics) -> Self {
        let tenants = Mutex::default();
        Self(Arc::new(Book { tenants, limited: Counts::default(), metrics, limits }))
    }

    pub(super) fn tenant(&self, name: &str, limited: bool) -> Arc<Tenant> {
        let mut tenants = self.0.tenants.lock();
        let known = tenants.get(name).and_then(Weak::upgrade);
        if let Some(tenant) = known.as_ref().filter(|tenant| tenant.limited == limited) {
            return Arc::clone(tenant);
        }
        let tenant = Arc::new(Tenant {
            name: name.to_owned(),
            limited,
            held: Counts::default(),
            work: Arc::new(Semaphore::new(OWN_WORK)),
            book: Arc::clone(&self.0),
        });
        tenants.insert(name.to_owned(), Arc::downgrade(&tenant));
        // Before `known`, which may be the last reference: the end of a tenant takes the lock.
        drop(tenants);
        tenant
    }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        let mut tenants = self.book.tenants.lock();
        // Another one may have come under this name in the meantime.
        if tenants.get(&self.name).is_some_and(|tenant| tenant.strong_count() == 0) {
            tenants.remove(&self.name);
        }
    }
}

impl Tenant {
    fn quota(&self, kind: Kind) -> Quota {
        Quota::of(kind, &self.book.limits)
    }

    pub(super) fn held(&self, kind: Kind) -> usize {
        self.held.get(kind)
    }

    /// Whether more may be taken. What is taken then may go beyond the limit: a single answer may be
    /// larger than the share of one.
    pub(super) fn may_take(&self, kind: Kind) -> bool {
        let quota = self.quota(kind);
        !self.limited
            || (self.held.get(kind) < quota.each && self.book.limited.get(kind) < quota.all)
    }

    /// Takes one more within the limits.
    pub(super) fn try_take(self: &Arc<Self>, kind: Kind) -> Option<Held> {
        let quota = self.quota(kind);
        if !self.limited {
            return Some(self.take(kind, 1));
        }
        let one_more = |limit: usize| move |held: usize| (held < limit).then_some(held + 1);
        self.held.of(kind).fetch_update(Relaxed, Relaxed, one_more(quota.each)).ok()?;
        let all = self.book.limited.of(kind);
        if all.fetch_update(Relaxed, Relaxed, one_more(quota.all)).is_err() {
            self.held.of(kind).fetch_sub(1, Relaxed);
            return None;
        }
        self.book.metrics.held(kind).inc();
        Some(Held { tenant: Arc::clone(self), kind, amount: 1 })
    }

    /// Takes this much, whatever the limit.
    pub(super) fn take(self: &Arc<Self>, kind: Kind, amount: usize) -> Held {
        let mut held = Held { tenant: Arc::clone(self), kind, amount: 0 };
        held.grow(amount);
        held
    }
}

/// An amount that is held until dropped.
#[derive(Debug)]
pub(super) struct Held {
    tenant: Arc<Tenant>,
    kind: Kind,
    amount: usize,
}

impl Held {
    pub(super) fn grow(&mut self, amount: usize) {
        self.amount += amount;
        let tenant = &self.tenant;
        tenant.held.of(self.kind).fetch_add(amount, Relaxed);
        if tenant.limited {
            tenant.book.limited.of(self.kind).fetch_add(amount, Relaxed);
        }
        tenant.book.metrics.held(self.kind).inc_by(i64::try_from(amount).unwrap_or(i64::MAX));
    }
}

impl Held {
    pub(super) fn amount(&self) -> usize {
        self.amount
    }

    fn shrink(&mut self, amount: usize) {
        self.amount -= amount;
        let Self { tenant, kind, .. } = self;
        tenant.held.of(*kind).fetch_sub(amount, Relaxed);
        if tenant.limited {
            tenant.book.limited.of(*kind).fetch_sub(amount, Relaxed);
        }
        tenant.book.metrics.held(*kind).dec_by(i64::try_from(amount).unwrap_or(i64::MAX));
    }

    /// It is so much from now on.
    pub(super) fn set(&mut self, amount: usize) {
        match amount.checked_sub(self.amount) {
            Some(more) => self.grow(more),
            None => self.shrink(self.amount - amount),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shrink(self.amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger() -> Ledger {
        let limits = Limits { reads: 16, answer_bytes: 800, ..Limits::default() };
        Ledger::new(limits, Metrics::new())
    }

    #[test]
    fn one_identity_has_its_share_and_all_have_the_limit() {
        let ledger = ledger();
        let of_one = |name: &str| -> Vec<Held> {
            let tenant = ledger.tenant(name, true);
            std::iter::from_fn(|| tenant.try_take(Kind::Read)).collect()
        };
        let held: Vec<Vec<Held>> = (0..10).map(|at| of_one(&format!("n{at}"))).collect();
        let counts: Vec<usize> = held.iter().map(Vec::len).collect();
        assert_eq!(counts, [2, 2, 2, 2, 2, 2, 2, 2, 0, 0]);
        let admin = ledger.tenant("admin", false);
        assert!(admin.try_take(Kind::Read).is_some(), "administrators are not counted with them");
        drop(held);
        assert_eq!(of_one("n0").len(), 2, "what is dropped is free again");
    }

    #[test]
    fn one_name_with_and_without_limits_at_the_same_time_holds_up_no_request() {
        let ledger = ledger();
        let (done, ends) = std::sync::mpsc::channel();
        let together = Arc::new(std::sync::Barrier::new(2));
        for limited in [true, false] {
            let (ledger, done, together) = (ledger.clone(), done.clone(), Arc::clone(&together));
            std::thread::spawn(move || {
                together.wait();
                for at in 0..300_000 {
                    let held = ledger.tenant("n1", limited);
                    // for as long as the other one takes to look for it, at some time
                    (0..at % 64).for_each(|_| std::hint::spin_loop());
                    drop(held);
                }
                done.send(()).unwrap();
            });
        }
        for _ in 0..2 {
            ends.recv_timeout(std::time::Duration::from_mins(1)).unwrap();
        }
    }

    #[test]
    fn bytes_go_beyond_the_limit_once() {
        let tenant = ledger().tenant("n1", true);
        let held = tenant.take(Kind::AnswerBytes, 300);
        assert!(!tenant.may_take(Kind::AnswerBytes), "the share is 100");
        drop(held);
        assert!(tenant.may_take(Kind::AnswerBytes));
    }

    #[test]
    fn who_holds_nothing_is_forgotten() {
        let ledger = ledger();
        let tenant = ledger.tenant("n1", true);
        let held = tenant.take(Kind::Watch, 1);
        drop(tenant);
        assert_eq!(ledger.tenant("n1", true).held(Kind::Watch), 1);
        drop(held);
        assert!(ledger.0.tenants.lock().is_empty());
    }
}
