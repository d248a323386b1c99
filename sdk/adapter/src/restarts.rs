//! When a program that ended is started again.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use nix::sys::signal::Signal;

/// Longest pause before a program is started again: one that never starts costs next to nothing, and one that was fixed is
/// back within this.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
const PAUSES: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_millis(500))
    .with_max_delay(LONGEST_PAUSE)
    .without_max_times();
/// After a program ran for this long, the pauses begin with the shortest again.
const WELL_AFTER: Duration = Duration::from_mins(1);
/// A program that ends sooner has not begun its work.
const BEGINS_WITHIN: Duration = Duration::from_secs(5);
/// After so many ends before its work began, a program counts as one that never runs.
const ENOUGH: u32 = 3;

/// The lives of one program.
#[derive(Debug)]
pub struct Restarts {
    pauses: ExponentialBackoff,
    /// Lives that ended before the work began, if it never did.
    failed: Option<u32>,
}

impl Default for Restarts {
    fn default() -> Self {
        Self { pauses: PAUSES.build(), failed: Some(0) }
    }
}

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Restart {
    /// Before the next start.
    pub pause: Duration,
    /// How often the program ended right after its start, if it never ran: another start soon does not help.
    pub never_ran: Option<u32>,
}

impl Restarts {
    /// After a life of this length, with this end; `None`: it could not be started.
    pub fn after(&mut self, lived: Duration, end: Option<ExitStatus>) -> Restart {
        if lived >= BEGINS_WITHIN {
            self.failed = None;
        } else if !end.is_some_and(ended_by_others) {
            self.failed = self.failed.map(|count| count.saturating_add(1));
        }
        if lived >= WELL_AFTER || lived >= BEGINS_WITHIN && end.is_some_and(|it| it.success()) {
            self.pauses = PAUSES.build();
        }
        let pause = self.pauses.next().unwrap_or(LONGEST_PAUSE);
        match self.failed.filter(|count| *count >= ENOUGH) {
            Some(count) => Restart { pause: LONGEST_PAUSE, never_ran: Some(count) },
            None => Restart { pause, never_ran: None },
        }
    }
}

/// Whether another process ended the program by a signal.
fn ended_by_others(end: ExitStatus) -> bool {
    let signals = [Signal::SIGKILL, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];
    end.signal().is_some_and(|number| signals.into_iter().any(|it| it as i32 == number))
}

/// How a program ended, and the usual cause.
pub fn describe(end: std::io::Result<ExitStatus>) -> String {
    let Ok(status) = end.as_ref() else {
        return end.map_or_else(|error| error.to_string(), |status| status.to_string());
    };
    match status.code() {
        Some(126) => format!("{status}: a program cannot be executed"),
        Some(127) => format!("{status}: a program or a library is missing"),
        Some(_) | None => status.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICK: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(20);

    fn exit(code: i32) -> ExitStatus {
        ExitStatus::from_raw(code << 8)
    }

    fn killed(signal: Signal) -> ExitStatus {
        ExitStatus::from_raw(signal as i32)
    }

    /// After how many of these lives it is said never to have run.
    fn never_ran(lives: &[(Duration, Option<ExitStatus>)]) -> Option<usize> {
        let mut restarts = Restarts::default();
        lives.iter().position(|(lived, end)| restarts.after(*lived, *end).never_ran.is_some())
    }

    #[test]
    fn a_program_that_ends_right_after_each_start_is_seen_at_its_third_end_whatever_its_status() {
        let ends = [exit(1), exit(127), exit(0), killed(Signal::SIGSEGV)];
        for end in ends.map(Some).into_iter().chain([None]) {
            assert_eq!(never_ran(&[(QUICK, end); 4]), Some(2), "{end:?}");
        }
    }

    #[test]
    fn one_that_another_process_ends_or_that_once_ran_is_started_again_as_ever() {
        assert_eq!(never_ran(&[(QUICK, Some(killed(Signal::SIGKILL))); 9]), None);
        assert_eq!(never_ran(&[(LONG, Some(exit(1))); 9]), None);
        let ran: Vec<_> =
            [(LONG, Some(exit(1)))].into_iter().chain([(QUICK, Some(exit(1))); 9]).collect();
        assert_eq!(never_ran(&ran), None);
    }

    #[test]
    fn pauses_grow_until_the_program_runs_well_and_are_the_longest_for_one_that_never_ran() {
        let mut restarts = Restarts::default();
        let mut pause = |lived, end| restarts.after(lived, end).pause.as_millis();
        assert_eq!([pause(LONG, Some(exit(1))), pause(QUICK, Some(exit(1)))], [500, 1000]);
        assert_eq!([pause(WELL_AFTER, Some(exit(1))), pause(LONG, Some(exit(1)))], [500, 1000]);
        assert_eq!(pause(LONG, Some(exit(0))), 500);
        let mut restarts = Restarts::default();
        let pauses = [(); 4].map(|()| restarts.after(QUICK, Some(exit(1))).pause.as_millis());
        assert_eq!(pauses, [500, 1000, 30_000, 30_000]);
    }

    #[test]
    fn an_end_is_told_with_what_it_often_means() {
        let told = |code| describe(Ok(exit(code)));
        assert_eq!(told(3), "exit status: 3");
        assert_eq!(told(127), "exit status: 127: a program or a library is missing");
    }
}
