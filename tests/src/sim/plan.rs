//! The meaning of a seed: the participants, the wishes of users, the faults, and their times.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::checks;
use super::dice::Dice;
use super::groups::{self, Wish};
use super::mutation::Mutation;
use super::pools;
use super::reserves;

/// Classes of a world: see `users.rs`.
pub const CLASSES: u8 = 5;
/// Machines of a world at most.
pub const MACHINES: u8 = 6;

/// A life of the system. Written as JSON it can be kept, shortened and run again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Also seeds everything that the plan does not name.
    pub seed: u64,
    /// Core replicas.
    pub cores: u8,
    /// Replicas of the driver of the first provider; the second one has one.
    pub drivers: u8,
    /// A safety measure that is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutation: Option<Mutation>,
    /// Steps in the order of their time.
    pub steps: Vec<Step>,
}

/// One event of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Milliseconds from the beginning.
    pub at: u64,
    /// What.
    pub what: What,
}

/// What may happen. Machines, classes, cores and drivers go by number; from [`groups::MEMBERS`] on, machines are
/// those of sets.
#[expect(missing_docs, reason = "each variant says what its fields are")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// A user makes a machine of a class.
    Create { machine: u8, class: u8 },
    /// A user deletes a machine.
    Delete { machine: u8 },
    /// A user asks for force.
    Force { machine: u8 },
    /// A user gives the machines of a class these tags. The same version again is a revert.
    Edit { class: u8, version: u8 },
    /// A user cordons a Node, or takes that back.
    Cordon { machine: u8, on: bool },
    /// A user pauses a machine, or takes that back.
    Pause { machine: u8, on: bool },
    /// Pods are bound to the Node of a machine, with a budget that holds them for a while or without.
    Pods { machine: u8, count: u8, grace: u8, held: bool },
    /// From now on so many pods are kept, which come back under their names, on any Node that takes them.
    Workload { pods: u8 },
    /// The budgets release the pods.
    Release,
    /// A user deletes a machine and takes its finalizers away: its instance is an orphan from then
    /// on.
    TearAway { machine: u8 },
    /// A client that knows only the types of machine-controller-manager writes a machine back, object and status,
    /// after it deleted it if that is said: as the MachineSet controller there does.
    TypedPut { machine: u8, delete: bool },
    /// A user puts the file back from which a machine was made: `kubectl replace`. Annotations, labels, finalizers
    /// and the provider id are gone then.
    OldFile { machine: u8 },
    /// A user deletes an instance by hand.
    Vanish { machine: u8 },
    /// Something about sets and deployments.
    Group(Wish),
    /// Something about pools.
    Pool(pools::Wish),
    /// Something about health checks.
    Check(checks::Wish),
    /// Something about reserves.
    Reserve(reserves::Wish),
    /// SIGKILL, and a new process so many milliseconds later; after so many more writes, in the
    /// moment the next one is done and not yet answered, if that is given.
    CrashCore { core: u8, down: u64, writes: Option<u8> },
    /// SIGTERM, and a new process.
    StopCore { core: u8, down: u64 },
    /// SIGKILL of a driver, immediately or in the middle of its next call: with the effect or
    /// without.
    CrashDriver { driver: u8, down: u64, during: Option<bool> },
    /// SIGTERM of a driver.
    StopDriver { driver: u8, down: u64 },
    /// A driver of this provider claims to hold operations that no core sent.
    FalseHello { provider: u8 },
    /// Every connection between drivers and cores ends.
    Cut,
    /// The wall clock of a core is wrong by so many milliseconds from now on.
    Skew { core: u8, millis: i64 },
    /// Every watch of a party ends.
    CutWatches { party: Party },
    /// For a while something goes wrong with some of the requests or calls.
    Weather { kind: Weather, millis: u64, percent: u8 },
}

/// A client of the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Party {
    /// Every core.
    Cores,
    /// One of them.
    Core(u8),
    /// All kubelets.
    Kubelets,
}

