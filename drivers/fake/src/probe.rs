//! Looks into the cloud from outside, for the conformance suite and for people.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

use anyhow::Context as _;
use serde::Serialize;
use serde_json::json;

use crate::cloud::{CLUSTER_TAG, Clock, Cloud, Instance, MACHINE_TAG, State, UID_TAG, ZONE_TAG};
use crate::spec::Resource;

/// What `ostler-driver-fake probe` is asked.
#[derive(Debug, Clone, clap::Args)]
pub struct ProbeArgs {
    /// State file of the cloud
    #[arg(long, env = "OSTLER_FAKE_STATE_FILE", value_name = "FILE")]
    pub state_file: PathBuf,

    #[command(subcommand)]
    question: Question,
}

#[derive(Debug, Clone, clap::Subcommand)]
enum Question {
    /// All instances, of all clusters, with their tags and user data
    Instances,
    /// Everything that costs money: instances, disks, network cards
    Resources,
    /// Some zones: this cloud has every zone
    Zones,
    /// A number that grows with every change of the cloud
    JournalLength,
    /// Puts a tag on an instance or a part of it, as a stranger would
    AddForeignTag {
        /// The instance, or its disk or network card as `resources` has it
        provider_id: String,
        /// The tag, KEY=VALUE
        #[arg(value_name = "KEY=VALUE", value_parser = key_and_value)]
        tag: (String, String),
    },
    /// Takes the cloud away from all drivers, and brings it back
    Break {
        #[command(subcommand)]
        outage: Outage,
    },
    /// Ends an instance behind the back of its machine
    RemoveInstance {
        /// The instance
        provider_id: String,
    },
    /// Takes the identity off an instance: as machine-controller-manager would have made it
    RemoveIdentity {
        /// The instance
        provider_id: String,
    },
}

#[derive(Debug, Clone, clap::Subcommand)]
enum Outage {
    /// It answers nothing from now on
    On,
    /// It answers again
    Off,
    /// It takes so many changes more, and answers nothing then
    After {
        /// How many
        changes: u64,
    },
}

fn key_and_value(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
    let pair = pair.ok_or_else(|| format!("{text:?} is not KEY=VALUE"))?;
    Ok((pair.0.to_owned(), pair.1.to_owned()))
}

/// Answers on standard output, in JSON.
pub fn probe(args: ProbeArgs) -> anyhow::Result<()> {
    let ProbeArgs { state_file, question } = args;
    let read = || Cloud::read(&state_file);
    let answer = match question {
        Question::Instances => json!(read()?.instances().map(instance).collect::<Vec<_>>()),
        Question::Resources => json!(resources(&read()?)),
        Question::Zones => json!(["zone-a", "zone-b"]),
        Question::JournalLength => json!(read()?.total_changes()),
        Question::AddForeignTag { provider_id, tag: (key, value) } => {
            let cloud = Cloud::open(&state_file, Clock::system())?;
            let (instance, part) = whose(&provider_id);
            cloud.tag_as_stranger(instance, part, (&key, &value))?;
            json!({})
        }
        Question::Break { outage } => {
            let cloud = Cloud::open(&state_file, Clock::system())?;
            match outage {
                Outage::On => cloud.break_after(0)?,
                Outage::Off => cloud.repair()?,
                Outage::After { changes } => cloud.break_after(changes)?,
            }
            json!({})
        }
        Question::RemoveInstance { provider_id } => {
            Cloud::open(&state_file, Clock::system())?.remove(&[provider_id])?;
            json!({})
        }
        Question::RemoveIdentity { provider_id } => {
            let cloud = Cloud::open(&state_file, Clock::system())?;
            let mut instance =
                cloud.instance(&provider_id)?.context("there is no such instance")?;
            instance.disown();
            cloud.plant(vec![instance])?;
            json!({})
        }
    };
    writeln!(std::io::stdout(), "{answer}").context("cannot print the answer")
}

fn instance(instance: &Instance) -> serde_json::Value {
    let tags = &instance.vm.tags;
    let tag = |key| tags.get(key).map_or("", String::as_str);
    let mut shown = json!({
        "zone": tag(ZONE_TAG),
        "providerId": instance.provider_id,
        "name": tag(MACHINE_TAG),
        "uid": tag(UID_TAG),
        "clusterId": tag(CLUSTER_TAG),
        "tags": tags,
    });
    let user_data = instance.bootstrap.user_data.as_ref();
    if let (Some(user_data), Some(fields)) = (user_data, shown.as_object_mut()) {
        fields.insert("userData".to_owned(), user_data.as_base64().into());
    }
    shown
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Part<'a> {
    id: String,
    kind: &'a str,
    uid: &'a str,
    cluster_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tags: Option<&'a BTreeMap<String, String>>,
}

fn resources(state: &State) -> Vec<Part<'_>> {
    let parts = state.instances().flat_map(|instance| {
        let id = &instance.provider_id;
        let parts = [
            ("instance", id.clone(), Resource::Vm),
            ("disk", part(id, "disk"), Resource::Disk),
            ("network", part(id, "network"), Resource::Network),
        ];
        parts.map(|(kind, id, resource)| Part {
            id,
            kind,
            uid: &instance.identity.machine_uid,
            cluster_id: &instance.identity.cluster_id,
            tags: Some(&instance.tags(resource).tags),
        })
    });
    let left = state.leftovers().map(|left| Part {
        id: left.id.clone(),
        kind: &left.kind,
        uid: &left.uid,
        cluster_id: &left.cluster_id,
        tags: None,
    });
    parts.chain(left).collect()
}

/// The instance and the part that an id names.
fn whose(id: &str) -> (&str, Resource) {
    let disk = id.strip_suffix("/disk").map(|instance| (instance, Resource::Disk));
    let network = || id.strip_suffix("/network").map(|instance| (instance, Resource::Network));
    disk.or_else(network).unwrap_or((id, Resource::Vm))
}

fn part(instance: &str, kind: &str) -> String {
    format!("{instance}/{kind}")
}
