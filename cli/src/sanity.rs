//! `ostler sanity`: the conformance suite against a driver.

mod init;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Parser;
use http::Uri;
use ostler_conformance::{
    Case, ClassManifest, CloudAddress, Faults, ManifestError, Options, Report, RunError,
    SecretManifest, Target, Unary, catalogue, run,
};
use ostler_local::SocketDirectory;
use regex::Regex;

use crate::driver::{adapted, adapter, keeper};
use crate::log::{self, page, say};

/// Checks a driver against the contract. Ends with 0 if it keeps every MUST and every capability that
/// it offers, with 1 if not, and with 2 if it could not be checked at all.
#[derive(Debug, Parser)]
// The caller of a script can override the flags that the script gives. Flags that collect values keep all values.
#[command(args_override_self = true)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command")]
pub(crate) struct Args {
    /// Command line of the driver; the suite starts and ends it, with OSTLER_ENDPOINT and OSTLER_TOKEN_FILE, or with
    /// --unary OSTLER_DRIVER_SOCKET
    #[arg(long, value_name = "COMMAND", conflicts_with = "listen")]
    driver_cmd: Option<String>,

    /// The command starts a driver that serves MachineDriverService on a unix socket (OSTLER_DRIVER_SOCKET): put the
    /// adapter before it
    #[arg(long, requires = "driver_cmd")]
    unary: bool,

    /// With --unary: check what the adapter does as well (the session), which its own tests check else
    #[arg(long, requires = "unary")]
    adapter: bool,

    /// Wait here for a driver that you start; checks that end the process are skipped
    #[arg(long, value_name = "ADDRESS", requires = "token_file")]
    listen: Option<SocketAddr>,

    /// With --listen: file with the token that the driver shows
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// MachineClass manifest that instances can be made of
    #[arg(long, value_name = "FILE", required_unless_present_any = ["list", "init"])]
    class: Option<PathBuf>,

    /// Secret manifest with the credentials of all classes
    #[arg(long, value_name = "FILE")]
    secret: Option<PathBuf>,

    /// Class that differs in something that a running instance cannot change
    #[arg(long, value_name = "FILE")]
    alt_class: Option<PathBuf>,

    /// Class that the driver must refuse as invalid
    #[arg(long, value_name = "FILE")]
    bad_class: Option<PathBuf>,

    /// Class that differs only in what a running instance can change
    #[arg(long, value_name = "FILE")]
    hot_class: Option<PathBuf>,

    /// Class whose provider spec has the tags by which machine-controller-manager knows its instances
    #[arg(long, value_name = "FILE")]
    mcm_class: Option<PathBuf>,

    /// Class whose instances take some seconds to make, for checks that interrupt that
    #[arg(long, value_name = "FILE")]
    slow_class: Option<PathBuf>,

    /// Secret with credentials that the infrastructure refuses
    #[arg(long, value_name = "FILE")]
    bad_secret: Option<PathBuf>,

    /// Command that reads the cloud without the driver, e.g. "./my-driver probe"
    ///
    /// The suite adds a word as the last argument. `instances`: prints all instances as `[{"providerId", "name", "uid",
    /// "clusterId", "tags": {}, "userData": "<base64>"}]`, with name, uid and clusterId as its tags say. `resources`: prints
    /// all that costs money as `[{"id", "kind", "uid", "clusterId", "tags": {}}]`. `journal-length`: prints a number that
    /// grows with each change of the cloud. `zones`: prints names of zones as `["a", "b"]`. `add-foreign-tag ID KEY=VALUE`
    /// and `remove-identity ID` change the tags of an instance; `remove-instance ID` ends it, and returns once it is gone.
    /// `break on`, `break off` and `break after N` take the cloud away (after N more changes) and bring it back; with
    /// --cloud the suite does both. A word that it does not know must end it with a code other than 0; the checks
    /// that need the word are skipped.
    #[arg(long, value_name = "COMMAND")]
    probe_cmd: Option<String>,