/// A fault that lasts for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Weather {
    /// The API server cannot be reached.
    ApiDown(Party),
    /// The API server answers this code and does nothing.
    ApiCode(Party, u16),
    /// The API server does the work, and its answer is lost.
    ApiLost(Party),
    /// It takes up to so many milliseconds longer, before and after.
    ApiSlow(Party, u16),
    /// What it is asked to change is changed up to so many milliseconds later, although the client gave up or died.
    ApiLate(Party, u16),
    /// Watches cannot go on where they were: 410.
    ApiExpired(Party),
    /// Events of watches come up to so many milliseconds late.
    WatchSlow(Party, u16),
    /// Links to the cores take up to so many milliseconds longer.
    LinkSlow(u16),
    /// Links stay open and carry nothing.
    LinkSilent,
    /// Calls of drivers take up to so many seconds longer.
    CloudSlow(u16),
    /// Calls of drivers fail, and nothing was done.
    CloudFails,
    /// Calls of drivers do their work and then fail.
    CloudFailsAfter,
    /// Calls of drivers do their work and never answer.
    CloudHangsAfter,
    /// Calls of drivers hang, and do nothing before their time is over.
    CloudHangs,
    /// Lists show what was there a while ago.
    CloudStale,
    /// There is no room for another instance.
    CloudFull,
    /// Creations and deletions are never answered, and done long after everybody gave them up.
    CloudLate,
    /// An instance is not found for up to two minutes after it was made, nor by a driver that would
    /// make it again.
    CloudBlind,
    /// Updates stop in the middle, and say so.
    CloudHalf,
    /// Messages of a link come twice.
    LinkTwice,
    /// Drivers break the contract.
    CloudLies(Lie),
}

/// A false answer of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lie {
    /// An instance was made, and there is none.
    Made,
    /// An instance is gone, and it is there.
    Gone,
    /// There is no instance of this machine.
    Unknown,
    /// There is no instance at all.
    Empty,
}

impl Weather {
    /// Whether it is between the API server and its clients.
    pub const fn is_of_the_api(self) -> bool {
        matches!(
            self,
            Self::ApiDown(_)
                | Self::ApiCode(..)
                | Self::ApiLost(_)
                | Self::ApiSlow(..)
                | Self::ApiLate(..)
                | Self::ApiExpired(_)
                | Self::WatchSlow(..)
        )
    }

    /// The kind in a word, without numbers.
    pub fn word(self) -> &'static str {
        match self {
            Self::ApiDown(_) => "api-down",
            Self::ApiCode(..) => "api-code",
            Self::ApiLost(_) => "api-lost",
            Self::ApiSlow(..) => "api-slow",
            Self::ApiLate(..) => "api-late",
            Self::ApiExpired(_) => "api-expired",
            Self::WatchSlow(..) => "watch-slow",
            Self::LinkSlow(_) => "link-slow",
            Self::LinkSilent => "link-silent",
            Self::CloudSlow(_) => "cloud-slow",
            Self::CloudFails => "cloud-fails",
            Self::CloudFailsAfter => "cloud-fails-after",
            Self::CloudHangsAfter => "cloud-hangs-after",
            Self::CloudHangs => "cloud-hangs",
            Self::CloudStale => "cloud-stale",
            Self::CloudFull => "cloud-full",
            Self::CloudLate => "cloud-late",
            Self::CloudBlind => "cloud-blind",
            Self::CloudHalf => "cloud-half",
            Self::LinkTwice => "link-twice",
            Self::CloudLies(Lie::Made) => "lie-made",
            Self::CloudLies(Lie::Gone) => "lie-gone",
            Self::CloudLies(Lie::Unknown) => "lie-unknown",
            Self::CloudLies(Lie::Empty) => "lie-empty",
        }
    }
}

