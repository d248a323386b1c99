//! The cloud of the example: a JSON file, which outlives the driver. Your infrastructure takes its place.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// An instance. The write that makes an instance tags it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Server {
    pub(crate) id: String,
    pub(crate) cluster: String,
    pub(crate) uid: String,
    pub(crate) name: String,
    /// The spec of the instance.
    pub(crate) spec: crate::Spec,
    pub(crate) tags: BTreeMap<String, String>,
    /// In base64.
    pub(crate) user_data: String,
    pub(crate) ready_at: SystemTime,
    pub(crate) initialized: bool,
}

/// All there is.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Cloud {
    pub(crate) servers: Vec<Server>,
    changes: u64,
    /// So many changes more until it answers nothing.
    left: Option<u64>,
}

impl Server {
    pub(crate) fn boots_for(&self) -> Duration {
        self.ready_at.duration_since(SystemTime::now()).unwrap_or_default()
    }
}

pub(crate) fn encoded(user_data: &[u8]) -> String {
    STANDARD.encode(user_data)
}

/// The answer of the cloud, and the change.
pub(crate) fn ask<T>(act: impl FnOnce(&mut Cloud) -> T) -> io::Result<T> {
    open(|cloud| {
        if cloud.left == Some(0) {
            return Err(io::Error::new(
                io::ErrorKind::ConnectionRefused,
                "the cloud does not answer",
            ));
        }
        let before = serde_json::to_string(&cloud.servers)?;
        let answer = act(cloud);
        if serde_json::to_string(&cloud.servers)? != before {
            cloud.changes += 1;
            cloud.left = cloud.left.map(|left| left - 1);
        }
        Ok(answer)
    })
}

fn open<T>(act: impl FnOnce(&mut Cloud) -> io::Result<T>) -> io::Result<T> {
    let path = std::env::var_os("CLOUD_FILE").map_or_else(|| "cloud.data".into(), PathBuf::from);
    let lock = File::create(path.with_extension("lock"))?;
    lock.lock()?;
    let text = fs::read_to_string(&path).unwrap_or_default();
    let mut cloud =
        if text.is_empty() { Cloud::default() } else { serde_json::from_str::<Cloud>(&text)? };
    let answer = act(&mut cloud)?;
    let new = path.with_extension("new");
    fs::write(&new, serde_json::to_string(&cloud)?)?;
    fs::rename(new, path)?;
    Ok(answer)
}

/// Shows the suite what is really there: "Reading the cloud" in sdk/conformance/README.md.
pub(crate) fn probe(words: &[String]) -> io::Result<()> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let answer = open(|cloud| match words.as_slice() {
        ["instances"] => Ok(json!(cloud.servers.iter().map(shown).collect::<Vec<_>>())),
        ["resources"] => Ok(json!(cloud.servers.iter().map(part).collect::<Vec<_>>())),
        ["journal-length"] => Ok(json!(cloud.changes)),
        ["add-foreign-tag", id, tag] => {
            let (key, value) = tag.split_once('=').unwrap_or_default();
            for server in cloud.servers.iter_mut().filter(|it| it.id == *id) {
                server.tags.insert(key.to_owned(), value.to_owned());
            }
            Ok(json!(null))
        }
        ["remove-instance", id] => {
            cloud.servers.retain(|it| it.id != *id);
            Ok(json!(null))
        }
        ["break", how @ ..] => {
            cloud.left = match how {
                ["off"] => None,
                ["after", changes] => Some(changes.parse().map_err(io::Error::other)?),
                _ => Some(0),
            };
            Ok(json!(null))
        }
        _ => Err(io::Error::other("a word that probe does not know")),
    })?;
    writeln!(io::stdout(), "{answer}")
}

fn shown(it: &Server) -> serde_json::Value {
    json!({"providerId": it.id, "name": it.name, "uid": it.uid, "clusterId": it.cluster, "tags": it.tags,
        "userData": it.user_data})
}

fn part(it: &Server) -> serde_json::Value {
    json!({"id": it.id, "kind": "instance", "uid": it.uid, "clusterId": it.cluster})
}
