//! What a seed says of pools, by dice of its own: nothing else of a plan depends on it.

use super::super::dice::Dice;
use super::super::groups::plans::FIRST;
use super::super::plan::{Step, What};
use super::Wish;

/// Pools of a life at most.
const POOLS: u64 = 2;
/// Classes that groups are made of: see `users`.
pub const CLASSES: u8 = 3;
/// Machines that a user wants of one at most.
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
}