impl What {
    /// A word for a fault; none for what users may do at any time.
    pub fn fault(&self) -> Option<&'static str> {
        Some(match self {
            Self::CrashCore { writes: None, .. } => "crash-core",
            Self::CrashCore { .. } => "crash-core-mid-write",
            Self::StopCore { .. } => "stop-core",
            Self::CrashDriver { during: None, .. } => "crash-driver",
            Self::CrashDriver { during: Some(false), .. } => "crash-driver-before-effect",
            Self::CrashDriver { during: Some(true), .. } => "crash-driver-after-effect",
            Self::StopDriver { .. } => "stop-driver",
            Self::FalseHello { .. } => "false-hello",
            Self::Cut => "cut",
            Self::Skew { .. } => "skew",
            Self::CutWatches { .. } => "cut-watches",
            Self::TearAway { .. } => "tear-away",
            Self::TypedPut { .. } => "typed-put",
            Self::OldFile { .. } => "old-file",
            Self::Vanish { .. } => "vanish",
            Self::Group(wish) => return wish.fault(),
            Self::Pool(wish) => return wish.fault(),
            Self::Check(wish) => return wish.fault(),
            Self::Reserve(wish) => return wish.fault(),
            Self::Weather { kind, .. } => kind.word(),
            Self::Create { .. }
            | Self::Delete { .. }
            | Self::Force { .. }
            | Self::Edit { .. }
            | Self::Cordon { .. }
            | Self::Pause { .. }
            | Self::Pods { .. }
            | Self::Workload { .. }
            | Self::Release => return None,
        })
    }
}

impl Plan {
    /// The plan of a seed.
    pub fn of(seed: u64) -> Self {
        let dice = Dice::new(seed);
        let length = dice.between(30, 240) * 1000;
        let mut steps = Vec::new();
        for machine in 0..dice.between(1, u64::from(MACHINES) + 1) {
            let machine = u8::try_from(machine).unwrap_or_default();
            let class = u8::try_from(dice.between(0, u64::from(CLASSES))).unwrap_or_default();
            let at = dice.between(0, length / 2);
            steps.push(Step { at, what: What::Create { machine, class } });
        }
        for _ in 0..dice.between(2, 12) {
            steps.push(Step { at: dice.between(0, length), what: user(&dice) });
        }
        // Some lives are calm: what goes wrong without any fault is the worst.
        let faults = if dice.percent(5) { 0 } else { dice.between(1, 12) };
        let lying = dice.percent(10);
        for _ in 0..faults {
            let at = dice.between(0, length);
            let what = if lying && dice.percent(40) { lie(&dice) } else { fault(&dice) };
            steps.push(Step { at, what });
        }
        steps.extend(false_hellos(seed, length, &steps));
        steps.extend(typed_puts(seed, length));
        steps.extend(old_files(seed, length));
        let mut others = groups::plans::of(seed, length);
        let mut pools = pools::plans::of(seed, length);
        pools.extend(pools::plans::more(seed, length, &pools));
        pools.extend(pools::plans::scaled(seed, length, &pools));
        others.extend(pools);
        others.extend(checks::plans::of(seed, length, &others));
        others.extend(reserves::of(seed, length, &others));
        steps.extend(others);
        steps.sort_by_key(|step| step.at);
        let cores = u8::try_from(dice.between(1, 4)).unwrap_or(1);
        let drivers = u8::try_from(dice.between(1, 3)).unwrap_or(1);
        Self { seed, cores, drivers, mutation: None, steps }
    }

    /// By how much a time may be wrong that one core wrote and another one reads.
    pub fn tolerance(&self) -> Duration {
        let skew = |what: &What| {
            let What::Skew { millis, .. } = what else { return 0 };
            millis.unsigned_abs()
        };
        let most = self.steps.iter().map(|step| skew(&step.what)).max().unwrap_or_default();
        Duration::from_secs(2) + Duration::from_millis(2 * most)
    }

