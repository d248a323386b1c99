//! The format of user data. Pure.
//!
//! A text that begins with `#!` is a script, as for cloud-init; it is executed once and leaves a bootstrap kubeconfig. Anything
//! else is that kubeconfig.

use kube::config::{Cluster, Kubeconfig};

/// As much as the core sends.
pub(crate) const LONGEST: u64 = 256 * 1024;

/// User data, understood.
#[derive(Debug)]
pub(crate) enum UserData {
    /// To be executed.
    Script,
    /// To join with.
    Kubeconfig(Box<Bootstrap>),
}

/// A kubeconfig that a machine can join with.
pub(crate) struct Bootstrap {
    kubeconfig: Kubeconfig,
}

impl std::fmt::Debug for Bootstrap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Bootstrap(…)")
    }
}

/// Why a machine cannot join with its user data. Never quotes the user data: they hold a credential.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadUserData {
    #[error(
        "the user data are empty: give the machine a bootstrap kubeconfig, or a script that writes one"
    )]
    Empty,
    #[error("the user data are longer than {LONGEST} bytes")]
    TooLong,
    #[error("the user data are no UTF-8 text")]
    NotText,
    #[error(
        "the user data begin with `#cloud-config`, which is not understood here: give a kubeconfig or a script (#!)"
    )]
    CloudConfig,
    #[error("the user data still name {0}: replace it by a value before they are applied")]
    Placeholder(String),
    #[error("the user data are neither a script (#!) nor a kubeconfig in YAML")]
    NotKubeconfig,
    #[error("the bootstrap kubeconfig lacks {0}")]
    Lacks(&'static str),
}

impl UserData {
    /// Understands `bytes`.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, BadUserData> {
        if bytes.starts_with(b"#!") {
            return Ok(Self::Script);
        }
        Bootstrap::read(bytes).map(|bootstrap| Self::Kubeconfig(Box::new(bootstrap)))
    }
}

impl Bootstrap {
    /// Understands a kubeconfig.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, BadUserData> {
        if u64::try_from(bytes.len()).map_or(true, |length| length > LONGEST) {
            return Err(BadUserData::TooLong);
        }
        let text = std::str::from_utf8(bytes).map_err(|_| BadUserData::NotText)?;
        if text.trim().is_empty() {
            return Err(BadUserData::Empty);
        }
        if text.starts_with("#cloud-config") {
            return Err(BadUserData::CloudConfig);
        }
        if let Some(name) = placeholder(text) {
            return Err(BadUserData::Placeholder(name.to_owned()));
        }
        let kubeconfig = Kubeconfig::from_yaml(text).map_err(|_| BadUserData::NotKubeconfig)?;
        let cluster = current_cluster(&kubeconfig).ok_or(BadUserData::Lacks(
            "a current-context that names one of its contexts, and that one a cluster",
        ))?;
        if cluster.server.as_ref().is_none_or(String::is_empty) {
            return Err(BadUserData::Lacks("clusters[].cluster.server"));
        }
        if cluster.certificate_authority_data.is_none() && cluster.certificate_authority.is_none() {
            return Err(BadUserData::Lacks("clusters[].cluster.certificate-authority-data"));
        }
        if !has_credential(&kubeconfig) {
            return Err(BadUserData::Lacks("users[].user.token (or a client certificate)"));
        }
        Ok(Self { kubeconfig })
    }

    /// For the client that joins.
    pub(crate) fn kubeconfig(&self) -> Kubeconfig {
        self.kubeconfig.clone()
    }

    /// The cluster that is joined.
    pub(crate) fn cluster(&self) -> Option<Cluster> {
        current_cluster(&self.kubeconfig).cloned()
    }
}

fn current_cluster(kubeconfig: &Kubeconfig) -> Option<&Cluster> {
    let current = kubeconfig.current_context.as_ref()?;
    let context = kubeconfig.contexts.iter().find(|it| it.name == *current)?.context.as_ref()?;
    kubeconfig.clusters.iter().find(|it| it.name == context.cluster)?.cluster.as_ref()
}

fn has_credential(kubeconfig: &Kubeconfig) -> bool {
    kubeconfig.auth_infos.iter().filter_map(|it| it.auth_info.as_ref()).any(|user| {
        user.token.is_some()
            || user.token_file.is_some()
            || user.client_certificate.is_some()
            || user.client_certificate_data.is_some()
    })
}

/// The first `<<NAME>>` in the text.
fn placeholder(text: &str) -> Option<&str> {
    let (start, _) = text.match_indices("<<").find(|(at, _)| {
        let name = text.get(at + 2..).and_then(|rest| rest.split_once(">>")).map(|(name, _)| name);
        name.is_some_and(|name| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c == '_')
        })
    })?;
    let rest = text.get(start..)?;
    let end = rest.find(">>")? + 2;
    rest.get(..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "apiVersion: v1
kind: Config
clusters:
- {name: c, cluster: {server: 'https://172.17.0.1:6443', certificate-authority-data: Y2E=}}
users:
- {name: u, user: {token: abcdef.0123456789abcdef}}
contexts:
- {name: x, context: {cluster: c, user: u}}
current-context: x
";

    fn bad(text: &str) -> BadUserData {
        UserData::read(text.as_bytes()).unwrap_err()
    }

    #[test]
    fn a_script_is_a_script_and_anything_else_a_kubeconfig() {
        assert!(matches!(UserData::read(b"#!/bin/sh\n<<X>>").unwrap(), UserData::Script));
        let UserData::Kubeconfig(config) = UserData::read(GOOD.as_bytes()).unwrap() else {
            panic!("a kubeconfig");
        };
        assert_eq!(config.cluster().unwrap().server.unwrap(), "https://172.17.0.1:6443");
    }

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(bad(" \n"), BadUserData::Empty);
        assert_eq!(bad("#cloud-config\n"), BadUserData::CloudConfig);
        assert_eq!(UserData::read(&[0xff]).unwrap_err(), BadUserData::NotText);
        let long = " ".repeat(256 * 1024 + 1);
        assert_eq!(bad(&long), BadUserData::TooLong);
        let server = GOOD.replace("https://172.17.0.1:6443", "<<API_SERVER>>");
        assert_eq!(bad(&server), BadUserData::Placeholder("<<API_SERVER>>".to_owned()));
        for (part, field) in [
            ("current-context: x", "a current-context that"),
            (", certificate-authority-data: Y2E=", "clusters[].cluster.certificate"),
            ("server: 'https://172.17.0.1:6443', ", "clusters[].cluster.server"),
            ("token: abcdef.0123456789abcdef", "users[].user.token"),
        ] {
            let BadUserData::Lacks(what) = bad(&GOOD.replace(part, "")) else {
                panic!("{part}");
            };
            assert!(what.starts_with(field), "{what}");
        }
    }

    #[test]
    fn errors_and_debug_never_quote_a_token() {
        let broken = GOOD.replace("kind: Config", "kind: [");
        let shown = format!("{} {:?}", bad(&broken), UserData::read(GOOD.as_bytes()).unwrap());
        assert!(!shown.contains("0123456789abcdef"), "{shown}");
    }
}
