//! Looks into the cloud with a command that the driver's author gives.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::process::Command;

use crate::machine::Machine;
use crate::outcome::{NotPassed, Outcome, failed, skipped};

/// The command.
#[derive(Debug, Clone)]
pub(crate) struct Probe {
    /// The flag that named the probe.
    flag: &'static str,
    command: String,
    limit: Duration,
}

/// An instance as the cloud has it.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Seen {
    pub(crate) provider_id: String,
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) uid: String,
    #[serde(default)]
    pub(crate) cluster_id: String,
    #[serde(default)]
    pub(crate) tags: BTreeMap<String, String>,
    /// Where it is; empty if the probe does not tell.
    #[serde(default)]
    pub(crate) zone: String,
    #[serde(default)]
    user_data: Option<String>,
}

impl Seen {
    /// The user data, without which a check has nothing to say.
    pub(crate) fn user_data(&self) -> Outcome<Vec<u8>> {
        let told = self.user_data.as_ref().and_then(|text| STANDARD.decode(text).ok());
        told.ok_or_else(|| skipped("--probe-cmd instances shows no userData"))
    }
}

/// Something in the cloud that was made for a machine.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Resource {
    pub(crate) id: String,
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) uid: String,
    /// Absent if it has none of its own, or the probe does not tell.
    #[serde(default)]
    pub(crate) tags: Option<BTreeMap<String, String>>,
}

impl Probe {
    pub(crate) fn new(flag: &'static str, command: String, limit: Duration) -> Self {
        Self { flag, command, limit }
    }

    /// All instances.
    pub(crate) async fn instances(&self) -> Outcome<Vec<Seen>> {
        self.read("instances").await
    }

    /// The instances of a machine, by the UID, or by the name if they have none.
    pub(crate) async fn instances_of(&self, machine: &Machine) -> Outcome<Vec<Seen>> {
        let named = |seen: &Seen| seen.uid.is_empty() && seen.name == machine.name;
        let all = self.instances().await?;
        Ok(all.into_iter().filter(|seen| seen.uid == machine.uid || named(seen)).collect())
    }

    /// The instance of this id, which the driver told. Driver or probe is wrong if it is not there.
    pub(crate) async fn instance(&self, provider_id: &str) -> Outcome<Seen> {
        let found =
            self.instances().await?.into_iter().find(|seen| seen.provider_id == provider_id);
        let expected = format!("{provider_id}, as the driver told it, in --probe-cmd instances");
        found.ok_or_else(|| failed(expected, "no instance with this providerId"))
    }

    /// Everything that costs money or holds a name.
    pub(crate) async fn resources(&self) -> Outcome<Vec<Resource>> {
        self.read("resources").await
    }

    /// Everything that was made for a machine.
    pub(crate) async fn resources_of(&self, uid: &str) -> Outcome<Vec<Resource>> {
        let all = self.resources().await?;
        Ok(all.into_iter().filter(|resource| resource.uid == uid).collect())
    }

    /// Where instances of the class may be made; none if the probe does not know the word.
    pub(crate) async fn zones(&self) -> Outcome<Vec<String>> {
        match self.read("zones").await {
            Err(NotPassed::Skipped(_)) => Ok(Vec::new()),
            zones => zones,
        }
    }

    /// Grows with every change of the cloud.
    pub(crate) async fn journal_length(&self) -> Outcome<u64> {
        self.read("journal-length").await
    }

    /// Tags an instance, or a part of one, as a stranger would.
    pub(crate) async fn add_foreign_tag(&self, id: &str, tag: &str) -> Outcome {
        self.run(&format!("add-foreign-tag {} {}", quoted(id), quoted(tag))).await.map(drop)
    }

    /// Takes the identity off an instance: as machine-controller-manager would have made it.
    pub(crate) async fn remove_identity(&self, provider_id: &str) -> Outcome {
        self.run(&format!("remove-identity {}", quoted(provider_id))).await.map(drop)
    }

    /// Ends an instance behind the back of its driver, as a person would.
    pub(crate) async fn remove_instance(&self, provider_id: &str) -> Outcome {
        self.run(&format!("remove-instance {}", quoted(provider_id))).await.map(drop)
    }

    /// Takes the cloud away (`on`, `after N` changes more) or brings it back (`off`).
    pub(crate) async fn break_cloud(&self, how: &str) -> Outcome {
        self.run(&format!("break {how}")).await.map(drop)
    }

    async fn read<T: DeserializeOwned>(&self, words: &str) -> Outcome<T> {
        let printed = self.run(words).await?;
        serde_json::from_str(&printed).map_err(|error| {
            failed(
                format_args!("{} {words}: JSON as the README of the suite says", self.flag),
                format_args!("{error}: {}", printed.chars().take(200).collect::<String>()),
            )
        })
    }

    /// Runs the probe with these arguments, and returns its output.
    pub(crate) async fn run(&self, words: &str) -> Outcome<String> {
        let flag = self.flag;
        let output = Command::new("sh")
            .arg("-c")
            .arg(format!("{} {words}", self.command))
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(self.limit, output).await;
        match output {
            Ok(Ok(output)) if output.status.success() => {
                Ok(String::from_utf8_lossy(&output.stdout).into_owned())
            }
            Ok(Ok(output)) => {
                let printed = String::from_utf8_lossy(&output.stderr);
                let last = printed.lines().last().unwrap_or_default();
                Err(skipped(format_args!("{flag} has no {words:?}: {last}")))
            }
            Ok(Err(error)) => Err(skipped(format_args!("{flag} cannot be run: {error}"))),
            Err(_) => Err(skipped(format_args!("{flag} {words} did not end in time"))),
        }
    }
}

/// A word for `sh`.
pub(crate) fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}