    /// Whether cores run sets and deployments in it.
    pub fn has_groups(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.what, What::Group(Wish::Keep { .. })))
    }

    /// Whether cores run pools in it.
    pub fn has_pools(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.what, What::Pool(_)))
    }

    /// Whether groups may be there that are of no pool.
    pub fn has_orphan_groups(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.what, What::Pool(wish) if wish.orphans()))
    }

    /// Whether users have machines checked in it.
    pub fn has_checks(&self) -> bool {
        let keeps = |what: &What| matches!(what, What::Check(checks::Wish::Keep { .. }));
        self.steps.iter().any(|step| keeps(&step.what))
    }

    /// The controllers of the cores.
    pub fn controllers(&self) -> &'static str {
        match (self.has_groups(), self.has_checks()) {
            (true, _) => "*",
            (false, true) => "machine,machinehealthcheck",
            (false, false) => "machine",
        }
    }

    /// Whether Nodes are updated in place in it.
    pub fn updates_in_place(&self) -> bool {
        let in_place = |what: &What| {
            matches!(what, What::Group(Wish::Keep { rollout: groups::Rollout::InPlace(..), .. }))
        };
        self.steps.iter().any(|step| in_place(&step.what))
    }

    /// The greatest age of a core's observations: the time of one pass, plus the outages that keep the core from
    /// reading or its cache from updates.
    pub fn lag(&self) -> Duration {
        let late = |what: &What| {
            let What::Weather { kind, millis, .. } = what else { return 0 };
            let watches = if matches!(kind, Weather::WatchSlow(..)) { 180_000 } else { 0 };
            if kind.is_of_the_api() { millis + watches } else { 0 }
        };
        let most = self.steps.iter().map(|step| late(&step.what)).max().unwrap_or_default();
        Duration::from_mins(1) + Duration::from_millis(most)
    }

    /// Whether drivers break the contract in it: then the core cannot keep what they promise.
    pub fn lies(&self) -> bool {
        let lie = |what: &What| matches!(what, What::Weather { kind: Weather::CloudLies(_), .. });
        self.steps.iter().any(|step| lie(&step.what))
    }
}

/// Drivers with false claims, by dice of their own: so nothing else of the plan depends on them. They come at any time,
/// and right after the start of a core.
fn false_hellos(seed: u64, length: u64, others: &[Step]) -> Vec<Step> {
    let dice = Dice::new(seed.rotate_left(31));
    if !dice.percent(30) {
        return Vec::new();
    }
    let anew = others.iter().filter_map(|step| {
        let (What::CrashCore { down, .. } | What::StopCore { down, .. }) = step.what else {
            return None;
        };
        Some(step.at + down)
    });
    let mut times: Vec<u64> = anew.map(|at| at + dice.between(0, 20_000)).collect();
    times.extend((0..dice.between(1, 4)).map(|_| dice.between(0, length)));
    let step = |at| Step { at, what: What::FalseHello { provider: small(&dice, 2) } };
    times.into_iter().map(step).collect()
}

/// Clients with upstream's types, by dice of their own too.
fn typed_puts(seed: u64, length: u64) -> Vec<Step> {
    let dice = Dice::new(seed.rotate_left(17));
    if !dice.percent(30) {
        return Vec::new();
    }
    let put = |_| Step {
        at: dice.between(0, length),
        what: What::TypedPut { machine: small(&dice, MACHINES), delete: dice.percent(30) },
    };
    (0..dice.between(1, 8)).map(put).collect()
}

/// Users with old files, by dice of their own too.
fn old_files(seed: u64, length: u64) -> Vec<Step> {
    let dice = Dice::new(seed.rotate_left(23));
    if !dice.percent(15) {
        return Vec::new();
    }
    let put = |_| Step {
        at: dice.between(0, length),
        what: What::OldFile { machine: small(&dice, MACHINES) },
    };
    (0..dice.between(1, 5)).map(put).collect()
}

/// Clocks are a little wrong, or jump.
const SKEWS: [i64; 6] = [-90_000, -9_000, -1_000, 1_000, 9_000, 90_000];

fn lie(dice: &Dice) -> What {
    What::Weather {
        kind: Weather::CloudLies(dice.pick(&[Lie::Made, Lie::Gone, Lie::Unknown, Lie::Empty])),
        millis: dice.between(5_000, 120_000),
        percent: dice.pick(&[30, 60, 100]),
    }
}

