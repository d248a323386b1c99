//! MachineClass and Secret manifests, as kubectl takes them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ostler_proto::v1alpha1::MachineShape;
use serde_json::Value;
use thiserror::Error;

use crate::core::library::{ClassContent, SecretData};

/// Why a manifest cannot be used.
#[derive(Debug, Error)]
pub enum ManifestError {
    /// The file cannot be read.
    #[error("{} cannot be read", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The text is no YAML and no JSON.
    #[error("it is no YAML: {0}")]
    Yaml(String),
    /// There is no object of the kind in it.
    #[error("it holds no {kind}")]
    Missing {
        /// `MachineClass` or `Secret`.
        kind: &'static str,
    },
    /// A value of the secret is not base64.
    #[error("data.{key} of the secret is not base64")]
    Base64 {
        /// The key.
        key: String,
    },
}

/// A MachineClass: the provider spec and what goes with it.
#[derive(Debug, Clone)]
pub struct ClassManifest {
    pub(crate) content: ClassContent,
    /// Empty if it names none.
    pub(crate) provider: String,
}

impl ClassManifest {
    /// Reads the first MachineClass of a file.
    pub fn read(path: &Path) -> Result<Self, ManifestError> {
        Self::parse(&text(path)?)
    }

    /// Reads the first MachineClass of a text.
    pub fn parse(text: &str) -> Result<Self, ManifestError> {
        let object = object(text, "MachineClass")?;
        let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
        let labels = labels.into_iter().flatten();
        let spec = object.get("providerSpec").cloned().unwrap_or_else(|| serde_json::json!({}));
        let content = ClassContent {
            provider_spec_json: spec.to_string(),
            labels: labels.map(|(key, value)| (key.clone(), plain(value))).collect(),
            shape: object.get("nodeTemplate").map(shape),
        };
        let provider = object.get("provider").map(plain).unwrap_or_default();
        Ok(Self { content, provider })
    }

    /// A class of this provider spec (JSON text).
    pub fn of_spec(provider_spec_json: impl Into<String>) -> Self {
        let provider_spec_json = provider_spec_json.into();
        let content = ClassContent { provider_spec_json, ..ClassContent::default() };
        Self { content, provider: String::new() }
    }
}

/// A Secret. Never printed.
#[derive(Clone)]
pub struct SecretManifest {
    pub(crate) data: SecretData,
    pub(crate) user_data: Option<Vec<u8>>,
}

impl std::fmt::Debug for SecretManifest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SecretManifest(<{} keys>)", self.data.len())
    }
}

impl SecretManifest {
    /// Reads the first Secret of a file.
    pub fn read(path: &Path) -> Result<Self, ManifestError> {
        Self::parse(&text(path)?)
    }

    /// Reads the first Secret of a text.
    pub fn parse(text: &str) -> Result<Self, ManifestError> {
        let object = object(text, "Secret")?;
        let mut data = BTreeMap::new();
        for (key, value) in object.get("data").and_then(Value::as_object).into_iter().flatten() {
            let decoded = STANDARD.decode(plain(value));
            let decoded = decoded.map_err(|_| ManifestError::Base64 { key: key.clone() })?;
            data.insert(key.clone(), decoded);
        }
        let plain_data = object.get("stringData").and_then(Value::as_object);
        for (key, value) in plain_data.into_iter().flatten() {
            data.insert(key.clone(), plain(value).into_bytes());
        }
        Ok(Self::of_data(data))
    }

    /// A secret of this content.
    pub fn of_data(data: impl IntoIterator<Item = (String, Vec<u8>)>) -> Self {
        let mut data: SecretData = data.into_iter().collect();
        // To drivers user data comes with each machine, never with the secret.
        let user_data = data.remove("userData");
        Self { data, user_data }
    }
}

fn text(path: &Path) -> Result<String, ManifestError> {
    std::fs::read_to_string(path)
        .map_err(|source| ManifestError::File { path: path.to_owned(), source })
}

fn object(text: &str, kind: &'static str) -> Result<Value, ManifestError> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text)
        .map_err(|error| ManifestError::Yaml(error.to_string()))?;
    let is_wanted = |object: &Value| object.get("kind").and_then(Value::as_str) == Some(kind);
    documents.into_iter().find(is_wanted).ok_or(ManifestError::Missing { kind })
}

fn shape(template: &Value) -> MachineShape {
    let word = |key: &str| template.get(key).map(plain).unwrap_or_default();
    let capacity = template.get("capacity").and_then(Value::as_object).into_iter().flatten();
    MachineShape {
        capacity: capacity.map(|(key, value)| (key.clone(), plain(value))).collect(),
        instance_type: word("instanceType"),
        region: word("region"),
        zone: word("zone"),
        architecture: word("architecture"),
    }
}

/// A value as people would write it.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {a: eA==}\n\
        stringData: {b: yes!, userData: boot}\n---\nkind: MachineClass\n\
        metadata: {name: c, labels: {l: v}}\nprovider: p\nproviderSpec: {big: 9007199254740993}\n\
        nodeTemplate: {capacity: {cpu: 4}, zone: z}\n";

    #[test]
    fn a_class_and_its_secret_may_stand_in_one_file() {
        let class = ClassManifest::parse(TWO).unwrap().content;
        assert_eq!(class.provider_spec_json, r#"{"big":9007199254740993}"#);
        assert_eq!(class.labels.get("l").unwrap(), "v");
        let shape = class.shape.unwrap();
        assert_eq!((shape.zone.as_str(), shape.capacity.get("cpu").unwrap().as_str()), ("z", "4"));
        let secret = SecretManifest::parse(TWO).unwrap();
        assert_eq!(secret.data.get("a").unwrap(), b"x");
        assert_eq!(secret.data.get("b").unwrap(), b"yes!");
        assert_eq!(secret.user_data.unwrap(), b"boot");
    }

    #[test]
    fn what_is_missing_is_named() {
        let error = ClassManifest::parse("kind: Secret\ndata: {}\n").unwrap_err().to_string();
        assert_eq!(error, "it holds no MachineClass");
        let error = SecretManifest::parse("kind: Secret\ndata: {k: '%'}\n").unwrap_err();
        assert!(error.to_string().contains("data.k"), "{error}");
    }
}
