//! How much a client may take, and for how long.

use std::time::Duration;

/// How much the server gives to its clients. The defaults keep what clients without the rights of an
/// administrator can make it hold below 64 MB; tests choose smaller ones, so that they need not wait.
///
/// The process itself and members of `system:masters` are not limited in number or in bytes, but in
/// time. What is said to be of all is of all others together; one identity may have an eighth of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From the connection to the end of the first request that shows valid credentials: TLS, the
    /// preface and the request's head. Long for any client, short enough that the few places for
    /// strangers come free.
    pub introduction: Duration,
    /// From a request's head to the end of its body.
    pub body_time: Duration,
    /// Between two pieces of a body.
    pub body_pause: Duration,
    /// From a request's head to the last byte of its answer, as kube-apiserver's
    /// `--request-timeout`; to the first byte for administrators, whose long lists may take longer.
    /// A client may ask for less with `timeout`. Watches have no such end.
    pub request_time: Duration,
    /// How long an answer, or an event of a watch of all others, may wait for its reader.
    pub stall: Duration,
    /// How long a request may wait for its turn among the others.
    pub turn: Duration,
    /// Reading requests of all others, until their answers are read: kube-apiserver's number.
    pub reads: usize,
    /// Writing requests of all others, until their answers are read: kube-apiserver's number.
    pub writes: usize,
    /// Watches of all others. A kubelet with many pods needs an eighth of them, since it watches each Secret and
    /// ConfigMap of its pods; a watch costs 5 KB and its selectors.
    pub watches: usize,
    /// Bytes of requests of all others, heads and bodies, from their arrival until the request is done.
    pub request_bytes: usize,
    /// Bytes of answers of all others that are written and not read.
    pub answer_bytes: usize,
    /// Bytes of what answers of all others are still to be written of: events that were read, places in a
    /// list. The texts of a list's objects are those of the store.
    pub unwritten_bytes: usize,
    /// Bytes of what watches of all others keep for as long as they go on: selectors.
    pub watch_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            introduction: Duration::from_secs(10),
            body_time: Duration::from_secs(30),
            body_pause: Duration::from_secs(10),
            request_time: Duration::from_mins(1),
            stall: Duration::from_secs(30),
            turn: Duration::from_secs(5),
            reads: 400,
            writes: 200,
            watches: 4000,
            request_bytes: 16 << 20,
            answer_bytes: 16 << 20,
            unwritten_bytes: 8 << 20,
            watch_bytes: 4 << 20,
        }
    }
}

/// The part of a limit that one identity may have: the least number of identities that must come
/// together to keep the others out.
pub(super) const SHARE: usize = 8;

/// The longest selector of any other client, in bytes: kubelets select by one name.
pub(super) const SELECTOR: usize = 1 << 10;
/// The longest query of any other client, with two such selectors in it, all of whose characters are escaped.
pub(super) const QUERY: usize = 8 << 10;

/// The largest request body, as kube-apiserver's.
pub(super) const BODY: usize = 3 << 20;
/// The largest body of a node: the largest thing that nodes write is their status with the list of
/// images, which is below 100 KiB, or a mirror pod.
pub(super) const NODE_BODY: usize = 1 << 20;
/// The largest body of any other client that is no administrator. All they may send is a request for a
/// certificate, or a question about themselves: a few kilobytes.
pub(super) const SMALL_BODY: usize = 64 << 10;
/// A heartbeat that is larger takes the way of all other requests.
pub(super) const HEARTBEAT_BODY: usize = 64 << 10;
/// Concurrent heartbeats of one node: Lease and status, each twice after a lost connection. Heartbeats take no place of
/// other requests.
pub(super) const HEARTBEATS: usize = 4;

/// Requests of all others in work at the same time; further requests wait for their turn. Few: an object that is being
/// changed takes some 50 times its text.
pub(super) const WORK: usize = 8;
/// The same for one identity.
pub(super) const OWN_WORK: usize = 2;
/// Bytes of bodies of all others that are worked on at one moment. A larger one is worked on alone.
pub(super) const WORK_BYTES: usize = 1 << 20;

/// Answers on one connection to requests that were refused or came without credentials, until they
/// are read. More of them end the connection: only those who do not read come to so many.
pub(super) const REFUSALS: usize = 32;

/// How to serve at one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServeOptions {
    /// Concurrent connections, each of which is an open file. A quarter of them is for connections without valid
    /// credentials so far. When that quarter is full, a new connection drops the oldest connection of the address that
    /// has most.
    pub connections: usize,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self { connections: 512 }
    }
}

impl ServeOptions {
    /// Connections without credentials.
    pub(super) fn strangers(self) -> usize {
        (self.connections / 4).max(1)
    }

    /// Connections without credentials from one remote address; a loopback address stands for many clients.
    pub(super) fn strangers_of_one(self) -> usize {
        (self.strangers() / 4).max(1)
    }

    /// Connections with credentials.
    pub(super) fn guests(self) -> usize {
        self.connections.saturating_sub(self.strangers()).max(1)
    }

    /// Of these, those of all others: some are left for administrators.
    pub(super) fn guests_of_others(self) -> usize {
        (self.guests() * 3 / 4).max(1)
    }

    /// Connections with credentials of one identity.
    pub(super) fn guests_of_one(self) -> usize {
        (self.guests() / SHARE).max(1)
    }
}
