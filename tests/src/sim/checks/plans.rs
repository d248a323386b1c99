//! What a seed says of health checks, by dice of its own: nothing else of a plan depends on it.

use super::super::dice::Dice;
use super::super::groups;
use super::super::plan::{Step, What};
use super::super::pools;
use super::{Most, Of, Wish};

/// The first seed whose plan may have checks. Plans of earlier seeds stay the same.
pub const FIRST: u64 = pools::plans::IN_PLACE_FROM;
/// Checks of a life at most.
const CHECKS: u64 = 2;

/// The part of a plan that is about checks: in half of those that have sets, deployments or pools.
pub fn of(seed: u64, length: u64, others: &[Step]) -> Vec<Step> {
    let dice = Dice::new(seed.rotate_left(59));
    let kept = |step: &Step| {
        if let What::Group(groups::Wish::Keep { group, .. }) = step.what {
            return Some(Of::Group(group));
        }
        let What::Pool(wish) = step.what else { return None };
        wish.kept().map(Of::Pool)
    };
    let all: Vec<_> = others.iter().filter_map(kept).collect();
    if seed < FIRST || all.is_empty() || !dice.percent(50) {
        return Vec::new();
    }
    let mut steps = Vec::new();
    let mut step = |at, wish| steps.push(Step { at, what: What::Check(wish) });
    let checks = dice.between(1, CHECKS + 1);
    let mut checked = Vec::new();
    for check in 0..checks {
        let of = dice.pick(&all);
        checked.push(of);
        step(dice.between(0, length / 2), keep(&dice, byte(check), of));
    }
    for _ in 0..dice.between(3, 10) {
        let at = dice.between(length / 3, length + 60_000);
        let of = dice.pick(if dice.percent(80) { &checked } else { &all });
        step(at, wish(&dice, byte(dice.between(0, checks)), of));
    }
    steps
}

fn byte(number: u64) -> u8 {
    u8::try_from(number).unwrap_or_default()
}

fn keep(dice: &Dice, check: u8, of: Of) -> Wish {
    let most = match dice.between(0, 6) {
        0 => Most::All,
        1 | 2 => Most::Number(byte(dice.between(1, 3))),
        3 => Most::Percent(dice.pick(&[40, 60])),
        4 => Most::Range(1, 2),
        _ => Most::Range(2, 4),
    };
    Wish::Keep {
        check,
        of,
        seconds: dice.pick(&[20, 60, 100, 150]),
        startup: dice.pick(&[0, 30, 60, 120]),
        most,
    }
}

fn wish(dice: &Dice, check: u8, of: Of) -> Wish {
    let machine = byte(dice.between(0, 5));
    match dice.between(0, 14) {
        0..=7 => Wish::Sick {
            of,
            machine: dice.percent(60).then_some(machine),
            silent: dice.percent(50),
            millis: dice.between(40_000, 400_000),
        },
        8 | 9 => Wish::Remediate { of, machine },
        10 => Wish::Skip { of, machine, on: dice.percent(70) },
        11 => Wish::Delete { check },
        _ => keep(dice, check, of),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::Plan;
    use super::*;

    #[test]
    fn some_plans_have_checks_from_a_later_seed_on() {
        let with =
            |first: u64| (first..first + 200).filter(|seed| Plan::of(*seed).has_checks()).count();
        assert!((40..120).contains(&with(FIRST)));
        assert_eq!(with(groups::plans::FIRST), 0, "these seeds mean what they meant");
        let written = serde_json::to_string(&Wish::Remediate { of: Of::Pool(1), machine: 2 });
        assert_eq!(written.unwrap(), r#"{"Remediate":{"of":{"Pool":1},"machine":2}}"#);
    }
}
