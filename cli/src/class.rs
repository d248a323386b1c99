//! `ostler class`: what a driver says of a class, without a cluster.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Subcommand;
use ostler_conformance::{ClassManifest, ClassReview, RunError, Target, review};
use ostler_lifecycle::digest;
use serde_json::{Value, json};

use crate::driver::keeper;
use crate::log::{note, say};
use crate::terminal;

/// Letters of the hash in a name: a million edits of one class collide once in a million.
const HASH: usize = 10;
/// Longest name of an object.
const LONGEST_NAME: usize = 253;
/// The provider of the built-in driver.
const FAKE: &str = "fake.ostler.dev";

/// What to do with a class.
#[derive(Debug, Subcommand)]
pub(crate) enum Args {
    /// Print the name that a class should have; it changes exactly when machines have to be replaced
    ///
    /// The name is the one in the manifest and a hash of the provider and of what cannot be changed on a
    /// running instance. Only the driver knows what can be changed, so this command starts the driver, asks it,
    /// and ends it. It creates nothing and needs no cluster.
    Name(NameArgs),
}

/// Flags of `ostler class name`.
#[derive(Debug, clap::Args)]
pub(crate) struct NameArgs {
    /// MachineClass manifest, YAML or JSON
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,

    /// Command line of the driver of the class; left out for classes of the built-in fake driver
    #[arg(long, value_name = "COMMAND")]
    driver_cmd: Option<String>,

    /// As for `ostler sanity`: the command starts a driver that serves MachineDriverService on a unix socket
    #[arg(long, requires = "driver_cmd")]
    unary: bool,

    /// Begin the name with this, in place of metadata.generateName or metadata.name
    #[arg(long, value_name = "PREFIX")]
    base: Option<String>,
}

/// Runs a subcommand.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    match args {
        Args::Name(args) => Box::pin(name(args)).await,
    }
}

async fn name(args: NameArgs) -> anyhow::Result<()> {
    let shown = args.file.display();
    let manifest = read(&args.file).with_context(|| format!("--file {shown} cannot be used"))?;
    let class = ClassManifest::read(&args.file)
        .with_context(|| format!("--file {shown} cannot be used"))?;
    let provider = text(&manifest, "/provider");
    let command = command(args.driver_cmd, provider)?;
    let command =
        if args.unary { crate::driver::adapted(&command, &std::env::temp_dir())? } else { command };
    let review = review(keeper()?.kill(), Target::Command(command), class)
        .await
        .map_err(|it| unanswered(&it))?;
    if review.provider != provider {
        note(format_args!(
            "note: the class is of provider {provider:?}, the driver that was asked serves {:?}",
            review.provider
        ));
    }
    let fixed = fixed(&review, &manifest)?;
    let base = base(args.base.as_deref(), &manifest)?;
    let hash =
        digest::of_text(&digest::canonical(&json!({ "provider": provider, "fixed": fixed })));
    let hash: String = hash.chars().take(HASH).collect();
    let name = format!("{base}-{hash}");
    if name.len() > LONGEST_NAME {
        bail!("the name {name} is longer than {LONGEST_NAME} characters: choose a shorter --base");
    }
    say(name);
    Ok(())
}

/// The first MachineClass of a file.
fn read(path: &Path) -> anyhow::Result<Value> {
    let text = std::fs::read_to_string(path)?;
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).context("it is no YAML")?;
    let is_class = |it: &Value| it.get("kind").and_then(Value::as_str) == Some("MachineClass");
    documents.into_iter().find(is_class).context("it holds no MachineClass")
}

fn text<'a>(manifest: &'a Value, path: &str) -> &'a str {
    manifest.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

/// How to start the driver of a class.
fn command(given: Option<String>, provider: &str) -> anyhow::Result<String> {
    if let Some(command) = given {
        return Ok(command);
    }
    if provider != FAKE {
        bail!(
            "the driver of provider {provider:?} knows which fields are fixed: give its command line with --driver-cmd"
        );
    }
    let own = std::env::current_exe().context("this program cannot be found")?;
    let own = own.display().to_string().replace('\'', r"'\''");
    Ok(format!("'{own}' driver fake"))
}

fn unanswered(error: &RunError) -> anyhow::Error {
    let mut text = error.to_string();
    if let RunError::Driver { printed, .. } = error {
        for line in printed {
            text.push_str("\n  driver: ");
            text.push_str(&terminal::line(line));
        }
    }
    anyhow::Error::msg(text)
}

/// The text that stands for the fixed part of the spec.
fn fixed(review: &ClassReview, manifest: &Value) -> anyhow::Result<String> {
    if !review.violations.is_empty() {
        let wrong = review.violations.iter().map(|(path, why)| format!("{path}: {why}"));
        bail!("the driver does not take providerSpec: {}", wrong.collect::<Vec<_>>().join("; "));
    }
    Ok(review.fixed_digest.clone().unwrap_or_else(|| {
        note("note: this driver does not say what is fixed: every change of providerSpec counts");
        let spec = manifest.get("providerSpec").cloned().unwrap_or_else(|| json!({}));
        digest::of_text(&digest::canonical(&spec))
    }))
}

/// How the name begins.
fn base(given: Option<&str>, manifest: &Value) -> anyhow::Result<String> {
    let generated = text(manifest, "/metadata/generateName").trim_end_matches('-');
    let own = text(manifest, "/metadata/name");
    let candidates = [given.unwrap_or_default().trim_end_matches('-'), generated, own];
    let base = candidates.into_iter().find(|it| !it.is_empty());
    base.map(str::to_owned)
        .context("the manifest has neither metadata.name nor metadata.generateName: give --base")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_begins_as_the_flag_or_the_manifest_says() {
        let manifest = json!({ "metadata": { "name": "pool", "generateName": "pool-z1-" } });
        assert_eq!(base(Some("mine-"), &manifest).unwrap(), "mine");
        assert_eq!(base(None, &manifest).unwrap(), "pool-z1");
        assert_eq!(base(None, &json!({ "metadata": { "name": "pool" } })).unwrap(), "pool");
        assert!(base(None, &json!({})).is_err());
    }

    #[test]
    fn only_the_built_in_driver_needs_no_command() {
        assert!(command(None, FAKE).unwrap().ends_with("driver fake"));
        let error = command(None, "aws.example.com").unwrap_err().to_string();
        assert!(error.contains("--driver-cmd") && error.contains("aws.example.com"), "{error}");
        assert_eq!(command(Some("my-driver -v".to_owned()), FAKE).unwrap(), "my-driver -v");
    }

    #[test]
    fn a_driver_that_does_not_say_makes_every_change_count() {
        let quiet = |fixed_digest| ClassReview {
            provider: FAKE.to_owned(),
            violations: Vec::new(),
            fixed_digest,
        };
        let manifest = |size| json!({ "providerSpec": { "size": size } });
        let (one, two) = (fixed(&quiet(None), &manifest(1)), fixed(&quiet(None), &manifest(2)));
        assert_ne!(one.unwrap(), two.unwrap());
        assert_eq!(fixed(&quiet(Some("d".to_owned())), &manifest(1)).unwrap(), "d");
        let violations = vec![("size".to_owned(), "too large".to_owned())];
        let wrong = ClassReview { violations, ..quiet(None) };
        let error = fixed(&wrong, &manifest(1)).unwrap_err().to_string();
        assert!(error.contains("size: too large"), "{error}");
    }
}
