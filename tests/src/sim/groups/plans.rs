//! What a seed says of sets and deployments, by dice of its own: nothing else of a plan depends on it.

use super::super::dice::Dice;
use super::super::plan::{CLASSES, Party, Step, Weather, What};
use super::{Group, IN_PLACE, MEMBERS, Rollout, Wish};

/// The first seed whose plan may have sets and deployments. Every change is judged by the lives before; the later lives
/// have to be lived more often first.
pub const FIRST: u64 = 100_000;
/// Deployments of a life at most, and sets of nobody.
const EACH: u64 = 2;
/// Milliseconds after which a request is done at the latest. Its client gives up after 15 s.
const LATEST: u16 = 19_500;
/// Most replicas of a set or deployment.
const REPLICAS: u64 = 5;

/// The part of a plan that is about sets and deployments; empty in four of ten, and in those of the first seeds.
pub fn of(seed: u64, length: u64) -> Vec<Step> {
    let dice = Dice::new(seed.rotate_left(41));
    if seed < FIRST || !dice.percent(60) {
        return Vec::new();
    }
    let mut groups: Vec<_> =
        (0..dice.between(1, EACH + 1)).map(|it| Group::Fleet(byte(it))).collect();
    groups.extend((0..dice.between(0, EACH)).map(|it| Group::Set(byte(it))));
    if dice.percent(40) {
        groups.push(Group::Fleet(IN_PLACE));
    }
    let mut steps = Vec::new();
    for group in &groups {
        steps.push(Step { at: dice.between(0, length / 3), what: keep(&dice, *group) });
    }
    for _ in 0..dice.between(3, 14) {
        let (at, what) = (dice.between(0, length), user(&dice, &groups));
        let back = back(&dice, &what);
        steps.push(Step { at, what });
        if let Some(what) = back {
            steps.push(Step { at: at + dice.between(500, 60_000), what });
        }
    }
    for _ in 0..dice.between(0, 4) {
        steps.push(Step { at: dice.between(0, length), what: fault(&dice) });
    }
    steps
}

fn byte(number: u64) -> u8 {
    u8::try_from(number).unwrap_or_default()
}

fn keep(dice: &Dice, group: Group) -> What {
    if let Group::Fleet(IN_PLACE..) = group {
        let (surge, missing) = dice.pick(&[(0, 1), (1, 0), (1, 1)]);
        let rollout = Rollout::InPlace(surge, missing, dice.percent(30));
        // Machines that stay cannot go to any other class.
        let replicas = byte(dice.between(1, REPLICAS));
        return What::Group(Wish::Keep { group, replicas, class: 0, rollout });
    }
    let rollout = match dice.between(0, 5) {
        0 => Rollout::Recreate,
        1 => Rollout::Rolling(0, 1),
        2 => Rollout::Rolling(2, 1),
        _ => Rollout::Rolling(1, 0),
    };
    // Those of the last class never join: a user comes to that by a mistake, and later.
    let class = byte(dice.between(0, u64::from(CLASSES) - 1));
    let replicas = byte(dice.between(0, REPLICAS));
    What::Group(Wish::Keep { group, replicas, class, rollout })
}

fn user(dice: &Dice, groups: &[Group]) -> What {
    let group = dice.pick(groups);
    let fleet = match dice.pick(groups) {
        Group::Fleet(fleet) => fleet,
        Group::Set(_) => 0,
    };
    let machine = MEMBERS + byte(dice.between(0, 8));
    match dice.between(0, 28) {
        0..=4 => What::Group(Wish::Scale { group, replicas: byte(dice.between(0, REPLICAS)) }),
        5..=8 => {
            let class = byte(dice.between(0, u64::from(CLASSES)));
            let class = if fleet < IN_PLACE { class } else { 0 };
            What::Group(Wish::Roll { fleet, class, version: byte(dice.between(0, 3)) })
        }
        9 | 10 => What::Group(Wish::RollBack { fleet }),
        11 => What::Group(Wish::Hold { fleet, on: dice.percent(60) }),
        12 => What::Group(Wish::Delete { group, orphan: dice.percent(50) }),
        13 | 14 => What::Group(Wish::Mark { fleet, machine }),
        15 => What::Group(Wish::Relabel { machine, on: false }),
        16 => What::Group(Wish::Relabel { machine, on: true }),
        17 => What::Group(Wish::TypedPut { group }),
        18 => What::TypedPut { machine, delete: dice.percent(50) },
        19 => What::Vanish { machine },
        20 => What::Pods { machine, count: 2, grace: 20, held: dice.percent(40) },
        21 => What::Force { machine },
        22 => What::OldFile { machine },
        23 | 24 => keep(dice, group),
        25 | 26 => What::Group(Wish::Select { fleet, machine }),
        _ => What::Delete { machine },
    }
}

/// A user may roll back a changed template.
fn back(dice: &Dice, what: &What) -> Option<What> {
    let What::Group(Wish::Roll { fleet, .. }) = *what else { return None };
    dice.percent(40).then_some(What::Group(Wish::RollBack { fleet }))
}

/// The worst for a controller that counts: lost answers, lagging caches, another leader.
fn fault(dice: &Dice) -> What {
    let weather = |kind| What::Weather { kind, millis: dice.between(3_000, 60_000), percent: 100 };
    match dice.between(0, 5) {
        0 => What::Weather {
            kind: Weather::ApiLost(Party::Cores),
            millis: dice.between(3_000, 60_000),
            percent: dice.pick(&[30, 60, 100]),
        },
        1 => weather(Weather::WatchSlow(Party::Cores, dice.pick(&[2_000, 10_000, 20_000]))),
        2 => weather(Weather::ApiLate(Party::Cores, LATEST)),
        3 => weather(Weather::ApiSlow(Party::Cores, dice.pick(&[2_000, 15_000]))),
        _ => What::CrashCore {
            core: byte(dice.between(0, 3)),
            down: dice.between(200, 20_000),
            writes: Some(byte(dice.between(0, 30))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::Plan;
    use super::*;

    #[test]
    fn most_plans_have_deployments_and_the_rest_of_them_does_not_depend_on_it() {
        let with = (FIRST..FIRST + 200).filter(|seed| Plan::of(*seed).has_groups()).count();
        assert!((80..160).contains(&with), "{with}");
        assert!((0..200).all(|seed| !Plan::of(seed).has_groups()));
        let written = serde_json::to_string(&Wish::Scale { group: Group::Fleet(1), replicas: 2 });
        assert_eq!(written.unwrap(), r#"{"Scale":{"group":{"Fleet":1},"replicas":2}}"#);
    }
}
