//! What a seed says of pools, by dice of its own: nothing else of a plan depends on it.

use super::super::dice::Dice;
use super::super::groups::plans::FIRST;
use super::super::plan::{Step, What};
use super::Wish;

/// Pools of a life at most.
const POOLS: u64 = 2;
/// Classes that groups are made of: see `users`.
pub const CLASSES: u8 = 3;
/// Most replicas of a pool.
const REPLICAS: u64 = 5;

/// The part of a plan that is about pools; empty in seven of ten, and in those of the first seeds.
pub fn of(seed: u64, length: u64) -> Vec<Step> {
    let dice = Dice::new(seed.rotate_left(47));
    if seed < FIRST || !dice.percent(30) {
        return Vec::new();
    }
    let pools = dice.between(1, POOLS + 1);
    let mut steps = Vec::new();
    for pool in 0..pools {
        let what = What::Pool(keep(&dice, byte(pool)));
        steps.push(Step { at: dice.between(0, length / 3), what });
    }
    for _ in 0..dice.between(3, 12) {
        let what = What::Pool(wish(&dice, byte(dice.between(0, pools))));
        steps.push(Step { at: dice.between(0, length), what });
    }
    steps
}

/// The first seed whose pools are updated in place or deleted by force, and whose clouds have groups of nobody. Plans of earlier
/// seeds stay the same.
pub const IN_PLACE_FROM: u64 = 10_000_000;
/// The pool whose instances are updated in place.
const IN_PLACE: u8 = 2;

/// What came later, by other dice: updates in place, and groups of no pool. Empty in plans without pools.
pub fn more(seed: u64, length: u64, pools: &[Step]) -> Vec<Step> {
    let dice = Dice::new(seed.rotate_left(53));
    if seed < IN_PLACE_FROM || pools.is_empty() {
        return Vec::new();
    }
    let mut steps = Vec::new();
    let mut step = |at, wish| steps.push(Step { at, what: What::Pool(wish) });
    if dice.percent(60) {
        let begin = dice.between(0, length / 3);
        step(begin, keep_in_place(&dice));
        for _ in 0..dice.between(2, 7) {
            step(dice.between(begin, length + 30_000), of_update(&dice));
        }
    }
    if dice.percent(50) {
        let pool = byte(dice.between(0, u64::from(IN_PLACE) + 2));
        step(dice.between(0, length), Wish::Stray { pool });
    }
    if dice.percent(50) {
        // Also while the group is made.
        let made =
            pools.iter().find(|it| matches!(it.what, What::Pool(wish) if wish.kept().is_some()));
        let made = made.map_or(0, |it| it.at);
        let at =
            if dice.percent(50) { made + dice.between(0, 6_000) } else { dice.between(0, length) };
        step(at, Wish::Tear { pool: byte(dice.between(0, POOLS)) });
        if dice.percent(50) {
            step(at + dice.between(0, 200_000), keep(&dice, byte(dice.between(0, POOLS))));
        }
    }
    steps
}

/// The first seed with pools that another system scales. Plans of earlier seeds stay the same.
pub const SCALED_FROM: u64 = 20_000_000;
/// Such a pool.
const SCALED: u8 = 3;

/// The latest part of plans, by other dice: a pool that another system scales. Empty in plans without pools.
pub fn scaled(seed: u64, length: u64, pools: &[Step]) -> Vec<Step> {
    let dice = Dice::new(seed.rotate_left(37));
    if seed < SCALED_FROM || pools.is_empty() || !dice.percent(50) {
        return Vec::new();
    }
    let begin = dice.between(0, length / 3);
    let (replicas, class) =
        (byte(dice.between(0, REPLICAS)), byte(dice.between(0, CLASSES.into())));
    let keep = Wish::KeepScaled { pool: SCALED, replicas, class };
    let mut steps = vec![Step { at: begin, what: What::Pool(keep) }];
    for _ in 0..dice.between(3, 9) {
        let what = What::Pool(of_scaled(&dice));
        steps.push(Step { at: dice.between(begin, length + 30_000), what });
    }
    steps
}

fn of_scaled(dice: &Dice) -> Wish {
    let (pool, machine) = (SCALED, byte(dice.between(0, REPLICAS)));
    match dice.between(0, 12) {
        0..=4 => Wish::Resize { pool, size: byte(dice.between(0, REPLICAS)) },
        // It is reset.
        5 => Wish::Scale { pool, replicas: byte(dice.between(0, REPLICAS)) },
        6 => Wish::Roll { pool, version: byte(dice.between(0, 3)) },
        7 | 8 => Wish::Machine { pool, machine },
        9 => Wish::Lose { pool, machine },
        10 => Wish::Pods { pool, machine, round: byte(dice.between(0, 250)) },
        _ => Wish::Delete { pool },
    }
}

