//! Any fleet in a world that moves at random: a rollout keeps its promises and ends.

use ostler_lifecycle::deployment::counts::{Counts, Fleet, SetSizes};
use ostler_lifecycle::deployment::rolling::roll;
use ostler_lifecycle::deployment::scaling::{Growth, is_due, scale};
use proptest::collection::vec;
use proptest::prelude::*;

/// A set with its Machines counted by state.
#[derive(Debug, Clone, Default)]
struct Set {
    wanted: i32,
    available: i32,
    unavailable: i32,
    preserved: i32,
    chosen: i32,
    terminating: i32,
    marks: Option<(i32, i32)>,
}

impl Set {
    fn counts(&self) -> Counts {
        Counts {
            wanted: self.wanted,
            machines: self.active() + self.terminating,
            living: self.active(),
            available: self.available,
            kept: self.preserved,
            updating: 0,
            marked: self.chosen,
            desired_mark: self.marks.map(|marks| marks.0),
            max_mark: self.marks.map(|marks| marks.1),
        }
    }

    fn active(&self) -> i32 {
        self.available + self.unavailable + self.preserved + self.chosen
    }

    /// The set controller's part: chosen machines always go, then unavailable ones first, preserved ones last.
    fn reconcile(&mut self) {
        self.terminating += std::mem::take(&mut self.chosen);
        while self.active() > self.wanted {
            for machines in [&mut self.unavailable, &mut self.available, &mut self.preserved] {
                if *machines > 0 {
                    *machines -= 1;
                    self.terminating += 1;
                    break;
                }
            }
        }
        self.unavailable += self.wanted - self.active();
    }
}

/// What happens in the world.
#[derive(Debug, Clone, Copy)]
enum Event {
    Pass,
    Reconcile(usize),
    Ready(usize),
    Gone(usize),
    Fail(usize),
    Scale(i32),
}

#[derive(Debug, Clone)]
struct World {
    replicas: i32,
    surge: i32,
    unavailable: i32,
    /// The new one is the last.
    sets: Vec<Set>,
    /// The minimum that the last pass knew.
    promised: i32,
}

impl World {
    fn fleet(&self) -> Fleet {
        let (new, old) = self.sets.split_last().unwrap();
        Fleet {
            replicas: self.replicas,
            surge: self.surge,
            unavailable: self.unavailable,
            new: Some(new.counts()),
            old: old.iter().map(Set::counts).collect(),
        }
    }

    fn available(&self) -> i32 {
        self.sets.iter().map(|set| set.available).sum()
    }

    /// A pass, with checks of its result.
    fn pass(&mut self) {
        let fleet = self.fleet();
        self.promised = fleet.min_available();
        let scales = is_due(&fleet);
        let next = if scales { scale(&fleet, Growth::Rolling) } else { roll(&fleet) };
        let before = fleet.as_it_is();
        let ceiling = i64::from(self.replicas + self.surge);
        assert!(next.total() <= ceiling.max(before.total()), "overshoots: {fleet:?} {next:?}");
        if scales && before.total() > ceiling && fleet.all_active() > 1 {
            assert!(next.total() <= ceiling, "shares do not sum up: {fleet:?} {next:?}");
        }
        assert!(next.old.iter().all(|it| *it >= 0) && next.new >= 0, "negative: {next:?}");
        let (was, is) = (fleet.available_with(&before), fleet.available_with(&next));
        let floor = was.min(fleet.min_available());
        // A user who wants fewer machines gets fewer, and preserved machines stay.
        let fewer = scales || fleet.newest().wanted > fleet.replicas;
        let preserves = self.sets.iter().any(|set| set.preserved > 0);
        assert!(is >= floor || fewer && preserves, "takes availability: {fleet:?} {next:?}");
        self.apply(&next);
    }

    fn apply(&mut self, next: &SetSizes) {
        let marks = Some((self.replicas, self.replicas + self.surge));
        let wanted = next.old.iter().chain([&next.new]);
        for (set, wanted) in self.sets.iter_mut().zip(wanted) {
            set.wanted = *wanted;
            set.marks = marks;
        }
    }

