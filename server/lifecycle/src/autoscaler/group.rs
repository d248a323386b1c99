//! The scaling groups of autoscalers, their ids and their members.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use ostler_api::machine::MachineSpec;
use ostler_api::names::{MACHINE_DEPLOYMENT, MACHINE_POOL};
use ostler_api::{Machine, MachineDeployment, MachinePool};

use super::limits::{Limits, limits};

/// A deployment or a pool.
#[derive(Debug, Clone, PartialEq)]
pub enum Group {
    /// A MachineDeployment.
    Deployment(Arc<MachineDeployment>),
    /// A MachinePool.
    Pool(Arc<MachinePool>),
}

/// The name of a group: `MachineDeployment/<namespace>/<name>`, or `MachinePool/…`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupId {
    /// `MachineDeployment` or `MachinePool`.
    pub kind: &'static str,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl GroupId {
    /// Reads an id; `None`: not an id of ours.
    pub fn read(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let kind = match parts.next()? {
            MACHINE_DEPLOYMENT => MACHINE_DEPLOYMENT,
            MACHINE_POOL => MACHINE_POOL,
            _ => return None,
        };
        let (namespace, name) = (parts.next()?.to_owned(), parts.next()?.to_owned());
        parts.next().is_none().then_some(Self { kind, namespace, name })
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.kind, self.namespace, self.name)
    }
}

impl Group {
    /// Its id.
    pub fn id(&self) -> GroupId {
        let (kind, meta) = match self {
            Self::Deployment(it) => (MACHINE_DEPLOYMENT, &it.metadata),
            Self::Pool(it) => (MACHINE_POOL, &it.metadata),
        };
        let text = |it: &Option<String>| it.clone().unwrap_or_default();
        GroupId { kind, namespace: text(&meta.namespace), name: text(&meta.name) }
    }

    /// Its metadata.
    pub fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Deployment(it) => &it.metadata,
            Self::Pool(it) => &it.metadata,
        }
    }

    /// How many Machines there are to be.
    pub fn replicas(&self) -> i32 {
        match self {
            Self::Deployment(it) => it.spec.replicas(),
            Self::Pool(it) => it.replicas(),
        }
    }

    /// The template of the group's Machines.
    pub fn template(&self) -> &MachineSpec {
        match self {
            Self::Deployment(it) => &it.spec.template.spec,
            Self::Pool(it) => &it.spec.template.spec,
        }
    }

    /// The size limits; `None`: no autoscaler scales the group. A group in deletion has none, nor has a pool that is
    /// paused or scaled by another system: a change would have no effect.
    pub fn limits(&self) -> Option<Limits> {
        let still = match self {
            Self::Deployment(it) => it.is_deleting(),
            Self::Pool(it) => it.is_deleting() || it.is_paused() || it.is_externally_scaled(),
        };
        if still { None } else { limits(self.meta()).ok().flatten() }
    }

    /// An annotation of the group.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.meta().annotations.as_ref()?.get(key).map(String::as_str)
    }
}

/// Prefix of ids without a provider id.
const SCHEME: &str = "ostler://";

/// The id of a Machine whose instance has none yet. The id stays valid once the instance has a
/// provider id.
pub fn placeholder(machine: &Machine) -> String {
    let namespace = machine.namespace();
    format!("{SCHEME}{namespace}/{}", machine.name())
}

/// The id of a Machine that the pool lacks, counted from 0.
pub fn missing(pool: &MachinePool, at: i32) -> String {
    let namespace = pool.namespace();
    format!("{SCHEME}{namespace}/{}#{at}", pool.name())
}

/// The subject of a placeholder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placeholder {
    /// The Machine of that namespace and name.
    Machine(String, String),
    /// A Machine that the pool of this namespace and name lacks.
    Missing(String, String, i32),
}

impl Placeholder {
    /// Reads an id; `None`: not an id of ours.
    pub fn read(text: &str) -> Option<Self> {
        let (namespace, name) = text.strip_prefix(SCHEME)?.split_once('/')?;
        match name.split_once('#') {
            None => Some(Self::Machine(namespace.to_owned(), name.to_owned())),
            Some((pool, at)) => {
                let at = at.parse().ok().filter(|at| *at >= 0)?;
                Some(Self::Missing(namespace.to_owned(), pool.to_owned(), at))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ids_are_read_as_they_are_written() {
        for text in ["MachineDeployment/a/b", "MachinePool/a/b"] {
            assert_eq!(GroupId::read(text).unwrap().to_string(), text);
        }
        for text in ["", "MachineSet/a/b", "MachinePool/a", "MachinePool/a/b/c", "a/b"] {
            assert_eq!(GroupId::read(text), None, "{text}");
        }
    }

    #[test]
    fn placeholders_are_read_as_they_are_written() {
        let meta = json!({ "name": "n", "namespace": "a" });
        let machine: Machine = serde_json::from_value(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine", "metadata": meta, "spec": {}
        }))
        .unwrap();
        let pool: MachinePool = serde_json::from_value(json!({
            "apiVersion": "ostler.dev/v1alpha1", "kind": "MachinePool", "metadata": meta,
            "spec": { "template": {} }
        }))
        .unwrap();
        let (a, n) = (|| "a".to_owned(), || "n".to_owned());
        let read = Placeholder::read(&placeholder(&machine));
        assert_eq!(read, Some(Placeholder::Machine(a(), n())));
        let read = Placeholder::read(&missing(&pool, 2));
        assert_eq!(read, Some(Placeholder::Missing(a(), n(), 2)));
        for text in ["aws:///a/n", "ostler://n", "ostler://a/n#x", "ostler://a/n#-1"] {
            assert_eq!(Placeholder::read(text), None, "{text}");
        }
    }
}