fn keep_in_place(dice: &Dice) -> Wish {
    Wish::KeepInPlace {
        pool: IN_PLACE,
        replicas: byte(dice.between(1, REPLICAS)),
        class: byte(dice.between(0, CLASSES.into())),
        missing: byte(dice.between(1, 3)),
        replace: dice.percent(30),
    }
}

fn of_update(dice: &Dice) -> Wish {
    let machine = byte(dice.between(0, REPLICAS));
    let pool = if dice.percent(70) { IN_PLACE } else { byte(dice.between(0, POOLS)) };
    match dice.between(0, 12) {
        0..=2 => Wish::Roll { pool: IN_PLACE, version: byte(dice.between(0, 3)) },
        3..=5 => Wish::Update { pool, machine, on: dice.percent(70) },
        6 | 7 => Wish::Edit {
            class: byte(dice.between(0, CLASSES.into())),
            tags: byte(dice.between(0, 3)),
            image: byte(dice.between(0, 2)),
        },
        8 => Wish::Scale { pool: IN_PLACE, replicas: byte(dice.between(0, REPLICAS)) },
        9 => Wish::Machine { pool: IN_PLACE, machine },
        10 => Wish::Lose { pool: IN_PLACE, machine },
        _ => Wish::Pods { pool: IN_PLACE, machine, round: byte(dice.between(0, 250)) },
    }
}

fn byte(number: u64) -> u8 {
    u8::try_from(number).unwrap_or_default()
}

fn keep(dice: &Dice, pool: u8) -> Wish {
    let (surge, missing) = dice.pick(&[(1, 0), (0, 1), (1, 1), (2, 0)]);
    let (replicas, class) =
        (byte(dice.between(0, REPLICAS)), byte(dice.between(0, CLASSES.into())));
    Wish::Keep { pool, replicas, class, surge, missing }
}

fn wish(dice: &Dice, pool: u8) -> Wish {
    let machine = byte(dice.between(0, REPLICAS));
    match dice.between(0, 12) {
        0..=3 => Wish::Scale { pool, replicas: byte(dice.between(0, REPLICAS)) },
        4 | 5 => Wish::Roll { pool, version: byte(dice.between(0, 3)) },
        6 | 7 => Wish::Machine { pool, machine },
        8 => Wish::Lose { pool, machine },
        9 => Wish::Pods { pool, machine, round: byte(dice.between(0, 250)) },
        10 => Wish::Delete { pool },
        _ => keep(dice, pool),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::Plan;
    use super::*;

    #[test]
    fn some_plans_have_pools_and_those_that_everybody_runs_have_none() {
        let with = (FIRST..FIRST + 200).filter(|seed| Plan::of(*seed).has_pools()).count();
        assert!((30..100).contains(&with), "{with}");
        assert!((0..200).all(|seed| !Plan::of(seed).has_pools()));
        let written = serde_json::to_string(&Wish::Scale { pool: 1, replicas: 2 });
        assert_eq!(written.unwrap(), r#"{"Scale":{"pool":1,"replicas":2}}"#);
    }

    #[test]
    fn updates_in_place_and_orphans_come_from_a_later_seed_on() {
        let late = |step: &Step| {
            matches!(step.what, What::Pool(Wish::KeepInPlace { .. } | Wish::Tear { .. }))
        };
        let with = |first: u64| {
            (first..first + 200).filter(|seed| Plan::of(*seed).steps.iter().any(late)).count()
        };
        assert!(with(IN_PLACE_FROM) > 20);
        assert_eq!(with(FIRST), 0, "these seeds mean what they meant");
    }

    #[test]
    fn pools_that_others_scale_come_from_a_still_later_seed_on() {
        let scaled = |step: &Step| matches!(step.what, What::Pool(Wish::Resize { .. }));
        let with = |first: u64| {
            (first..first + 200).filter(|seed| Plan::of(*seed).steps.iter().any(scaled)).count()
        };
        assert!(with(SCALED_FROM) > 15);
        assert_eq!(with(IN_PLACE_FROM), 0, "these seeds mean what they meant");
    }
}