    fn happens(&mut self, event: Event) {
        let count = self.sets.len();
        match event {
            Event::Pass => self.pass(),
            Event::Reconcile(index) => {
                // A machine that its set does not want any more is promised to no user.
                let before =
                    self.sets.iter().map(|it| it.counts().available_of(it.wanted)).sum::<i32>();
                self.sets[index % count].reconcile();
                let floor = before.min(self.promised);
                assert!(self.available() >= floor, "availability is lost: {self:?}");
            }
            Event::Ready(index) => {
                let set = &mut self.sets[index % count];
                let ready = set.unavailable.min(1);
                set.unavailable -= ready;
                set.available += ready;
            }
            Event::Gone(index) => {
                let set = &mut self.sets[index % count];
                set.terminating = (set.terminating - 1).max(0);
            }
            Event::Fail(index) => {
                let set = &mut self.sets[index % count];
                let failed = set.available.min(1);
                set.available -= failed;
                set.unavailable += failed;
                // The rollout did not take the Machine.
                self.promised = self.promised.min(self.available());
            }
            Event::Scale(replicas) => self.replicas = replicas,
        }
    }

    /// Everything comes true, until nothing changes.
    fn ends(&mut self) {
        for _ in 0..1000 {
            let before: Vec<_> = self.sets.iter().map(Set::counts).collect();
            self.pass();
            for index in 0..self.sets.len() {
                self.happens(Event::Reconcile(index));
                let set = &mut self.sets[index];
                set.available += std::mem::take(&mut set.unavailable);
                set.terminating = 0;
                // Nothing is preserved for ever; a failed machine in the new set holds its place until then.
                set.preserved = 0;
            }
            if self.sets.iter().map(Set::counts).eq(before) {
                let expected = self.replicas;
                let wanted: Vec<_> = self.sets.iter().map(|set| set.wanted).collect();
                assert_eq!(wanted.last(), Some(&expected), "{self:?}");
                assert_eq!(wanted.iter().sum::<i32>(), expected, "{self:?}");
                return;
            }
        }
        panic!("it never ends: {self:?}");
    }
}

trait Active {
    fn all_active(&self) -> usize;
}

impl Active for Fleet {
    fn all_active(&self) -> usize {
        self.old.iter().chain(&self.new).filter(|set| set.wanted > 0).count()
    }
}

fn sets() -> impl Strategy<Value = Vec<Set>> {
    let set = (0..12, 0..12, 0..4, (0..2, 0..2), 0..3, proptest::option::of((0..12, 0..15)));
    let set = set.prop_map(
        |(wanted, available, unavailable, (preserved, chosen), terminating, marks)| Set {
            wanted,
            available,
            unavailable,
            preserved,
            chosen,
            terminating,
            marks,
        },
    );
    vec(set, 1..5)
}

fn worlds() -> impl Strategy<Value = World> {
    (0..12, 0..5, 0..5_i32, sets()).prop_map(|(replicas, surge, unavailable, sets)| {
        let unavailable = if surge == 0 { unavailable.max(1) } else { unavailable };
        World { replicas, surge, unavailable, sets, promised: 0 }
    })
}

fn events(failures: bool) -> impl Strategy<Value = Vec<Event>> {
    let index = 0..5_usize;
    let one = prop_oneof![
        3 => Just(Event::Pass),
        3 => index.clone().prop_map(Event::Reconcile),
        3 => index.clone().prop_map(Event::Ready),
        3 => index.clone().prop_map(Event::Gone),
        1 => index.prop_map(move |it| if failures { Event::Fail(it) } else { Event::Ready(it) }),
        1 => (0..12).prop_map(Event::Scale),
    ];
    vec(one, 0..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_rollout_keeps_machines_and_availability_within_its_limits_and_ends(
        mut world in worlds(), events in events(false),
    ) {
        for event in events {
            world.happens(event);
        }
        world.ends();
    }

    #[test]
    fn machines_that_fail_meanwhile_do_not_keep_it_from_its_end(
        mut world in worlds(), events in events(true),
    ) {
        for event in events {
            world.happens(event);
        }
        world.ends();
    }
}