    /// Stand between the driver and its cloud, and let each request fail in each way (`faults/…`)
    ///
    /// 500, 403, 404, 409, 429, a connection that ends before and after the work was done, an answer that never comes, half
    /// of one. The driver gets the address of the suite by --cloud-env, in place of that of the cloud; for https it must trust
    /// the file that --cloud-ca-env names. May be given several times
    #[arg(long, value_name = "http[s]://HOST:PORT", value_parser = cloud)]
    cloud: Vec<Uri>,

    /// The environment variable by which the driver is told where its cloud is, one for each --cloud. Left out: HTTP_PROXY and
    /// HTTPS_PROXY name the suite, which reads what is for --cloud; most programs do not use those for localhost
    #[arg(long, value_name = "NAME", requires = "cloud")]
    cloud_env: Vec<String>,

    /// For a cloud with https: the environment variable that names the file of the authorities that the driver is to trust, with
    /// those of this system and the suite's own
    #[arg(long, value_name = "NAME", default_values = ["SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "AWS_CA_BUNDLE"])]
    cloud_ca_env: Vec<String>,

    /// In place of --cloud, for a cloud that does not speak HTTP: lets requests to it fail
    ///
    /// It gets a fault (500, 403, 404, 409, 429, reset, lost, hang, half) and a number N: the N-th request from now on fails so,
    /// and those after it work. With `off` no request fails, and it prints how many came since it was called before. Code 0
    /// means done; a fault that it does not know is left out.
    #[arg(long, value_name = "COMMAND", conflicts_with = "cloud")]
    cloud_fault_cmd: Option<String>,

    /// Of all faults of the cloud try this one, as a failure names it, e.g. 'create 2 lost'
    #[arg(long, value_name = "CASE")]
    only: Option<Case>,

    /// Which faults of the cloud are tried if there are too many for one run
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    seed: u64,

    /// Searches of the cloud show so late what was made: the suite waits as long for its lists, and with --cloud makes
    /// them late. Left out: as `list_lag` of the driver says
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    list_lag: Option<Duration>,

    /// Create this many instances together to check long lists of machines and groups; 501 or more, as a page has 500
    #[arg(long, value_name = "N", default_value_t = 0)]
    many: usize,

    /// How often to repeat each idempotent operation
    #[arg(long, value_name = "N", default_value_t = 10)]
    idempotent_count: u32,

    /// Run only checks whose name matches
    #[arg(long, value_name = "REGEX")]
    focus: Option<Regex>,

    /// Skip checks whose name matches
    #[arg(long, value_name = "REGEX")]
    skip: Option<Regex>,

    /// Skip everything that makes instances
    #[arg(long)]
    no_create: bool,

    /// How many checks to run in parallel; more than 1 starts several processes of the driver
    #[arg(long, value_name = "N", default_value_t = 1)]
    parallel: usize,

    /// Multiply all time limits by this, for slow infrastructures
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    timeout_scale: f64,

    /// Names of machines begin with this
    #[arg(long, value_name = "PREFIX", default_value = "conformance")]
    name_prefix: String,

    /// Write manifests and a probe for a full run to this directory, print the command that uses them, and exit
    #[arg(long, value_name = "DIR")]
    init: Option<PathBuf>,

    /// Print the checks with a description, and exit
    #[arg(long)]
    list: bool,

    /// Write the results as JUnit XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,

