//! The choice of victims: the table of cases from a cloud's own tests, and the failures there.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use ostler_lifecycle::pool::{Budget, Candidate, Cause, choose};
use ostler_lifecycle::set::Policy;

/// A Machine from a word: the letters give its state, the place its age.
///
/// `r` ready, `o` outdated, `f` failed, `e` its instance ends, `a` annotated, `d` deleting, `s` stuck in that, `p` preserved.
fn machines(words: &str) -> Vec<Candidate<'static>> {
    let one = |(at, word): (usize, &str)| {
        let has = |letter: char| word.contains(letter);
        let age = SignedDuration::from_secs(i64::try_from(at).unwrap());
        Candidate {
            name: format!("m{at}").leak(),
            uid: format!("u{at}").leak(),
            created: Some(Timestamp::UNIX_EPOCH + age),
            deleting: has('d'),
            stuck: has('s'),
            failed: has('f'),
            ends: has('e'),
            ready: has('r'),
            outdated: has('o'),
            annotated: has('a'),
            preserved: has('p'),
        }
    };
    words.split_whitespace().enumerate().map(one).collect()
}

fn budget(surge: usize, unavailable: usize) -> Budget {
    Budget { surge, unavailable, rolls: true, policy: Policy::Oldest }
}

fn places(chosen: &[(usize, Cause)]) -> Vec<usize> {
    chosen.iter().map(|(at, _)| *at).collect()
}

/// With the group as large as there are machines.
fn chosen(words: &str, replicas: usize, budget: Budget) -> Vec<usize> {
    let all = machines(words);
    places(&choose(&all, replicas, all.len(), budget))
}

#[test]
fn the_table_of_a_cloud() {
    let (surge, unavailable) = (budget(1, 0), budget(0, 1));
    for (what, words, replicas, budget, expected) in [
        ("nothing is to be done", "r r r", 3, surge, vec![]),
        ("no machines", "", 3, surge, vec![]),
        ("one too many: the oldest", "r r r", 2, surge, vec![0]),
        ("two too many", "r r r", 1, surge, vec![0, 1]),
        ("all are too many", "r r r", 0, surge, vec![0, 1, 2]),
        ("an annotated one first", "r r ra", 2, surge, vec![2]),
        ("annotated before unready", ". r ra", 2, surge, vec![2]),
        ("an unready one before ready ones", "r r .", 2, surge, vec![2]),
        ("an outdated unready one before a current unready one", "r . o r", 3, surge, vec![2]),
        ("an outdated one before current ones", "r ro r", 2, surge, vec![1]),
        ("a failed one before all others", "r f r", 2, surge, vec![1]),
        ("a failed one is replaced without a surplus", "r f r", 3, surge, vec![1]),
        (
            "one whose instance ends is replaced, whatever may be missing",
            "r re r",
            3,
            surge,
            vec![1],
        ),
        ("all of them", "re re re", 3, surge, vec![0, 1, 2]),
        ("and they are those that are too many", "r re re", 1, surge, vec![1, 2]),
        ("they use up what may be missing of others", "re ro r", 3, unavailable, vec![0]),
        ("one that is preserved stays", "r rep r", 3, surge, vec![]),
        ("one that goes already is not named again", "r red r", 3, surge, vec![]),
        ("surge: nothing goes before the new one is ready", "ro ro ro .", 3, surge, vec![]),
        ("surge: then the oldest outdated one", "ro ro ro r", 3, surge, vec![0]),
        ("surge: the last outdated one", "r r ro r", 3, surge, vec![2]),
        ("no surge: one is missing meanwhile", "ro ro ro", 3, unavailable, vec![0]),
        ("no surge: no second one", "ro ro .", 3, unavailable, vec![]),
        ("no surge: an unready outdated one first", "ro o ro", 3, unavailable, vec![1]),
        ("too few: nothing goes", "ro ro", 3, surge, vec![]),
        ("preserved ones last", "rp r r", 2, surge, vec![1]),
        ("a failed one that is preserved stays", "r fp r", 3, surge, vec![]),
        ("preserved ones last: also one that is not ready", "r p r", 2, surge, vec![0]),
        ("preserved ones last: also one that failed", "fp r r", 2, surge, vec![1]),
        ("preserved ones last: also an annotated one", "ap r r", 2, surge, vec![1]),
        ("preserved ones last: also an outdated one", "op r r", 2, budget(0, 0), vec![1]),
        ("of preserved ones the usual order", "rp fp rop ap op", 0, surge, vec![3, 1, 4, 2, 0]),
        ("preserved ones last: in a rollout", "rop ro r", 3, unavailable, vec![1]),
        ("preserved ones last: with a surge", "rop ro r r", 3, surge, vec![1]),
        ("a preserved one that is not ready holds it", "op ro r", 3, unavailable, vec![]),
        ("a preserved one that is not ready holds it, with a surge", "op ro r r", 3, surge, vec![]),
        ("a preserved one of the new model holds it", "fp ro r r", 3, surge, vec![]),
        ("its turn comes when it is the last", "op r r r", 3, surge, vec![0]),
        ("its turn comes when it is the last, also if it is ready", "rop r r r", 3, surge, vec![0]),
    ] {
        assert_eq!(chosen(words, replicas, budget), expected, "{what}");
    }
}

