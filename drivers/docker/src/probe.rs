//! Looks at what was made on an engine from outside, for the conformance suite and for people.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::driver::{claim, tag_file};
use crate::engine::{DockerHost, Engine, File, Part, Summary};
use crate::identity::{
    CLUSTER, FIXED_SPEC, INSTANCE, MACHINE, POOL, POOL_UID, UID, instance_of, provider_id,
};
use crate::outage::{Break, break_engine};
use crate::spec::{Delivery, Resource, TAGS_FILE, UserData};
use crate::tags::TagFile;

type Tags = BTreeMap<String, String>;

/// What `ostler-driver-docker probe` is asked.
#[derive(Debug, Clone, clap::Args)]
pub struct ProbeArgs {
    /// Socket of the Docker Engine
    #[arg(long, env = "DOCKER_HOST", value_name = "URL", default_value_t = DockerHost::default())]
    pub docker_host: DockerHost,

    /// Socket of the proxy that `outage` runs, for `break`
    #[arg(long, value_name = "PATH")]
    outage: Option<PathBuf>,

    #[command(subcommand)]
    question: Question,
}

#[derive(Debug, Clone, clap::Subcommand)]
enum Question {
    /// All machines, of all clusters, with their tags and user data
    Instances,
    /// Everything that was made for machines: containers, networks, volumes
    Resources,
    /// A number that grows with every change of the engine
    JournalLength,
    /// Puts a tag on a machine, its networks or its volumes, as a stranger would
    AddForeignTag {
        /// Provider id of the machine, or the id of a part as `resources` has it
        id: String,
        /// The tag, KEY=VALUE
        #[arg(value_name = "KEY=VALUE", value_parser = key_and_value)]
        tag: (String, String),
    },
    /// Removes a container by force, behind the back of its driver
    RemoveInstance {
        /// Provider id of the machine
        id: String,
    },
    /// Takes the engine away from the driver that uses the proxy of `outage`, or brings it back
    #[command(subcommand)]
    Break(Break),
}

fn key_and_value(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
    let pair = pair.ok_or_else(|| format!("{text:?} is not KEY=VALUE"))?;
    Ok((pair.0.to_owned(), pair.1.to_owned()))
}

/// Answers on standard output, in JSON.
pub async fn probe(args: ProbeArgs) -> anyhow::Result<()> {
    let engine = Engine::new(args.docker_host);
    let answer = match args.question {
        Question::Instances => json!(instances(&engine).await?),
        Question::Resources => json!(resources(&engine).await?),
        Question::JournalLength => json!(engine.last_change().await?),
        Question::AddForeignTag { id, tag } => {
            add_foreign_tag(&engine, &id, tag).await?;
            json!({})
        }
        Question::RemoveInstance { id } => {
            let container = instance_of(&id).context("that is no id of this driver")?;
            engine.remove(container).await?;
            json!({})
        }
        Question::Break(how) => {
            let socket = args.outage.context("--outage PATH has to name the socket of `outage`")?;
            break_engine(&socket, how).context("cannot say so to the proxy")?;
            json!({})
        }
    };
    writeln!(std::io::stdout(), "{answer}").context("cannot print the answer")
}

/// A container of the driver.
struct Seen {
    summary: Summary,
    tags: TagFile,
    claim: Tags,
}

/// Containers that the driver made.
async fn ours(engine: &Engine) -> anyhow::Result<Vec<Seen>> {
    let mut found = Vec::new();
    for summary in engine.containers(&[]).await? {
        if summary.labels.contains_key(INSTANCE) {
            let tags = tag_file(engine, &summary).await?;
            let claim = claim(engine, &summary).await?;
            found.push(Seen { summary, tags, claim });
        }
    }
    Ok(found)
}

/// All tags: labels, then what the file says.
fn tags_of(seen: &Seen) -> Tags {
    let mut tags = seen.summary.labels.clone();
    tags.extend(seen.claim.clone());
    tags.extend(seen.tags.container.clone());
    tags
}

