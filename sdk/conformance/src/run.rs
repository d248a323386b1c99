//! A run: the driver is started, the checks are done, what they made is deleted.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::LocalBoxFuture;
use futures::{FutureExt, StreamExt};
use ostler_proto::v1alpha1::Hello;
use parking_lot::Mutex;
use thiserror::Error;
use tokio::time::Instant;

use crate::bench::Bench;
use crate::by_name;
use crate::check::{Check, Gate, Needs, Tier};
use crate::checks::{self, untagged_parts};
use crate::cloud::Cloud;
use crate::harness::{Harness, RunSetup};
use crate::observation::Observations;
use crate::options::{Options, Target, Unary};
use crate::outcome::{Failure, NotPassed, Outcome, skipped};
use crate::probe::{Resource, quoted};
use crate::process::Process;
use crate::report::{DriverName, Report};
use crate::verdict::{CheckResult, Finding, Verdict};

/// The limit of one check, with all its waits.
const CHECK: Duration = Duration::from_mins(4);
/// And as long as so many starts of the driver.
const STARTS: u32 = 30;
/// And so much longer for each instance of `--many`, if the check makes them.
const EACH: Duration = Duration::from_secs(1);
/// And so much for a check of the cloud's faults: two operations, each of at most 60 cases of 15 seconds.
const FAULTS: Duration = Duration::from_mins(30);
/// For the lists after all deletions, and a driver that has to start for them.
const CLEANED_UP: Duration = Duration::from_mins(1);
/// For a command that causes a fault.
const COMMAND: Duration = Duration::from_secs(20);
const OUTPUT_SHOWN: usize = 8;
/// The check that every run ends with.
const LEFTOVERS: &str = "cleanup/nothing-left";
/// What a run begins with if it does not hold.
const PROVIDER: &str = "class/provider";

/// Why there is no report.
#[derive(Debug, Error)]
pub enum RunError {
    /// The driver did not start, dial in or become ready.
    #[error("the driver did not come up: expected {expected}, came {came}")]
    Driver {
        /// What was waited for.
        expected: String,
        /// What happened.
        came: String,
        /// What it printed.
        printed: Vec<String>,
    },
    /// The names of no check match.
    #[error(
        "no check has a name that --focus and --skip leave; with --unary, those of the session are left out unless --adapter is given"
    )]
    NothingToDo,
    /// The run was told to end before the driver was there.
    #[error("interrupted before the driver came up")]
    Interrupted,
    /// The machine that runs the suite is in the way.
    #[error("the suite cannot work here")]
    Io(#[from] std::io::Error),
}

/// Checks a driver.
pub fn run(target: Target, options: Options) -> LocalBoxFuture<'static, Result<Report, RunError>> {
    Box::pin(check(target, options))
}

async fn check(target: Target, options: Options) -> Result<Report, RunError> {
    let of_its_kind = |it: &Check| match it.needs {
        Needs::Adapter => options.unary.is_some(),
        Needs::Faults => options.faults.can_be_caused(),
        Needs::Session | Needs::Link | Needs::Process | Needs::Cloud => true,
    };
    let wanted = checks::all().into_iter().filter(|it| of_its_kind(it) && options.wants(it.name));
    let wanted: Vec<Check> = wanted.collect();
    if wanted.is_empty() {
        return Err(RunError::NothingToDo);
    }
    let began = Instant::now();
    let place = tempfile::tempdir()?;
    let mut setup = setup(place.path().join("token"), target, options)?;
    if setup.options.faults.can_be_caused() {
        let patience = setup.options.scaled(COMMAND);
        setup.cloud = Some(Arc::new(Cloud::open(&setup.options.faults, patience).await?));
    }
    let setup = Arc::new(setup);
    let shared = Arc::new(Harness::open(&setup).await?);
    let interrupted = setup.options.interrupt.cancelled();
    let hello = tokio::select! {
        hello = first_hello(&shared) => hello?,
        () = interrupted => return Err(RunError::Interrupted),
    };
    let parallel = match setup.target {
        // There is one process, and checks that break the link must have it alone.
        Target::Listen { .. } => 1,
        Target::Command(_) | Target::InProcess(_) => setup.options.parallel.max(1),
    };
    let mut runner =
        Runner { setup, shared, hello, made: Mutex::default(), untagged: BTreeSet::new() };
    runner.untagged = runner.untagged_parts().await;
    let mut results: Vec<CheckResult> = runner.other_provider().into_iter().collect();
    // Checks that take the cloud away come last, one after another: nothing else works without a cloud.
    let (alone, beside): (Vec<_>, Vec<_>) =
        wanted.iter().enumerate().partition(|(_, check)| check.needs.is_alone());
    let mut done: Vec<(usize, Done)> = Vec::new();
    for (checks, at_once) in [(beside, parallel), (alone, 1)] {
        let some = futures::stream::iter(checks)
            .map(|(place, check)| runner.check(check).map(move |done| (place, done)))
            .buffer_unordered(at_once);
        done.extend(some.collect::<Vec<_>>().await);
    }
    done.sort_by_key(|(place, _)| *place);
    let mut left = Vec::new();
    for (_, done) in done {
        left.extend(done.left);
        results.push(done.result);
    }
    runner.add_observations(&mut results);
    left.extend(runner.parts_left().await);
    results.push(runner.leftovers(&left));
    let driver = DriverName {
        provider: runner.hello.provider.clone(),
        name: runner.hello.driver_name.clone(),
        version: runner.hello.driver_version.clone(),
        unary: runner.setup.options.unary.is_some(),
        by_name: by_name::declared(&runner.hello),
    };
    let RunSetup { options, target, .. } = &*runner.setup;
    let left_out = checks::all().into_iter().filter(|it| {
        let not_offered = |why| matches!(why, NotPassed::NotOffered(_));
        !options.wants(it.name) && !it.skip(options, target, &runner.hello).is_some_and(not_offered)
    });
    let left_out = left_out.map(|it| it.name).collect();
    Ok(Report { driver, results, left_out, took: began.elapsed() })
}

