//! Places for connections, and their loss.

use std::net::{Ipv4Addr, SocketAddr};
use std::task::Waker;

use super::*;

const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;
const FAR: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

/// 16 places, 4 for unknown connections.
fn gate() -> Gate {
    Gate::new(GateRules::new(16))
}

fn enter(gate: &Gate, address: Ipv4Addr) -> Admission {
    gate.admit_from(address.into()).unwrap()
}

fn is_over(it: &Admission) -> bool {
    it.place.poll_ended(&Context::from_waker(Waker::noop())).is_ready()
}

#[test]
fn the_oldest_that_nobody_knows_goes_when_there_are_too_many() {
    let gate = gate();
    let known = enter(&gate, HERE);
    known.pass().known("driver").unwrap();
    let strangers: Vec<_> = (0..5).map(|_| enter(&gate, HERE)).collect();
    let over: Vec<bool> = strangers.iter().map(is_over).collect();
    assert_eq!(over, [true, false, false, false, false]);
    assert!(!is_over(&known));
    // A driver that comes always gets a place, and keeps it once known.
    let driver = enter(&gate, HERE);
    driver.pass().known("another").unwrap();
    let _more: Vec<_> = (0..4).map(|_| enter(&gate, HERE)).collect();
    assert!(!is_over(&driver));
}

#[test]
fn one_that_is_just_asked_who_it_is_stays_rather_than_one_that_is_idle() {
    let gate = gate();
    let asked = enter(&gate, HERE);
    let asking = asked.pass().asking();
    let idle: Vec<_> = (0..4).map(|_| enter(&gate, HERE)).collect();
    assert!(!is_over(&asked) && is_over(&idle[0]));
    drop(asking);
    let _another = enter(&gate, HERE);
    assert!(is_over(&asked));
}

#[test]
fn a_host_far_away_has_half_of_the_pool_and_takes_no_place_of_others() {
    let gate = gate();
    let other = enter(&gate, ELSEWHERE);
    let here = enter(&gate, HERE);
    let crowd: Vec<_> = (0..4).map(|_| enter(&gate, FAR)).collect();
    let over: Vec<bool> = crowd.iter().map(is_over).collect();
    assert_eq!(over, [true, true, false, false]);
    assert!(!is_over(&other) && !is_over(&here));
}

#[test]
fn hosts_are_told_apart_by_what_one_customer_has() {
    let of = |text: &str| Host::of(text.parse().unwrap());
    assert_eq!(of("127.0.0.1"), of("::1"));
    assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
    assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:0:1"));
    assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
    let peer = Peer { address: "192.0.2.1:5".to_owned(), ..Peer::default() };
    assert_eq!(Host::of_info(&peer), of("192.0.2.1"));
    let remote_addr = Some(SocketAddr::from(([192, 0, 2, 1], 5)));
    assert_eq!(Host::of_info(&TcpConnectInfo { local_addr: None, remote_addr }), of("192.0.2.1"));
    assert_eq!(Host::of_info(&()), Host(None));
}

#[test]
fn a_principal_has_no_more_than_its_share_and_gives_it_back() {
    let gate = Gate::new(GateRules::new(4096));
    let mut open: Vec<_> = (0..OF_ONE_PRINCIPAL)
        .map(|_| {
            let it = enter(&gate, HERE);
            it.pass().known("greedy").unwrap();
            it
        })
        .collect();
    let another = enter(&gate, HERE);
    let refused = another.pass().known("greedy").unwrap_err();
    assert!(refused.message().contains("greedy has too many connections"), "{refused}");
    another.pass().known("modest").unwrap();
    open.pop();
    enter(&gate, HERE).pass().known("greedy").unwrap();
}

#[test]
fn descriptors_are_bounded_though_those_that_are_to_end_have_not_ended_yet() {
    let gate = gate();
    let known: Vec<_> = (0..8)
        .map(|n| {
            let it = enter(&gate, HERE);
            it.pass().known(&n.to_string()).unwrap();
            it
        })
        .collect();
    let one_more = enter(&gate, HERE);
    one_more.pass().known("9").unwrap_err();
    // No task moves the bytes of these connections: they do not end.
    let stuck: Vec<_> = (0..7).map(|_| enter(&gate, HERE)).collect();
    assert!(gate.admit_from(HERE.into()).is_none());
    assert!(known.iter().all(|it| !is_over(it)));
    drop(stuck);
    assert!(gate.admit_from(HERE.into()).is_some());
}

#[test]
fn calls_that_show_nobody_are_few_and_give_their_turn_back() {
    let gate = gate();
    let it = enter(&gate, HERE);
    let mut turns: Vec<_> = (0..CALLS).map(|_| it.pass().turn().unwrap()).collect();
    assert!(it.pass().turn().is_none());
    turns.pop();
    assert!(it.pass().turn().is_some());
}