/// The decisions of Cluster API's provider for Azure, in its own order. An example of each kind is in `all`.
#[test]
fn the_decisions_of_cluster_apis_provider_for_azure_one_by_one() {
    let (surge, unavailable) = (budget(1, 0), budget(0, 1));
    let newest = |of: Budget| Budget { policy: Policy::Newest, ..of };
    let all = "r ro . o";
    for (what, words, replicas, budget, expected) in [
        ("failed: it goes", "r f r", 3, surge, vec![1]),
        ("failed: also in the middle of a rollout", "ro ro f", 3, surge, vec![2]),
        ("failed: the annotated one is no other class", "fa r r", 3, surge, vec![0]),
        ("being deleted: makes up for the surplus", "rd r r", 2, surge, vec![]),
        ("being deleted: two, for two", "rd rd r r", 2, surge, vec![]),
        ("being deleted: one, and one is still too many", "rd r r r", 2, surge, vec![1]),
        ("annotated: all of them, for a surplus of as many", "r r ra ra", 2, surge, vec![2, 3]),
        ("annotated: the older ones, if there are more", "ra ra ra", 2, surge, vec![0]),
        ("annotated: the newer ones, by policy", "ra ra ra", 2, newest(surge), vec![2]),
        ("annotated: before an outdated one", "ro r ra", 2, surge, vec![2]),
        ("surplus of one: outdated and not ready", all, 3, budget(0, 0), vec![3]),
        ("of two: then the one that boots", all, 2, budget(0, 0), vec![3, 2]),
        ("of three: then outdated and ready", all, 1, budget(0, 0), vec![3, 2, 1]),
        ("of all: then the others", all, 0, budget(0, 0), vec![3, 2, 1, 0]),
        ("surplus: the oldest", "r r r r", 2, surge, vec![0, 1]),
        ("surplus: the newest, by policy", "r r r r", 2, newest(surge), vec![3, 2]),
        ("surplus: the newest outdated one", "ro ro r", 2, newest(surge), vec![1]),
        ("surplus: what boots for an outdated one is none", "ro ro .", 2, surge, vec![]),
        ("surplus: beyond those it is", "ro r . .", 2, budget(2, 0), vec![2]),
        ("surplus: what never gets ready, without a rollout", "r r r .", 3, surge, vec![3]),
        ("too few are ready: nothing", "ro ro .", 3, unavailable, vec![]),
        ("none is outdated: nothing", "r r r", 3, unavailable, vec![]),
        ("nothing may be missing: nothing", "ro ro ro", 3, surge, vec![]),
        ("one may be missing, and none is outdated", "r r r", 3, unavailable, vec![]),
        ("one may be missing: one outdated", "r ro ro", 3, unavailable, vec![1]),
        ("two may be missing: two outdated", "ro ro ro r", 4, budget(0, 2), vec![0, 1]),
        ("two may be missing, by policy", "ro ro ro r", 4, newest(budget(0, 2)), vec![2, 1]),
        ("more may be missing than there are", "ro ro", 2, budget(0, 2), vec![0, 1]),
        ("one is missing already, since it is being deleted", "rod ro ro", 3, unavailable, vec![]),
    ] {
        assert_eq!(chosen(words, replicas, budget), expected, "{what}");
    }
}