    /// Write the results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs the suite; the exit code says how it went.
pub(crate) async fn run_suite(args: Args) -> anyhow::Result<ExitCode> {
    if args.list {
        list();
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(dir) = &args.init {
        page(init::write(dir)?);
        return Ok(ExitCode::SUCCESS);
    }
    // Processes of the adapter that the suite kills leave their sockets here.
    let sockets = SocketDirectory::new(&std::env::temp_dir(), false).await?;
    let (target, options) = match (target(&args, sockets.path()), options(&args, &sockets)) {
        (Ok(target), Ok(options)) => (target, options),
        (Err(error), _) | (_, Err(error)) => return Ok(unusable(&error)),
    };
    let interrupt = options.interrupt.clone();
    let told = ostler_server::on_signal()?;
    tokio::spawn(async move {
        told.cancelled().await;
        say("interrupted: cleaning up");
        interrupt.cancel();
    });
    let interrupted = options.interrupt.clone();
    let report = match Box::pin(run(target, options)).await {
        Ok(report) => report,
        Err(error) => {
            let printed = match &error {
                RunError::Driver { printed, .. } => printed.clone(),
                RunError::NothingToDo | RunError::Interrupted | RunError::Io(_) => Vec::new(),
            };
            let code = unusable(&error.into());
            // What the helpers of the SDKs say when nothing gives them a socket.
            let serves = printed.iter().any(|line| line.contains("OSTLER_DRIVER_SOCKET"));
            for line in printed {
                say(format_args!("  driver: {line}"));
            }
            if serves && !args.unary {
                say("  hint: a driver that serves on a unix socket needs --unary");
            }
            return Ok(code);
        }
    };
    page(report.summary());
    write(&args, &report)?;
    let fine = report.passes() && !interrupted.is_cancelled();
    Ok(if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn target(args: &Args, sockets: &Path) -> anyhow::Result<Target> {
    match (&args.driver_cmd, args.listen, &args.token_file) {
        (Some(command), None, _) if args.unary => {
            Ok(Target::Command(adapted(plain(command), sockets)?))
        }
        (Some(command), None, _) => Ok(Target::Command(command.clone())),
        (None, Some(address), Some(token_file)) => {
            Ok(Target::Listen { address, token_file: token_file.clone() })
        }
        _ => bail!("which driver? give --driver-cmd, or --listen with --token-file"),
    }
}

/// The command without `exec`, which is written before it anyway.
fn plain(command: &str) -> &str {
    command.strip_prefix("exec ").unwrap_or(command)
}

fn options(args: &Args, sockets: &SocketDirectory) -> anyhow::Result<Options> {
    let Some(class) = &args.class else { bail!("--class is missing") };
    let class = manifest("--class", class, ClassManifest::read)?;
    Ok(Options {
        faults: faults(args)?,
        secret: optional("--secret", args.secret.as_deref(), SecretManifest::read)?,
        alt_class: optional("--alt-class", args.alt_class.as_deref(), ClassManifest::read)?,
        bad_class: optional("--bad-class", args.bad_class.as_deref(), ClassManifest::read)?,
        hot_class: optional("--hot-class", args.hot_class.as_deref(), ClassManifest::read)?,
        mcm_class: optional("--mcm-class", args.mcm_class.as_deref(), ClassManifest::read)?,
        slow_class: optional("--slow-class", args.slow_class.as_deref(), ClassManifest::read)?,
        bad_secret: optional("--bad-secret", args.bad_secret.as_deref(), SecretManifest::read)?,
        many: args.many,
        idempotent_count: args.idempotent_count,
        focus: focus(args)?,
        skip: args.skip.clone(),
        no_create: args.no_create,
        parallel: args.parallel,
        timeout_scale: args.timeout_scale,
        name_prefix: args.name_prefix.clone(),
        probe_cmd: args.probe_cmd.clone(),
        keeper: keeper()?.recorded(sockets.record()).kill(),
        unary: unary(args, sockets.path())?,
        observer: Some(Arc::new(|result| page(result.text().trim_end()))),
        ..Options::new(class)
    })
}

/// A case has its check.
fn focus(args: &Args) -> anyhow::Result<Option<Regex>> {
    match &args.only {
        Some(case) => Ok(Some(Regex::new(&format!("^{}$", case.check()))?)),
        None => Ok(args.focus.clone()),
    }
}

fn faults(args: &Args) -> anyhow::Result<Faults> {
    let told = args.cloud_env.len();
    if told != 0 && told != args.cloud.len() {
        bail!(
            "--cloud-env is given {told} times and --cloud {} times: one for each",
            args.cloud.len()
        );
    }
    if args.only.is_some() && args.cloud.is_empty() && args.cloud_fault_cmd.is_none() {
        bail!("--only names a fault of a cloud: --cloud says which cloud");
    }
    let variables = args.cloud_env.iter().cloned().map(Some).chain(std::iter::repeat(None));
    let clouds = args.cloud.iter().cloned().zip(variables);
    Ok(Faults {
        clouds: clouds.map(|(uri, variable)| CloudAddress { uri, variable }).collect(),
        ca_variables: args.cloud_ca_env.clone(),
        command: args.cloud_fault_cmd.clone(),
        seed: args.seed,
        only: args.only.clone(),
        list_lag: args.list_lag,
    })
}

fn cloud(text: &str) -> Result<Uri, String> {
    let uri: Uri = text.parse().map_err(|error| format!("{error}: http://HOST:PORT"))?;
    match uri.scheme_str() {
        Some("http" | "https") if uri.host().is_some() => Ok(uri),
        _ => Err("not like http://HOST:PORT or https://HOST:PORT".to_owned()),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number = text
        .trim_end_matches('s')
        .parse()
        .map_err(|_| "not a number of seconds, like 3s".to_owned())?;
    Duration::try_from_secs_f64(number).map_err(|error| error.to_string())
}

fn unary(args: &Args, sockets: &Path) -> anyhow::Result<Option<Unary>> {
    let Some(driver) = args.driver_cmd.clone().filter(|_| args.unary) else { return Ok(None) };
    Ok(Some(Unary {
        driver: plain(&driver).to_owned(),
        adapter: adapter()?,
        sockets: sockets.to_owned(),
        with_adapter: args.adapter,
    }))
}

fn manifest<T>(
    flag: &'static str,
    path: &Path,
    read: fn(&Path) -> Result<T, ManifestError>,
) -> anyhow::Result<T> {
    read(path).with_context(|| format!("{flag} {} cannot be used", path.display()))
}

fn optional<T>(
    flag: &'static str,
    path: Option<&Path>,
    read: fn(&Path) -> Result<T, ManifestError>,
) -> anyhow::Result<Option<T>> {
    path.map(|path| manifest(flag, path, read)).transpose()
}

fn write(args: &Args, report: &Report) -> anyhow::Result<()> {
    for (flag, path, text) in
        [("--junit", &args.junit, report.junit()), ("--json", &args.json, report.json())]
    {
        if let Some(path) = path {
            std::fs::write(path, text)
                .with_context(|| format!("{flag} {} cannot be written", path.display()))?;
        }
    }
    Ok(())
}

fn list() {
    for entry in catalogue() {
        page(format_args!(
            "{} ({})\n    {}\n    {}",
            entry.name,
            entry.tier.word(),
            entry.sentence,
            entry.why
        ));
    }
}

fn unusable(error: &anyhow::Error) -> ExitCode {
    log::error(error);
    ExitCode::from(2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cli, Command};

    fn parsed(line: &str) -> Result<Box<Args>, clap::Error> {
        let driver = "ostler sanity --driver-cmd ./driver --class class.yaml";
        let line = driver.split(' ').chain(line.split(' '));
        let Command::Sanity(args) = Cli::try_parse_from(line)?.command else {
            panic!("another command");
        };
        Ok(args)
    }

    #[test]
    fn of_a_flag_with_one_value_the_last_one_counts() {
        let args = parsed(
            "--timeout-scale 2 --timeout-scale 3 --class other.yaml --list-lag 1s --list-lag 2s \
             --no-create --no-create",
        )
        .unwrap();
        assert!((args.timeout_scale - 3.0).abs() < f64::EPSILON, "{}", args.timeout_scale);
        assert_eq!(args.class.as_deref(), Some(Path::new("other.yaml")));
        assert_eq!(args.list_lag, Some(Duration::from_secs(2)));
        assert!(args.no_create);
    }

    #[test]
    fn a_flag_that_may_be_repeated_keeps_all_its_values() {
        let args = parsed(
            "--cloud http://a:1 --cloud-env A --cloud http://b:2 --cloud-env B --cloud-ca-env C \
             --cloud-ca-env D",
        )
        .unwrap();
        assert_eq!(args.cloud, ["http://a:1/", "http://b:2/"]);
        assert_eq!(args.cloud_env, ["A", "B"]);
        assert_eq!(args.cloud_ca_env, ["C", "D"]);
    }

    #[test]
    fn a_repeated_flag_still_conflicts_with_another_one() {
        let refused = parsed("--listen 127.0.0.1:1 --listen 127.0.0.1:2 --token-file token");
        assert_eq!(refused.unwrap_err().kind(), clap::error::ErrorKind::ArgumentConflict);
    }
}
