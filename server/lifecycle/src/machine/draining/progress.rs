//! The rest of a drain, in numbers and in words.

use std::time::Duration;

use jiff::Timestamp;
use ostler_api::machine::{DrainProgress, WaitReason};

use super::{super::pass::Pass, eviction_order};
use crate::{
    budget::{BudgetFacts, Verdict, verdict},
    numbered,
    plan::Performed,
    pod::{PodView, RefusalCause},
    time::after,
};

/// How many pods, and how many budgets, a status names: enough to know where to look, few enough to
/// read.
const MOST_EXAMPLES: usize = 3;
/// How long after its grace a pod may still be there before a user should look at the kubelet.
const LATE: Duration = Duration::from_secs(30);

/// The action on a pod in the pass that is being recorded.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Asked<'a> {
    /// The pod was asked to leave.
    ToLeave(&'a Performed),
    /// The pod was deleted without grace.
    ToVanish(&'a Performed),
}

/// Counts the pods that are left. `asked`: the action of this pass on a pod, if any. Returns the first pod whose
/// eviction fails, and why.
pub(crate) fn tally<'a>(
    drain: &mut DrainProgress,
    leaving: &[&PodView],
    asked: impl Fn(&PodView) -> Option<Asked<'a>>,
    now: Timestamp,
) -> Option<String> {
    *drain = drain.renewed();
    let mut failure = None;
    for pod in leaving {
        drain.pods_left += 1;
        let mut fails = |drain, text| {
            count_failing(drain, pod);
            failure.get_or_insert_with(|| format!("{}: {text}", pod.full_name()));
        };
        match asked(pod) {
            None => match pod.refused.as_ref().map(|refusal| &refusal.cause) {
                _ if pod.terminating => count_terminating(drain, pod, now),
                Some(RefusalCause::Budgets(budgets)) => count_blocked(drain, pod, budgets),
                Some(RefusalCause::Failed(text)) => fails(drain, text.as_str()),
                None => drain.queued += 1,
            },
            Some(Asked::ToLeave(Performed::Done)) => drain.terminating += 1,
            Some(
                Asked::ToLeave(Performed::Gone)
                | Asked::ToVanish(Performed::Done | Performed::Gone),
            ) => drain.pods_left -= 1,
            Some(Asked::ToLeave(Performed::Refused(budgets))) => {
                count_blocked(drain, pod, budgets);
            }
            Some(
                Asked::ToLeave(Performed::Failed(text)) | Asked::ToVanish(Performed::Failed(text)),
            ) => {
                fails(drain, text);
            }
            Some(Asked::ToLeave(_) | Asked::ToVanish(_)) => fails(drain, "refused"),
        }
    }
    failure
}

fn count_terminating(drain: &mut DrainProgress, pod: &PodView, now: Timestamp) {
    drain.terminating += 1;
    drain.late += i32::from(pod.ends_at.is_some_and(|ends_at| now >= after(ends_at, LATE)));
}

fn count_failing(drain: &mut DrainProgress, pod: &PodView) {
    drain.failing += 1;
    add_example(&mut drain.examples, pod.full_name());
}

fn count_blocked(drain: &mut DrainProgress, pod: &PodView, budgets: &[BudgetFacts]) {
    drain.blocked += 1;
    match verdict(budgets) {
        Verdict::NotNow => {}
        Verdict::Never => drain.misconfigured += 1,
        Verdict::Several => drain.several_budgets += 1,
    }
    add_example(&mut drain.examples, pod.full_name());
    for budget in budgets {
        add_example(&mut drain.budgets, budget.name.clone());
    }
}

fn add_example(names: &mut Vec<String>, one: String) {
    if names.len() < MOST_EXAMPLES && !names.contains(&one) {
        names.push(one);
    }
}

/// The wait reason of a drain: the worst first.
pub(crate) fn reason(drain: Option<&DrainProgress>) -> WaitReason {
    match drain {
        Some(drain) if drain.failing > 0 => WaitReason::EvictionFailing,
        Some(drain) if drain.several_budgets > 0 => WaitReason::SeveralBudgets,
        Some(drain) if drain.misconfigured > 0 => WaitReason::MisconfiguredBudget,
        Some(drain) if drain.blocked > 0 => WaitReason::PodDisruptionBudget,
        Some(_) | None => WaitReason::PodsTerminating,
    }
}

/// Whether a user may have to end the wait before its deadline.
pub(crate) const fn needs_person(reason: &WaitReason) -> bool {
    matches!(
        reason,
        WaitReason::SeveralBudgets | WaitReason::MisconfiguredBudget | WaitReason::EvictionFailing
    )
}

/// The rest of the drain, for people. `failure`: the first pod whose eviction fails, and why.
pub(crate) fn describe(drain: &DrainProgress, failure: Option<String>) -> String {
    let left = format!("{} left", numbered(drain.pods_left, "pod"));
    if let Some(failure) = failure {
        return format!("{left}, {} cannot be evicted; {failure}", drain.failing);
    }
    let budgets = match drain.budgets.as_slice() {
        [] => "a PodDisruptionBudget".to_owned(),
        [one] => format!("PodDisruptionBudget {one}"),
        several => format!("PodDisruptionBudgets {}", several.join(", ")),
    };
    let blocked = |count| format!("{left}; {} blocked by {budgets}", numbered(count, "eviction"));
    if drain.several_budgets > 0 {
        let count = drain.several_budgets;
        return format!("{left}, {count} selected by more than one of {budgets}");
    }
    if drain.misconfigured > 0 {
        let none = "none is allowed though all pods are healthy";
        return format!("{}: {none}", blocked(drain.misconfigured));
    }
    if drain.blocked > 0 {
        return blocked(drain.blocked);
    }
    match drain.terminating {
        0 => format!("{} still to be evicted", numbered(drain.pods_left, "pod")),
        1 if drain.pods_left == 1 => "1 pod is terminating".to_owned(),
        all if all == drain.pods_left => format!("{all} pods are terminating"),
        some => format!("{left}, {some} terminating"),
    }
}

/// When a terminating pod counts as late, stops holding the next pods, or is not waited for any more.
pub(super) fn changes_at(pass: &Pass<'_>, pod: &PodView) -> Option<Timestamp> {
    let ends_at = pod.ends_at?;
    let limit = pass.machine.skip_wait_for_delete(pass.snap.settings.skip_wait_for_delete);
    let given_up = limit.map(|limit| after(ends_at, limit.saturating_add(Duration::from_secs(1))));
    let all = [Some(after(ends_at, LATE)), eviction_order::holds_until(pass, pod), given_up];
    all.into_iter().flatten().filter(|at| *at > pass.snap.now).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pods_that_are_left_are_counted_in_singular_and_plural() {
        for (pods_left, terminating, blocked, text) in [
            (1, 0, 1, "1 pod left; 1 eviction blocked by PodDisruptionBudget shop/web"),
            (3, 0, 2, "3 pods left; 2 evictions blocked by PodDisruptionBudget shop/web"),
            (3, 0, 0, "3 pods still to be evicted"),
            (3, 1, 0, "3 pods left, 1 terminating"),
            (3, 3, 0, "3 pods are terminating"),
            (1, 1, 0, "1 pod is terminating"),
        ] {
            let budgets = vec!["shop/web".to_owned()];
            let drain = DrainProgress {
                pods_left,
                terminating,
                blocked,
                budgets,
                ..DrainProgress::default()
            };
            assert_eq!(describe(&drain, None), text);
        }
    }
}