fn small(dice: &Dice, below: u8) -> u8 {
    u8::try_from(dice.between(0, u64::from(below))).unwrap_or_default()
}

fn user(dice: &Dice) -> What {
    let machine = small(dice, MACHINES);
    match dice.between(0, 17) {
        0..=3 => What::Delete { machine },
        4 => What::Force { machine },
        5..=7 => What::Edit { class: small(dice, CLASSES), version: small(dice, 3) },
        8 => What::Cordon { machine, on: dice.percent(60) },
        9 => What::Pause { machine, on: dice.percent(60) },
        10..=12 => What::Pods {
            machine,
            count: 1 + small(dice, 3),
            grace: 5 + small(dice, 25),
            held: dice.percent(30),
        },
        13 => What::Create { machine, class: small(dice, CLASSES) },
        14 => What::Workload { pods: 1 + small(dice, 4) },
        15 => What::TearAway { machine },
        _ => What::Release,
    }
}

fn fault(dice: &Dice) -> What {
    let core = small(dice, 3);
    let driver = small(dice, 3);
    let down = dice.between(200, 20_000);
    match dice.between(0, 24) {
        0 => What::CrashCore { core, down, writes: None },
        1..=3 => What::CrashCore { core, down, writes: Some(small(dice, 20)) },
        4 => What::StopCore { core, down },
        5 => What::CrashDriver { driver, down, during: None },
        6..=8 => What::CrashDriver { driver, down, during: Some(dice.percent(60)) },
        9 => What::StopDriver { driver, down },
        10 => What::Cut,
        11 => What::CutWatches { party: party(dice) },
        12 => What::Vanish { machine: small(dice, MACHINES) },
        13 => What::Skew { core, millis: dice.pick(&SKEWS) },
        _ => What::Weather {
            kind: weather(dice),
            millis: dice.between(1_000, 60_000),
            percent: dice.pick(&[10, 30, 60, 100]),
        },
    }
}

fn party(dice: &Dice) -> Party {
    match dice.between(0, 4) {
        0 | 1 => Party::Cores,
        2 => Party::Core(small(dice, 3)),
        _ => Party::Kubelets,
    }
}

fn weather(dice: &Dice) -> Weather {
    let party = party(dice);
    match dice.between(0, 19) {
        0 => Weather::ApiDown(party),
        1 => Weather::ApiCode(party, dice.pick(&[409, 429, 500, 503, 504])),
        2 => Weather::ApiLost(party),
        3 => Weather::ApiSlow(party, dice.pick(&[100, 2_000, 15_000])),
        4 => Weather::ApiExpired(party),
        5 => Weather::WatchSlow(party, dice.pick(&[200, 5_000, 20_000])),
        6 => Weather::LinkSlow(dice.pick(&[50, 1_000, 8_000])),
        7 => Weather::LinkSilent,
        8 => Weather::CloudSlow(dice.pick(&[2, 20, 120])),
        9 => Weather::CloudFails,
        10 => Weather::CloudFailsAfter,
        11 => Weather::CloudHangsAfter,
        12 => Weather::CloudHangs,
        13 => Weather::CloudFull,
        14 => Weather::CloudLate,
        15 => Weather::LinkTwice,
        16 => Weather::CloudBlind,
        17 => Weather::CloudHalf,
        _ => Weather::CloudStale,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn false_hellos_come_in_some_plans_and_change_nothing_else_of_them() {
        let is_false = |step: &Step| matches!(step.what, What::FalseHello { .. });
        let with = (0..100).filter(|seed| Plan::of(*seed).steps.iter().any(is_false)).count();
        assert!((10..60).contains(&with), "{with}");
        let written = serde_json::to_string(&What::FalseHello { provider: 1 }).unwrap();
        assert_eq!(written, r#"{"FalseHello":{"provider":1}}"#);
    }

    #[test]
    fn a_plan_is_that_of_its_seed_and_survives_being_written_down() {
        let plan = Plan::of(7);
        assert_eq!(plan, Plan::of(7));
        assert_ne!(plan.steps, Plan::of(8).steps);
        let text = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
    }
}
