//! Lives of the whole system, broken in every way: see `docs/simulation.md`.

#![expect(clippy::print_stdout, reason = "a command")]

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use clap::{Parser, ValueEnum as _};
use ostler_tests::sim::fleet::{run_all, run_one, warm_up};
use ostler_tests::sim::shrink::shrink;
use ostler_tests::sim::{Mutation, Plan, Report, run};
use tracing_subscriber::EnvFilter;

/// A life makes and drops so much that this is a sixth of its time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs lives of the whole system, each made by a seed, and says which rules were broken
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
#[derive(Debug, Parser)]
struct Args {
    /// How many lives
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first seed; the others follow it. Left out: one that was never used, from the clock
    #[arg(long)]
    seed: Option<u64>,
    /// Only lives in which cores run sets and deployments; seeds without are passed over
    #[arg(long)]
    groups: bool,
    /// Only lives in which cores run pools; seeds without are passed over
    #[arg(long)]
    pools: bool,
    /// Only lives in which users have machines checked; seeds without are passed over
    #[arg(long)]
    checks: bool,
    /// Begins no life after so many seconds
    #[arg(long)]
    max_seconds: Option<u64>,
    /// Lives at the same time; as many as there are processors, if left out
    #[arg(long)]
    jobs: Option<usize>,
    /// Runs one seed and prints every event
    #[arg(long)]
    replay: Option<u64>,
    /// Runs the plan in this file in place of a seed's
    #[arg(long)]
    plan: Option<PathBuf>,
    /// With --replay or --plan: every line of what every party saw
    #[arg(long)]
    timeline: bool,
    /// With --replay or --plan: what the product logs, to stderr, e.g. `ostler_sessions=debug`
    #[arg(long)]
    log: Option<String>,
    /// With --replay or --plan: finds the shortest plan that fails in the same way, and prints it
    #[arg(long)]
    shrink: bool,
    /// Runs each seed so many times and compares the traces
    #[arg(long)]
    check_determinism: Option<u64>,
    /// Takes a safety measure away: the seeds are expected to find it out
    #[arg(long)]
    mutation: Option<Mutation>,
    /// Takes each safety measure away in turn, and says how many of the seeds it took to find it out
    #[arg(long)]
    mutations: bool,
    /// Ends with the first life that breaks a rule, and says how many it took
    #[arg(long)]
    until_failure: bool,
    /// Prints how often which fault met which state
    #[arg(long)]
    coverage: bool,
    /// Runs in this process, for a profiler
    #[arg(long)]
    here: bool,
}

fn main() -> ExitCode {
    // Before anything draws: what is drawn here is the same for everything that is forked.
    ostler_entropy::seed(0);
    match act(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            println!("the simulation cannot run: {error}");
            ExitCode::FAILURE
        }
    }
}

fn act(args: &Args) -> io::Result<bool> {
    if args.here {
        let seed = args.seed.unwrap_or(1);
        return Ok((seed..seed + args.seeds).all(|seed| {
            let report = run::run(&Plan::of(seed), false);
            println!("{seed} {:016x} {:?}", report.hash, report.violations);
            report.violations.is_empty()
        }));
    }
    warm_up();
    let first = args.seed.unwrap_or_else(fresh);
    if let Some(plan) = chosen(args)? {
        return replay(args, &plan);
    }
    if args.mutations {
        return mutations(args, first);
    }
    match args.check_determinism {
        Some(times) => check_determinism(args, first, times),
        None if args.until_failure => until_failure(args, first),
        None => many(args, first),
    }
}

/// A seed that was never used.
fn fresh() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_micros()).unwrap_or_default()
}

/// The plans of as many seeds as were asked for.
fn plans(args: &Args, first: u64, mutation: Option<Mutation>) -> impl Iterator<Item = Plan> {
    let all = (first..).map(move |seed| Plan { mutation, ..Plan::of(seed) });
    let (groups, pools, checks) = (args.groups, args.pools, args.checks);
    let fits = move |plan: &Plan| {
        (!groups || plan.has_groups())
            && (!pools || plan.has_pools())
            && (!checks || plan.has_checks())
    };
    let wanted = all.filter(fits);
    wanted.take(usize::try_from(args.seeds).unwrap_or(usize::MAX))
}

fn jobs(args: &Args) -> usize {
    args.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, Into::into))
}

/// The plan that is to be run alone.
fn chosen(args: &Args) -> io::Result<Option<Plan>> {
    if let Some(path) = &args.plan {
        let text = std::fs::read_to_string(path)?;
        return serde_json::from_str(&text).map(Some).map_err(io::Error::other);
    }
    Ok(args.replay.map(|seed| Plan { mutation: args.mutation, ..Plan::of(seed) }))
}

fn replay(args: &Args, plan: &Plan) -> io::Result<bool> {
    let plan = if args.shrink {
        let before = plan.steps.len();
        let shrunk = shrink(plan, |left| println!("{left} of {before} steps are left"))?;
        println!("{}", serde_json::to_string(&shrunk).map_err(io::Error::other)?);
        shrunk
    } else {
        plan.clone()
    };
    if let Some(filter) = &args.log {
        let filter = filter.parse::<EnvFilter>().map_err(io::Error::other)?;
        let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
        log.without_time().init();
    }
    let report = run_one(&plan, args.timeline)?;
    // The reader may have seen enough.
    let mut out = io::stdout().lock();
    for line in &report.timeline {
        writeln!(out, "{line}")?;
    }
    drop(out);
    tell(&report);
    println!(
        "trace {:016x}, {} lines, {:.0} simulated seconds",
        report.hash, report.lines, report.seconds
    );
    Ok(report.violations.is_empty())
}

