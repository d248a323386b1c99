//! A rollout and failing Nodes at the same time, with users who delete Machines: one budget, counted from the Machines.

use std::time::Duration;

use jiff::Timestamp;
use ostler_lifecycle::deployment::counts::{Counts, Fleet};
use ostler_lifecycle::deployment::rolling::roll;
use ostler_lifecycle::replacement::{Members, Sibling, SiblingState, Siblings, held};
use proptest::collection::vec;
use proptest::prelude::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Failed,
    Unhealthy,
    Creating,
    Available,
    Terminating,
}

/// A Machine: whether of the new template, and its state.
type Machine = (bool, State);

#[derive(Debug, Clone, Copy)]
enum Event {
    Pass,
    Reconcile,
    Ready(usize),
    Gone(usize),
    Break(usize),
    Recover(usize),
    GiveUp(usize),
    UserDeletes(usize),
}

#[derive(Debug, Clone)]
struct World {
    replicas: i32,
    surge: i32,
    unavailable: i32,
    limit: usize,
    /// Wanted replicas of the old and of the new set.
    wanted: [i32; 2],
    machines: Vec<Machine>,
}

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap()
}

impl World {
    fn count(&self, of: impl Fn(&Machine) -> bool) -> i32 {
        number(self.machines.iter().filter(|it| of(it)).count())
    }

    fn active(&self) -> i32 {
        self.count(|it| it.1 != State::Terminating)
    }

    fn available(&self) -> i32 {
        self.count(|it| it.1 == State::Available)
    }

    fn fleet(&self) -> Fleet {
        let counts = |new: bool| Counts {
            wanted: self.wanted[usize::from(new)],
            machines: self.count(|it| it.0 == new),
            available: self.count(|it| *it == (new, State::Available)),
            ..Counts::default()
        };
        Fleet {
            replicas: self.replicas,
            surge: self.surge,
            unavailable: self.unavailable,
            new: Some(counts(true)),
            old: vec![counts(false)],
        }
    }

    /// What a set does: failed machines go, then as many as are too many, the worst first; then it creates.
    fn reconcile(&mut self) {
        self.machines.sort_by_key(|it| it.1);
        for new in [false, true] {
            let wanted = self.wanted[usize::from(new)];
            let lives = |it: &Machine| it.0 == new && it.1 != State::Terminating;
            let mut surplus = self.count(lives) - wanted;
            for machine in self.machines.iter_mut().filter(|it| lives(it)) {
                if machine.1 == State::Failed || surplus > 0 {
                    machine.1 = State::Terminating;
                    surplus -= 1;
                }
            }
            for _ in self.count(lives)..wanted {
                self.machines.push((new, State::Creating));
            }
        }
    }

    fn siblings(&self) -> Siblings {
        let in_flight = self.machines.iter().filter_map(|(_, state)| {
            let state = match state {
                State::Failed => SiblingState::Failed,
                State::Creating => SiblingState::Creating,
                State::Terminating => SiblingState::Terminating,
                State::Unhealthy | State::Available => return None,
            };
            Some(Sibling { name: "m".to_owned(), state, holds_until: Timestamp::MAX })
        });
        let in_flight: Vec<_> = in_flight.collect();
        let size = |count: i32| usize::try_from(count).unwrap();
        let members = Members {
            wanted: size(self.replicas),
            living: size(self.active()),
            unhealthy: size(self.count(|it| it.1 == State::Unhealthy)),
            in_flight: in_flight.len(),
        };
        Siblings { in_flight, members, limit: self.limit, ..Siblings::default() }
    }

    /// An unhealthy machine is due.
    fn give_up(&mut self, index: usize) {
        let siblings = self.siblings();
        let now = Timestamp::UNIX_EPOCH;
        if held(&siblings, now, now, Duration::from_mins(20)).is_some() {
            return;
        }
        let on_their_way = siblings.in_flight.len();
        assert!(on_their_way < self.limit, "over the budget: {self:?}");
        assert!(
            !siblings.members.is_mass_failure() || on_their_way == 0,
            "more than one: {self:?}"
        );
        self.change(index, State::Unhealthy, State::Failed);
    }