pub(crate) fn setup(
    token_file: PathBuf,
    target: Target,
    options: Options,
) -> std::io::Result<RunSetup> {
    let (token, token_file) = match &target {
        Target::Listen { token_file, .. } => {
            (std::fs::read_to_string(token_file)?.trim().to_owned(), token_file.clone())
        }
        Target::Command(_) | Target::InProcess(_) => {
            let token = uuid::Uuid::new_v4().to_string();
            std::fs::write(&token_file, &token)?;
            (token, token_file)
        }
    };
    let observations = Observations::default();
    let marks = Arc::default();
    Ok(RunSetup {
        options,
        target,
        token,
        token_file,
        observations,
        marks,
        cloud: None,
        driver_socket: None,
    })
}

/// Starts the driver and hears who it is.
pub(crate) async fn first_hello(harness: &Harness) -> Result<Hello, RunError> {
    let began = Instant::now();
    let session = harness.session().await.map_err(|not_passed| unanswered(harness, not_passed))?;
    harness.setup.marks.started_in(began.elapsed());
    Ok(session.hello.clone())
}

/// The driver did not do what everything else needs.
pub(crate) fn unanswered(harness: &Harness, not_passed: NotPassed) -> RunError {
    let (expected, came) = match not_passed {
        NotPassed::Failed(Failure { expected, came }) => (expected, came),
        NotPassed::Skipped(reason) | NotPassed::NotOffered(reason) => {
            ("a driver".to_owned(), reason)
        }
    };
    RunError::Driver { expected, came, printed: harness.output.tail(20) }
}

/// A unary driver as a process of its own, so that its adapter can be killed alone.
struct Apart {
    _process: Process,
    _directory: tempfile::TempDir,
}

impl Apart {
    /// Starts the driver; a harness that starts and ends the adapter.
    async fn open(
        setup: &RunSetup,
        unary: &Unary,
    ) -> std::io::Result<(Arc<Harness>, Option<Self>)> {
        let directory = tempfile::tempdir_in(&unary.sockets)?;
        let socket = quoted(&directory.path().join("s").to_string_lossy());
        let adapter = Target::Command(format!("{} {socket}", unary.adapter));
        let path = Some(directory.path().join("s"));
        let setup_apart = RunSetup { driver_socket: path, ..setup.of(adapter) };
        let harness = Harness::open(&Arc::new(setup_apart)).await?;
        let driver = quoted(&format!("exec {}", unary.driver));
        let command = format!("env OSTLER_DRIVER_SOCKET={socket} sh -c {driver}");
        let keeper = &setup.options.keeper;
        let process = Process::start(keeper, &command, setup.environment(), &harness.output)?;
        Ok((harness.into(), Some(Self { _process: process, _directory: directory })))
    }
}

