//! Ports of loopback for processes that have to be told where to listen, and found there again after a restart.

use std::net::{Ipv4Addr, UdpSocket};
use std::ops::RangeInclusive;
use std::sync::{Mutex, PoisonError};

use tokio::net::TcpSocket;

/// Below the node ports of Kubernetes and what Linux gives to outgoing connections, above what is registered most.
const PORTS: RangeInclusive<u16> = 20_000..=29_999;
/// Distance between the first ports of two processes: a new process does not get the ports of the last one.
const STRIDE: u16 = 25;

/// What holds the ports of this process: their namesakes of UDP, which no test listens on and the kernel frees.
static HELD: Mutex<Vec<UdpSocket>> = Mutex::new(Vec::new());

/// A free port that no other test gets while this process runs.
///
/// # Panics
/// If there is none.
pub fn free_port() -> u16 {
    let outgoing = outgoing();
    let count = PORTS.end() - PORTS.start() + 1;
    let first = u16::try_from(std::process::id() % u32::from(count / STRIDE)).unwrap_or(0) * STRIDE;
    let ports = (0..count).map(|number| PORTS.start() + (first + number) % count);
    let (worse, good): (Vec<u16>, Vec<u16>) = ports.partition(|port| outgoing.contains(port));
    let (port, held) = good
        .into_iter()
        .chain(worse)
        .find_map(|port| Some((port, hold(port)?)))
        .unwrap_or_else(|| panic!("loopback has no free port of {PORTS:?}"));
    HELD.lock().unwrap_or_else(PoisonError::into_inner).push(held);
    port
}

/// The port, unless another process has it. The probing socket never listens: a process that is forked meanwhile has the socket until
/// its exec, and a listening socket would keep the port from its owner.
fn hold(port: u16) -> Option<UdpSocket> {
    let held = UdpSocket::bind(("127.0.0.1", port)).ok()?;
    let asks = TcpSocket::new_v4().ok()?;
    asks.set_reuseaddr(true).ok()?;
    asks.bind((Ipv4Addr::LOCALHOST, port).into()).ok()?;
    Some(held)
}

/// The range of ports for outgoing connections: a connection could take a port just before its use.
fn outgoing() -> RangeInclusive<u16> {
    let told = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    range(&told.unwrap_or_default()).unwrap_or(32_768..=60_999)
}

fn range(told: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = told.trim().split_once(char::is_whitespace)?;
    Some(first.parse().ok()?..=last.trim().parse().ok()?)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_port_is_given_once_and_is_free_for_whoever_got_it() {
        let port = free_port();
        assert!(PORTS.contains(&port), "{port}");
        assert!(hold(port).is_none(), "another process does not get it");
        assert_ne!(free_port(), port);
        TcpListener::bind(("127.0.0.1", port)).expect("it is free for its owner");
    }

    #[test]
    fn a_port_that_somebody_listens_on_is_not_given() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback has ports");
        let port = listener.local_addr().expect("it is bound").port();
        assert!(hold(port).is_none());
    }

    #[test]
    fn the_range_of_outgoing_connections_is_read_as_linux_writes_it() {
        assert_eq!(range("32768\t60999\n"), Some(32_768..=60_999));
        assert_eq!(range(""), None);
    }
}
