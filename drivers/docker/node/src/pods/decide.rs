//! The steps for a pod. Pure.

use std::time::Duration;

use tokio::time::Instant;

use super::spec::PodSpec;
use super::state::{ContainerState, Over, Phase, PodState};

/// One step of the agent; steps are listed in their order. Numbers are positions of containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Start a container.
    Start(usize),
    /// Tell the process of a container to end.
    Tell(usize),
    /// End it without asking.
    Kill(usize),
    /// End a pause.
    EndPause(usize),
    /// Note the natural end of the pod.
    Finish,
}

/// The agent's goal for a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Goal {
    /// It runs.
    Run,
    /// The containers of the pod end within this time.
    End(Duration),
}

/// The steps, and when to look again if nothing happens.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    pub(super) again: Option<Instant>,
}

impl Plan {
    fn look_at(&mut self, at: Instant) {
        self.again = Some(self.again.map_or(at, |known| known.min(at)));
    }
}

/// Plans for one pod.
pub(super) fn decide(spec: &PodSpec, state: &PodState, goal: Goal, now: Instant) -> Plan {
    match goal {
        Goal::Run if state.over.is_some() => Plan::default(),
        Goal::Run => run(spec, state, now),
        Goal::End(grace) => end(state, grace, now),
    }
}

/// Whether nothing of the pod runs any more.
pub(super) fn is_still(state: &PodState) -> bool {
    !state.containers.iter().any(ContainerState::is_running)
}

fn run(spec: &PodSpec, state: &PodState, now: Instant) -> Plan {
    let mut plan = Plan::default();
    let mut for_good = 0;
    for (index, container) in state.containers.iter().enumerate() {
        match &container.phase {
            Phase::Waiting => plan.steps.push(Step::Start(index)),
            Phase::Running { .. } => {}
            Phase::Ended(_) => match container.restart_at(spec.restart) {
                Some(due) if due <= now => plan.steps.push(Step::Start(index)),
                Some(due) => plan.look_at(due),
                None => for_good += 1,
            },
        }
    }
    if for_good == state.containers.len() {
        plan.steps.push(Step::Finish);
    }
    plan
}

fn end(state: &PodState, grace: Duration, now: Instant) -> Plan {
    let mut plan = Plan::default();
    for (index, container) in state.containers.iter().enumerate() {
        let Phase::Running { process, .. } = &container.phase else { continue };
        if process.is_none() {
            plan.steps.push(Step::EndPause(index));
            continue;
        }
        let kill_at = state.told.unwrap_or(now) + grace;
        if kill_at <= now {
            plan.steps.push(Step::Kill(index));
        } else {
            if state.told.is_none() {
                plan.steps.push(Step::Tell(index));
            }
            plan.look_at(kill_at);
        }
    }
    plan
}

/// Whether an ended pod has the phase Succeeded.
pub(super) fn succeeded(state: &PodState) -> bool {
    let clean = |container: &ContainerState| match &container.phase {
        Phase::Ended(ended) => ended.exit.code() == 0,
        Phase::Waiting | Phase::Running { .. } => false,
    };
    let refused = matches!(state.over, Some(Over::Unsupported(_) | Over::NoRoom));
    !refused && state.containers.iter().all(clean)
}

#[cfg(test)]
mod tests {
    use super::super::spec::Restart;
    use super::super::state::Exit;
    use super::super::state::tests::{after, now, spec};
    use super::*;

    const GRACE: Duration = Duration::from_secs(30);

    #[test]
    fn containers_are_started_and_then_left_alone() {
        let (spec, now) = (spec(Restart::Always, &["a", "pause"]), now());
        let mut state = PodState::new(&spec, true, now);
        let plan = |state: &PodState| decide(&spec, state, Goal::Run, now.since);
        assert_eq!(plan(&state).steps, [Step::Start(0), Step::Start(1)]);
        state.started(0, Some(7), now);
        state.started(1, None, now);
        assert_eq!(plan(&state), Plan::default());
    }