struct Runner {
    setup: Arc<RunSetup>,
    shared: Arc<Harness>,
    hello: Hello,
    /// The UIDs of all machines that something may have been made for.
    made: Mutex<BTreeSet<String>>,
    /// Parts without a UID that were in the cloud before.
    untagged: BTreeSet<String>,
}

/// A finished check, and its leftovers.
struct Done {
    result: CheckResult,
    left: Vec<String>,
}

impl Runner {
    async fn check(&self, check: &Check) -> Done {
        let began = Instant::now();
        let (verdict, left) = Box::pin(self.verdict(check)).await;
        let result = CheckResult {
            name: check.name.to_owned(),
            tier: check.tier,
            sentence: check.sentence.to_owned(),
            verdict,
            took: began.elapsed(),
        };
        self.tell(&result);
        Done { result, left }
    }

    fn tell(&self, result: &CheckResult) {
        if let Some(observer) = &self.setup.options.observer {
            observer(result);
        }
    }

    async fn verdict(&self, check: &Check) -> (Verdict, Vec<String>) {
        let RunSetup { options, target, .. } = &*self.setup;
        if options.interrupt.is_cancelled() {
            return (not_passed(check, None, skipped("interrupted")), Vec::new());
        }
        if let Some(why) = check.skip(options, target, &self.hello) {
            return (not_passed(check, None, why), Vec::new());
        }
        let shares = check.needs == Needs::Session || check.needs.is_alone();
        let own = !shares && !matches!(target, Target::Listen { .. });
        let opened = match &options.unary {
            Some(unary) if check.needs == Needs::Adapter => Apart::open(&self.setup, unary).await,
            Some(_) | None if own => Harness::open(&self.setup).await.map(|it| (it.into(), None)),
            Some(_) | None => Ok((Arc::clone(&self.shared), None)),
        };
        // The driver of such a check lives until it is cleaned up.
        let (harness, _driver) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                let why = skipped(format_args!("the suite cannot listen: {error}"));
                return (not_passed(check, None, why), Vec::new());
            }
        };
        let bench = Bench::new(harness);
        // Such a check breaks what other checks share when there is only one process.
        let breaks = !own && check.needs == Needs::Link;
        let outcome = match if breaks { bench.harness.renew().await } else { Ok(()) } {
            Ok(()) => self.act(check, &bench).await,
            Err(not_passed) => Err(not_passed),
        };
        // Before the cleaning up adds to what was done.
        let verdict = match outcome {
            Ok(()) => Verdict::Passed,
            Err(why) => not_passed(check, Some(&bench), why),
        };
        let away = bench.repair().await;
        let renewed = if breaks { bench.renew().await } else { Ok(()) };
        let limit = bench.clean_up_limit() + options.scaled(CLEANED_UP);
        let left = tokio::time::timeout(limit, bench.clean_up()).await;
        let late = || "deleting did not end in time".to_owned();
        let left = left.unwrap_or_else(|_| bench.undeleted().into_iter().chain([late()]).collect());
        self.made.lock().extend(bench.made());
        let stuck = renewed.is_err().then(|| "the core could not be started anew".to_owned());
        let left = left
            .into_iter()
            .chain(stuck)
            .chain(away)
            .map(|what| format!("{}: {what}", check.name))
            .collect();
        (verdict, left)
    }

    async fn act(&self, check: &Check, bench: &Bench) -> Outcome {
        let many = if check.gates.contains(&Gate::Many) { self.setup.options.many } else { 0 };
        let many = EACH * u32::try_from(many).unwrap_or(u32::MAX);
        let faults = if check.needs == Needs::Faults { FAULTS } else { Duration::ZERO };
        let limit = self.setup.options.scaled(CHECK + many + faults)
            + self.setup.marks.first_start() * STARTS;
        let acting = AssertUnwindSafe((check.run)(bench)).catch_unwind();
        tokio::select! {
            ended = tokio::time::timeout(limit, acting) => match ended {
                Ok(Ok(outcome)) => outcome,
                Ok(Err(_)) => Err(NotPassed::Skipped("a defect of the suite: it panicked".to_owned())),
                Err(_) => Err(crate::outcome::failed(
                    "a check that ends",
                    format_args!("it did not within {limit:?}"),
                )),
            },
            () = self.setup.options.interrupt.cancelled() => {
                Err(NotPassed::Skipped("interrupted".to_owned()))
            }
        }
    }

    /// Rules that hold in every session may have been broken while other checks ran.
    fn add_observations(&self, results: &mut [CheckResult]) {
        for result in results.iter_mut() {
            let Some(came) = self.setup.observations.of(&result.name) else { continue };
            if !matches!(result.verdict, Verdict::Passed) {
                continue;
            }
            let all = checks::all();
            let Some(check) = all.iter().find(|check| check.name == result.name) else { continue };
            result.verdict = Verdict::Failed(Box::new(Finding {
                did: vec!["watched the streams of all checks".to_owned()],
                expected: check.sentence.to_owned(),
                came,
                why: check.why.to_owned(),
                manual: check.manual.to_owned(),
                output: Vec::new(),
            }));
            self.tell(result);
        }
    }

    /// The class names the provider of another driver: here all is well, and in a cluster nothing happens.
    fn other_provider(&self) -> Option<CheckResult> {
        let (named, served) = (&self.setup.options.class.provider, &self.hello.provider);
        if named.is_empty() || named == served {
            return None;
        }
        let finding = Finding {
            did: vec!["read the class of --class, and what the driver says of itself".to_owned()],
            expected: format!(
                "provider: {served} in the class, which is the provider that the driver serves"
            ),
            came: format!("provider: {named}"),
            why: format!(
                "the core would wait for a driver of {named}, and ask this one nothing: write {served} into the class, or \
                 {named} into the driver; only a core with --provider-alias {named}={served} takes them for one"
            ),
            manual: "session.proto, Hello.provider; machine_driver.proto, GetInfoResponse.provider"
                .to_owned(),
            output: Vec::new(),
        };
        let result = CheckResult {
            name: PROVIDER.to_owned(),
            tier: Tier::Should,
            sentence: "class and driver name one provider".to_owned(),
            verdict: Verdict::Failed(Box::new(finding)),
            took: Duration::ZERO,
        };
        self.tell(&result);
        Some(result)
    }

    /// What the cloud still has of machines that were deleted, if the probe shows that.
    async fn parts_left(&self) -> Vec<String> {
        let made = std::mem::take(&mut *self.made.lock());
        let Ok(probe) = Bench::new(Arc::clone(&self.shared)).probe() else { return Vec::new() };
        let Ok(all) = probe.resources().await else { return Vec::new() };
        let by_name = by_name::declared(&self.hello);
        let is_untagged =
            |it: &Resource| !by_name && it.uid.is_empty() && !self.untagged.contains(&it.id);
        let left = all.into_iter().filter(|it| made.contains(&it.uid) || is_untagged(it));
        left.map(|it| format!("in the cloud: {} {} of {:?}", it.kind, it.id, it.uid)).collect()
    }

    async fn untagged_parts(&self) -> BTreeSet<String> {
        match Bench::new(Arc::clone(&self.shared)).probe() {
            Ok(probe) => untagged_parts(&probe).await,
            Err(_) => BTreeSet::new(),
        }
    }

    fn leftovers(&self, left: &[String]) -> CheckResult {
        let verdict = if left.is_empty() {
            Verdict::Passed
        } else {
            Verdict::Failed(Box::new(Finding {
                did: vec!["deleted every machine of the run, then listed".to_owned()],
                expected: "empty lists".to_owned(),
                came: left.join("\n"),
                why: "what is left costs money, and no program looks for it".to_owned(),
                manual: "operation.proto, DeleteMachineRequest and ListMachinesRequest".to_owned(),
                output: self.shared.output.tail(OUTPUT_SHOWN),
            }))
        };
        let result = CheckResult {
            name: LEFTOVERS.to_owned(),
            tier: Tier::Must,
            sentence: "after the run nothing is left of it".to_owned(),
            verdict,
            took: Duration::ZERO,
        };
        self.tell(&result);
        result
    }
}

fn not_passed(check: &Check, bench: Option<&Bench>, why: NotPassed) -> Verdict {
    match why {
        NotPassed::Skipped(reason) => Verdict::Skipped { reason, applies: true },
        NotPassed::NotOffered(reason) => Verdict::Skipped { reason, applies: false },
        NotPassed::Failed(Failure { expected, came }) => Verdict::Failed(Box::new(Finding {
            did: bench.map(Bench::steps).unwrap_or_default(),
            expected,
            came,
            why: check.why.to_owned(),
            manual: check.manual.to_owned(),
            output: bench.map(|bench| bench.output(OUTPUT_SHOWN)).unwrap_or_default(),
        })),
    }
}
