//! The owner of a container, and its name.

/// Labels and tags: cluster, name and UID of the Machine.
pub use ostler_driver_sdk::identity::{
    CLUSTER_TAG as CLUSTER, Identity, MACHINE_TAG as MACHINE, POOL_TAG as POOL,
    POOL_UID_TAG as POOL_UID, PoolIdentity, UID_TAG as UID,
};
use sha2::{Digest as _, Sha256};

/// Label of everything that is made for a machine: name of its container.
pub const INSTANCE: &str = "docker.ostler.dev/instance";
/// Label of everything that is made for a group: name of the container that stands for it.
pub(crate) const GROUP: &str = "docker.ostler.dev/group";
/// Label of an instance of a group: what tells it from the others.
pub(crate) const NUMBER: &str = "docker.ostler.dev/number";
/// Label of an instance of a group: the model that it was made from.
pub(crate) const MODEL: &str = "ostler.dev/model";
/// Label of a container: what of its spec is fixed, JSON.
pub(crate) const FIXED_SPEC: &str = "docker.ostler.dev/fixed-spec";

/// Provider ids begin so.
const SCHEME: &str = "docker:///";
/// So much of the name of a machine is in the name of its container.
const LEGIBLE: usize = 40;
/// Longest host name.
const HOST_NAME: usize = 63;
/// Hexadecimal digits of a digest in a name.
const DIGITS: usize = 20;

/// Name of the container that is made for a machine. Two identities never have the same: a digest of cluster and UID is in
/// it. The name of the machine is there for people.
pub fn instance_name(identity: &Identity) -> String {
    let Identity { cluster_id, machine_name, machine_uid } = identity;
    named(machine_name, &[cluster_id, machine_uid])
}

/// Name of the container that stands for the group of a pool.
pub(crate) fn group_name(identity: &PoolIdentity) -> String {
    let PoolIdentity { cluster_id, pool_name, pool_uid } = identity;
    named(pool_name, &[cluster_id, pool_uid, "group"])
}

/// Name of the container of an instance: no other one of its group gets it, and none of a group of the same name that
/// comes later, since the engine gives the container that stands for that another id.
pub(crate) fn member_name(node: &str, group_id: &str, number: u64) -> String {
    named(node, &[group_id, &number.to_string()])
}

fn named(text: &str, identity: &[&str]) -> String {
    let (legible, digest) = (legible(text), digest(identity));
    if legible.is_empty() { format!("machine-{digest}") } else { format!("{legible}-{digest}") }
}

/// The provider id of a container.
pub fn provider_id(instance: &str) -> String {
    format!("{SCHEME}{instance}")
}

/// The container that a provider id names; `None` if it is the id of something else.
pub(crate) fn instance_of(provider_id: &str) -> Option<&str> {
    let name = provider_id.strip_prefix(SCHEME)?;
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    // Docker would take the beginning of an id, or a path, for something else.
    (!name.is_empty() && name.len() <= 128 && name.chars().all(fits)).then_some(name)
}

/// The host name of a machine: its own name, or as much of it as fits and a digest.
pub fn host_name(machine_name: &str) -> String {
    if machine_name.len() <= HOST_NAME {
        return machine_name.to_owned();
    }
    let head: String = machine_name.chars().take(HOST_NAME - DIGITS - 1).collect();
    format!("{}-{}", head.trim_end_matches(['-', '.']), digest(&[machine_name]))
}

/// The beginning of a name, of letters that a container may have in its name.
fn legible(name: &str) -> String {
    let fits = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
    let head: String = name.chars().filter(fits).take(LEGIBLE).collect();
    head.trim_matches(['-', '.']).to_owned()
}

/// Each text counts with its length, so that no two lists of texts are alike.
fn digest(texts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for text in texts {
        hash.update(text.len().to_le_bytes());
        hash.update(text);
    }
    format!("{:.DIGITS$}", hex::encode(hash.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(cluster: &str, name: &str, uid: &str) -> Identity {
        Identity {
            cluster_id: cluster.to_owned(),
            machine_name: name.to_owned(),
            machine_uid: uid.to_owned(),
        }
    }

    #[test]
    fn every_identity_has_a_name_of_its_own_and_always_the_same() {
        let one = identity("c", "worker-1", "u");
        assert_eq!(instance_name(&one), instance_name(&identity("c", "worker-1", "u")));
        assert!(instance_name(&one).starts_with("worker-1-"), "{}", instance_name(&one));
        for other in [
            identity("d", "worker-1", "u"),
            identity("c", "worker-1", "v"),
            identity("cu", "worker-1", ""),
        ] {
            assert_ne!(instance_name(&one), instance_name(&other), "{other:?}");
        }
    }

    #[test]
    fn names_fit_into_docker_however_long_the_machine_is_called() {
        for name in
            ["x".repeat(253), "ü".to_owned(), String::new(), format!("{}.b", "a".repeat(39))]
        {
            let instance = instance_name(&identity("c", &name, "u"));
            assert!(instance.len() <= 63, "{instance}");
            assert!(instance.starts_with(|c: char| c.is_ascii_alphanumeric()), "{instance}");
            assert_eq!(instance_of(&provider_id(&instance)), Some(instance.as_str()));
        }
    }

    #[test]
    fn host_names_that_are_cut_stay_apart() {
        assert_eq!(host_name("worker-1"), "worker-1");
        let long = "x".repeat(70);
        let (one, two) = (host_name(&format!("{long}1")), host_name(&format!("{long}2")));
        assert_ne!(one, two);
        assert!(one.len() <= 63 && two.len() <= 63);
    }

    #[test]
    fn what_is_no_provider_id_of_ours_names_no_container() {
        for id in [
            "",
            "aws:///eu/i-1",
            "docker:///",
            "docker:///a/b",
            "docker:///a?b",
            &provider_id(&"x".repeat(200)),
        ] {
            assert_eq!(instance_of(id), None, "{id}");
        }
    }
}