fn tell(report: &Report) {
    for violation in &report.violations {
        println!("seed {}: {violation}", report.seed);
    }
}

fn check_determinism(args: &Args, first: u64, times: u64) -> io::Result<bool> {
    let mut same = true;
    for seed in first..first + args.seeds {
        let mut hashes: BTreeMap<(u64, u64), u64> = BTreeMap::new();
        let plans = (0..times).map(|_| Plan::of(seed));
        run_all(plans, jobs(args), false, |_, report| {
            *hashes.entry((report.hash, report.lines)).or_default() += 1;
            true
        })?;
        for ((hash, lines), count) in &hashes {
            println!("seed {seed}: trace {hash:016x}, {lines} lines, {count} times");
        }
        same &= hashes.len() == 1;
    }
    Ok(same)
}

/// Whether every mutation is found out.
fn mutations(args: &Args, first: u64) -> io::Result<bool> {
    let mut all = true;
    for mutation in Mutation::value_variants() {
        let (lives, found) = first_failure(args, first, Some(*mutation))?;
        all &= found.is_some();
        let how = found.unwrap_or_else(|| "not found out".to_owned());
        let short: String = how.chars().take(160).collect();
        println!("{mutation:?}: {lives} seeds: {short}");
    }
    Ok(all)
}

/// Whether no rule was broken. `tests/mutations/run` reads what is printed.
fn until_failure(args: &Args, first: u64) -> io::Result<bool> {
    let (lives, found) = first_failure(args, first, args.mutation)?;
    match &found {
        Some(how) => println!("found after {lives} seeds: {how}"),
        None => println!("not found in {lives} seeds"),
    }
    Ok(found.is_none())
}

/// The number of lives until a rule was broken, and the broken rule.
fn first_failure(
    args: &Args,
    first: u64,
    mutation: Option<Mutation>,
) -> io::Result<(u64, Option<String>)> {
    let begin = Instant::now();
    let limit = args.max_seconds.map(Duration::from_secs);
    let (mut lives, mut found) = (0_u64, None);
    run_all(plans(args, first, mutation), jobs(args), false, |_, report| {
        lives += u64::from(found.is_none());
        // What broke off is reported at the end, and is why nothing else went on.
        let panic = report.violations.iter().find(|violation| violation.contains("panic: "));
        if let (None, Some(violation)) = (&found, panic.or_else(|| report.violations.first())) {
            found = Some(format!("seed {}, {}", report.seed, in_short(violation)));
        }
        found.is_none() && limit.is_none_or(|limit| begin.elapsed() < limit)
    })?;
    Ok((lives, found))
}

/// A violation in one line: the place of an assertion and its left side, without the whole plan.
fn in_short(violation: &str) -> String {
    let mut lines = violation.lines();
    let first = lines.next().unwrap_or_default();
    let found = lines.map(str::trim).find(|line| line.starts_with("left: "));
    found.map_or_else(|| first.to_owned(), |found| format!("{first} {found}"))
}

fn many(args: &Args, first: u64) -> io::Result<bool> {
    println!("seeds from {first}");
    let begin = Instant::now();
    let limit = args.max_seconds.map(Duration::from_secs);
    let (mut done, mut failed, mut simulated) = (0_u64, Vec::new(), 0.0);
    let mut seen: BTreeMap<String, u64> = BTreeMap::new();
    let mut told = begin;
    run_all(plans(args, first, args.mutation), jobs(args), false, |_, report| {
        done += 1;
        simulated += report.seconds;
        for (what, count) in &report.seen {
            *seen.entry(what.clone()).or_default() += count;
        }
        if !report.violations.is_empty() {
            tell(&report);
            failed.push(report.seed);
        }
        if told.elapsed() > Duration::from_secs(10) {
            told = Instant::now();
            progress(begin, done, simulated, &failed, &seen);
        }
        limit.is_none_or(|limit| begin.elapsed() < limit)
    })?;
    progress(begin, done, simulated, &failed, &seen);
    if args.coverage {
        for (what, count) in &seen {
            println!("{count:>8}  {what}");
        }
    }
    if !failed.is_empty() {
        println!("these failed: {failed:?}; sim --replay SEED --timeline shows one");
    }
    Ok(failed.is_empty())
}

fn progress(
    begin: Instant,
    done: u64,
    simulated: f64,
    failed: &[u64],
    seen: &BTreeMap<String, u64>,
) {
    let took = begin.elapsed().as_secs_f64().max(0.001);
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let rate = done as f64 / took;
    let pairs = seen.keys().filter(|what| what.contains(" x ")).count();
    println!(
        "{done} seeds in {took:.0} s, {rate:.1}/s, {:.1} simulated hours/s, {} failed, {pairs} pairs of state and fault",
        simulated / 3600.0 / took,
        failed.len(),
    );
}