async fn instances(engine: &Engine) -> anyhow::Result<Vec<Value>> {
    let mut shown = Vec::new();
    for seen in ours(engine).await? {
        let (tags, summary) = (tags_of(&seen), seen.summary);
        let tag = |key: &str| tags.get(key).cloned().unwrap_or_default();
        // An instance of a group has the identity of its pool.
        let of = |machine: &str, pool: &str| {
            tags.get(machine).or_else(|| tags.get(pool)).cloned().unwrap_or_default()
        };
        let path = user_data_path(&summary);
        let user_data = match &path {
            // A container that is being removed has no files any more.
            Some(path) => engine.read_file(&summary.id, path).await.ok().flatten(),
            None => None,
        };
        shown.push(json!({
            "providerId": provider_id(&summary.name),
            "name": of(MACHINE, POOL),
            "uid": of(UID, POOL_UID),
            "clusterId": tag(CLUSTER),
            "tags": tags,
            "userData": user_data.map(|bytes| STANDARD.encode(bytes)),
        }));
    }
    Ok(shown)
}

/// Where user data are, if they are in a file.
fn user_data_path(summary: &Summary) -> Option<String> {
    let spec: Value = serde_json::from_str(summary.labels.get(FIXED_SPEC)?).ok()?;
    let user_data: UserData = serde_json::from_value(spec.get("userData")?.clone()).ok()?;
    (user_data.delivery != Delivery::Environment).then_some(user_data.path)
}

async fn resources(engine: &Engine) -> anyhow::Result<Vec<Value>> {
    let mut shown = Vec::new();
    let mut files = BTreeMap::new();
    for seen in ours(engine).await? {
        let (tags, summary) = (tags_of(&seen), seen.summary);
        shown.push(resource(&provider_id(&summary.name), "instance", &tags));
        files.insert(summary.name, seen.tags);
    }
    let networks = parts(engine.networks(&[]).await?, &files, Resource::Network);
    let volumes = parts(engine.volumes(&[]).await?, &files, Resource::Volume);
    Ok(shown.into_iter().chain(networks).chain(volumes).collect())
}

fn parts(found: Vec<Part>, files: &BTreeMap<String, TagFile>, resource_: Resource) -> Vec<Value> {
    let kind = if resource_ == Resource::Network { "network" } else { "volume" };
    let ours = found.into_iter().filter_map(|part| {
        let instance = part.labels.get(INSTANCE)?.clone();
        let file = files.get(&instance);
        let mut tags = part.labels;
        tags.extend(file.map(|file| file.of(resource_).clone()).unwrap_or_default());
        // The tags of a part are in the file of its container.
        Some(resource(&format!("{}/{kind}/{}", provider_id(&instance), part.name), kind, &tags))
    });
    ours.collect()
}

fn resource(id: &str, kind: &str, tags: &Tags) -> Value {
    let tag = |key: &str| tags.get(key).cloned().unwrap_or_default();
    json!({ "id": id, "kind": kind, "uid": tag(UID), "clusterId": tag(CLUSTER), "tags": tags })
}

async fn add_foreign_tag(
    engine: &Engine,
    id: &str,
    (key, value): (String, String),
) -> anyhow::Result<()> {
    let (id, resource) = match id.rsplit_once("/network/").or_else(|| id.rsplit_once("/volume/")) {
        Some((instance, _)) if id.contains("/network/") => (instance, Resource::Network),
        Some((instance, _)) => (instance, Resource::Volume),
        None => (id, Resource::Container),
    };
    let container = instance_of(id).context("that is no id of this driver")?;
    let found = engine.container(container).await?.context("there is no such container")?;
    let mut file = tag_file(engine, &found.summary).await?;
    file.of_mut(resource).insert(key, value);
    let content = serde_json::to_vec_pretty(&file)?;
    let file = File { path: TAGS_FILE.to_owned(), mode: 0o644, content };
    engine.write_files(container, &[file]).await.context("cannot write the tags")
}