    fn change(&mut self, index: usize, from: State, to: State) {
        let count = self.machines.len().max(1);
        let order = (0..count).map(|it| (it + index) % count);
        for at in order {
            if let Some(machine) = self.machines.get_mut(at).filter(|it| it.1 == from) {
                machine.1 = to;
                return;
            }
        }
    }

    fn happens(&mut self, event: Event) {
        let before = if matches!(event, Event::Reconcile) {
            // A machine that its set does not want any more is promised to no user.
            self.fleet().available_with(&self.fleet().as_it_is())
        } else {
            self.available()
        };
        match event {
            Event::Pass => {
                let targets = roll(&self.fleet());
                self.wanted = [targets.old[0], targets.new];
            }
            Event::Reconcile => self.reconcile(),
            Event::Ready(at) => self.change(at, State::Creating, State::Available),
            Event::Gone(at) => {
                let gone = self.machines.iter().position(|it| it.1 == State::Terminating);
                gone.filter(|_| at % 2 == 0).map(|at| self.machines.remove(at));
            }
            Event::Break(at) => self.change(at, State::Available, State::Unhealthy),
            Event::Recover(at) => self.change(at, State::Unhealthy, State::Available),
            Event::GiveUp(at) => self.give_up(at),
            Event::UserDeletes(at) => self.change(at, State::Available, State::Terminating),
        }
        let ceiling = self.replicas + self.surge;
        assert!(self.active() <= ceiling, "too many after {event:?}: {self:?}");
        let taken_by_others = matches!(event, Event::Break(_) | Event::UserDeletes(_));
        let floor = before.min(self.replicas - self.unavailable);
        assert!(taken_by_others || self.available() >= floor, "{event:?} takes one: {self:?}");
    }

    /// Every pending change comes true, until nothing changes.
    fn ends(&mut self) {
        for _ in 0..500 {
            let before = (self.wanted, self.machines.clone());
            self.happens(Event::Pass);
            self.happens(Event::Reconcile);
            self.machines.retain(|it| it.1 != State::Terminating);
            for machine in self.machines.iter_mut().filter(|it| it.1 == State::Creating) {
                machine.1 = State::Available;
            }
            self.happens(Event::GiveUp(0));
            if before == (self.wanted, self.machines.clone()) {
                let healthy =
                    vec![(true, State::Available); usize::try_from(self.replicas).unwrap()];
                assert_eq!((self.wanted, &self.machines), ([0, self.replicas], &healthy));
                return;
            }
        }
        panic!("it never ends: {self:?}");
    }
}

fn worlds() -> impl Strategy<Value = World> {
    (1..12, 0..4, 0..4_i32, 1..4_usize).prop_map(|(replicas, surge, unavailable, limit)| {
        let unavailable = if surge == 0 { unavailable.max(1) } else { unavailable };
        let machines = vec![(false, State::Available); usize::try_from(replicas).unwrap()];
        let unavailable = unavailable.min(replicas);
        World { replicas, surge, unavailable, limit, wanted: [replicas, 0], machines }
    })
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let index = || 0..16_usize;
    let one = prop_oneof![
        4 => Just(Event::Pass),
        4 => Just(Event::Reconcile),
        4 => index().prop_map(Event::Ready),
        3 => index().prop_map(Event::Gone),
        2 => index().prop_map(Event::Break),
        1 => index().prop_map(Event::Recover),
        3 => index().prop_map(Event::GiveUp),
        1 => index().prop_map(Event::UserDeletes),
    ];
    vec(one, 0..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn rollouts_and_failures_share_one_budget_keep_their_promises_and_end(
        mut world in worlds(), events in events(),
    ) {
        for event in events {
            world.happens(event);
        }
        world.ends();
    }
}