/// Each with the reason.
#[test]
fn what_is_decided_otherwise_than_in_cluster_apis_provider_for_azure() {
    let (surge, unavailable) = (budget(1, 0), budget(0, 1));
    let on_delete = Budget { rolls: false, ..surge };
    for (what, words, replicas, budget, expected) in [
        ("all failed go there: here one at a time, else none is left", "f f f", 3, surge, vec![0]),
        (
            "a failed one that cannot be deleted ends the choice there: here others go on",
            "ro fd ro r",
            2,
            surge,
            vec![0],
        ),
        (
            "a failed one is all that goes there: here the surplus goes as well, it costs nothing",
            "f r r r",
            2,
            surge,
            vec![0, 1],
        ),
        (
            "all annotated go there, however few are left: here as many as may be missing",
            "ra ra r",
            3,
            unavailable,
            vec![0],
        ),
        (
            "without a surplus, one that boots would go there: here others have to be ready",
            "r r a",
            3,
            surge,
            vec![],
        ),
        (
            "what is missing of the wanted number holds all there: here what may be missing counts",
            "ro ro r .",
            4,
            budget(0, 2),
            vec![0],
        ),
        (
            "without rollouts outdated ones are like others there: here they go first, a user replaces them anyway",
            "r ro",
            1,
            on_delete,
            vec![1],
        ),
        ("a preserved one is like others there: here it goes last", "rp r r", 2, surge, vec![1]),
    ] {
        assert_eq!(chosen(words, replicas, budget), expected, "{what}");
    }
}

#[test]
fn what_is_being_deleted_makes_up_for_the_surplus_however_long_its_drain_lasts() {
    for policy in [Policy::Oldest, Policy::Newest, Policy::Random] {
        let budget = Budget { policy, ..budget(1, 0) };
        let mut all = machines("r r r r");
        let first = places(&choose(&all, 3, 4, budget));
        assert_eq!(first.len(), 1);
        all[first[0]].deleting = true;
        all[first[0]].ready = false;
        for _ in 0..10 {
            assert_eq!(places(&choose(&all, 3, 4, budget)), Vec::<usize>::new(), "{policy:?}");
        }
    }
}

#[test]
fn equal_machines_have_one_order_whatever_the_order_of_the_list() {
    for policy in [Policy::Oldest, Policy::Newest, Policy::Random] {
        let budget = Budget { policy, ..budget(1, 0) };
        let mut all = machines("r r r r r");
        for one in &mut all {
            one.created = Some(Timestamp::UNIX_EPOCH);
        }
        let names = |all: &[Candidate<'static>]| -> BTreeSet<&str> {
            let chosen = choose(all, 3, 5, budget);
            chosen.iter().map(|(at, _)| all[*at].name).collect()
        };
        let expected = names(&all);
        for turn in 0..5 {
            all.rotate_left(1);
            assert_eq!(names(&all), expected, "{policy:?} {turn}");
        }
        all.reverse();
        assert_eq!(names(&all), expected, "{policy:?}");
    }
}

#[test]
fn the_policy_decides_among_equals() {
    let newest = Budget { policy: Policy::Newest, ..budget(1, 0) };
    assert_eq!(chosen("r r r", 1, newest), [2, 1]);
    assert_eq!(chosen("ro ro r ro", 3, newest), [3]);
}

#[test]
fn annotated_machines_without_a_surplus_are_replaced_only_as_far_as_others_are_ready() {
    assert_eq!(chosen("ra ra ra", 3, budget(1, 0)), Vec::<usize>::new());
    assert_eq!(chosen("ra ra ra", 3, budget(1, 1)), [0]);
    assert_eq!(chosen("ra ra ra", 3, budget(0, 2)), [0, 1]);
    assert_eq!(chosen("ra . ra", 3, budget(0, 1)), Vec::<usize>::new());
}

#[test]
fn a_failed_machine_that_cannot_be_deleted_does_not_hold_up_the_rollout_of_others() {
    assert_eq!(chosen("fds ro ro r r", 3, budget(2, 0)), [1]);
    assert_eq!(chosen("fds ro ro r", 3, budget(1, 1)), [1]);
    // It has the only place of the surge: more than that would be beyond the limit.
    assert_eq!(chosen("fds ro ro r", 3, budget(1, 0)), Vec::<usize>::new());
    assert_eq!(
        chosen("fds f r r", 3, budget(1, 0)),
        [1],
        "nor one that failed, which does not work"
    );
}