    #[test]
    fn one_that_ended_is_started_when_its_wait_is_over() {
        let (spec, now) = (spec(Restart::Always, &["a"]), now());
        let mut state = PodState::new(&spec, true, now);
        for _ in 0..2 {
            state.started(0, Some(7), now);
            state.ended(0, Exit::Code(1), now);
        }
        let due = after(now, 10).since;
        let early = decide(&spec, &state, Goal::Run, now.since);
        assert_eq!(early, Plan { steps: vec![], again: Some(due) });
        assert_eq!(decide(&spec, &state, Goal::Run, due).steps, [Step::Start(0)]);
    }

    #[test]
    fn a_pod_is_over_when_all_its_containers_ended_for_good() {
        let (spec, now) = (spec(Restart::OnFailure, &["a", "b"]), now());
        let mut state = PodState::new(&spec, true, now);
        state.started(0, Some(7), now);
        state.started(1, Some(8), now);
        state.ended(0, Exit::Code(0), now);
        assert_eq!(decide(&spec, &state, Goal::Run, now.since), Plan::default());
        state.ended(1, Exit::Code(0), now);
        assert_eq!(decide(&spec, &state, Goal::Run, now.since).steps, [Step::Finish]);
        assert!(succeeded(&state));
        state.over = Some(Over::Ran);
        assert_eq!(decide(&spec, &state, Goal::Run, now.since), Plan::default());
    }

    #[test]
    fn a_failure_of_one_container_is_a_failure_of_the_pod() {
        let (spec, now) = (spec(Restart::Never, &["a", "b"]), now());
        let mut state = PodState::new(&spec, true, now);
        for (index, exit) in [(0, Exit::Code(0)), (1, Exit::Signal(9))] {
            state.started(index, Some(7), now);
            state.ended(index, exit, now);
        }
        assert_eq!(decide(&spec, &state, Goal::Run, now.since).steps, [Step::Finish]);
        assert!(!succeeded(&state));
    }

    #[test]
    fn what_is_to_end_is_told_once_and_killed_after_its_grace() {
        let (spec, now) = (spec(Restart::Always, &["a", "pause"]), now());
        let mut state = PodState::new(&spec, true, now);
        state.started(0, Some(7), now);
        state.started(1, None, now);
        let end = |state: &PodState, at| decide(&spec, state, Goal::End(GRACE), at);
        let kill_at = after(now, 30).since;
        let first = end(&state, now.since);
        assert_eq!(first.steps, [Step::Tell(0), Step::EndPause(1)]);
        assert_eq!(first.again, Some(kill_at));
        state.told = Some(now.since);
        state.ended(1, Exit::Code(0), now);
        let middle = end(&state, after(now, 29).since);
        assert_eq!(middle, Plan { steps: vec![], again: Some(kill_at) });
        assert_eq!(end(&state, kill_at).steps, [Step::Kill(0)]);
        assert!(!is_still(&state));
        state.ended(0, Exit::Signal(9), now);
        assert!(is_still(&state));
        assert_eq!(end(&state, kill_at), Plan::default(), "nothing is started again");
    }

    #[test]
    fn a_grace_that_is_cut_short_counts_from_when_it_was_told() {
        let (spec, now) = (spec(Restart::Always, &["a"]), now());
        let mut state = PodState::new(&spec, true, now);
        state.started(0, Some(7), now);
        state.told = Some(now.since);
        let goal = Goal::End(Duration::from_secs(1));
        assert_eq!(decide(&spec, &state, goal, after(now, 2).since).steps, [Step::Kill(0)]);
        let at_once = decide(&spec, &state, Goal::End(Duration::ZERO), now.since);
        assert_eq!(at_once.steps, [Step::Kill(0)]);
    }

    #[test]
    fn what_was_refused_or_ended_before_is_never_started() {
        let now = now();
        let mut refused = spec(Restart::Always, &["a"]);
        refused.unsupported = Some("no");
        let mut ended = spec(Restart::Always, &["a"]);
        ended.reported.ended = true;
        let plain = spec(Restart::Always, &["a"]);
        for (spec, room, over) in [
            (&refused, true, Over::Unsupported("no")),
            (&ended, true, Over::Before),
            (&plain, false, Over::NoRoom),
        ] {
            let state = PodState::new(spec, room, now);
            assert_eq!(state.over, Some(over));
            assert_eq!(decide(spec, &state, Goal::Run, now.since), Plan::default());
            assert!(!succeeded(&state));
        }
    }
}