#[test]
fn many_failed_machines_go_one_at_a_time_while_nothing_is_to_spare() {
    assert_eq!(chosen("f f f", 3, budget(1, 0)), [0]);
    assert_eq!(chosen("fd f f", 3, budget(1, 0)), Vec::<usize>::new());
    assert_eq!(chosen("f f r r r", 3, budget(1, 0)), [0, 1], "they are a surplus");
}

#[test]
fn a_surplus_that_never_becomes_ready_goes_and_one_that_boots_for_a_rollout_is_none() {
    assert_eq!(chosen("r r r .", 3, budget(1, 0)), [3]);
    assert_eq!(chosen("ro ro ro .", 3, budget(1, 0)), Vec::<usize>::new());
}

#[test]
fn a_user_who_scales_down_in_the_middle_of_a_rollout_is_heeded() {
    // The group has five, two and a surge of one are wanted: the one that boots goes first.
    let all = machines("ro ro ro ro .");
    assert_eq!(places(&choose(&all, 2, 5, budget(1, 0))), [4, 0, 1]);
}

#[test]
fn a_pool_that_replaces_on_delete_only_replaces_nothing() {
    let on_delete = Budget { rolls: false, ..budget(1, 1) };
    assert_eq!(chosen("ro ro ro", 3, on_delete), Vec::<usize>::new());
    assert_eq!(chosen("ro ro r", 2, on_delete), [0], "but scales");
}

#[test]
fn nothing_is_chosen_twice() {
    let all = machines("roa oa fo ra . r");
    for replicas in 0..7 {
        for unavailable in 0..3 {
            let chosen = places(&choose(&all, replicas, 6, budget(1, unavailable)));
            let once: BTreeSet<_> = chosen.iter().collect();
            assert_eq!(once.len(), chosen.len(), "{replicas} {unavailable}: {chosen:?}");
        }
    }
}

/// A small generator of numbers, so that every run is the same.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Over drains of any length, and instances that boot for any time: a rollout ends, never more than the limits allow go at
/// the same time, and never fewer are ready because of us than the budget says.
#[test]
fn a_rollout_ends_within_its_limits_over_any_schedule_of_drains_and_boots() {
    for seed in 0..300 {
        let mut dice = Dice(seed);
        let replicas = usize::try_from(1 + dice.below(6)).unwrap();
        let surge = usize::try_from(dice.below(3)).unwrap();
        let unavailable = usize::try_from(dice.below(3)).unwrap().min(replicas);
        if surge == 0 && unavailable == 0 {
            continue;
        }
        let budget = budget(surge, unavailable);
        let mut all = machines(&"ro ".repeat(replicas));
        let mut next = all.len();
        let mut size = replicas;
        let mut steps = 0;
        while all.iter().any(|one| one.outdated) || all.len() != replicas {
            steps += 1;
            assert!(steps < 2000, "seed {seed} does not end: {all:?}");
            let rolls = all.iter().any(|one| one.outdated && !one.deleting);
            size = size.max(if rolls { replicas + surge } else { replicas });
            // The group fills up to its size.
            while all.len() < size {
                let mut one = machines(".").remove(0);
                one.name = format!("m{next}").leak();
                one.uid = format!("u{next}").leak();
                one.created = Some(
                    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(next.try_into().unwrap()),
                );
                next += 1;
                all.push(one);
            }
            let ready = all.iter().filter(|one| one.ready && !one.deleting).count();
            let chosen = choose(&all, replicas, size, budget);
            let taken = chosen.iter().filter(|(at, _)| all[*at].ready).count();
            let least = replicas.saturating_sub(unavailable);
            assert!(taken == 0 || ready - taken >= least, "seed {seed}: {ready} ready, {taken} go");
            for (at, _) in chosen {
                all[at].deleting = true;
            }
            let going = all.iter().filter(|one| one.deleting).count();
            assert!(going <= surge + unavailable, "seed {seed}: {going} go at the same time");
            assert!(all.len() <= replicas + surge, "seed {seed}: {} instances", all.len());
            match dice.below(3) {
                0 => {
                    if let Some(at) = all.iter().position(|one| one.deleting) {
                        let wanted = if rolls { replicas + surge } else { replicas };
                        if size > wanted {
                            size -= 1;
                        }
                        all.remove(at);
                    }
                }
                1 => {
                    if let Some(one) = all.iter_mut().find(|one| !one.ready && !one.deleting) {
                        one.ready = true;
                    }
                }
                _ => {}
            }
        }
    }
}
