//! The files that a node keeps over restarts: its kubeconfig, its key with the certificate, and a key that waits for a
//! certificate.
//!
//! Every file is written beside its place and renamed, so that a killed machine has the old file or the new one.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use kube::config::{
    AuthInfo, Cluster, Context, Kubeconfig, KubeconfigError, NamedAuthInfo, NamedCluster,
    NamedContext,
};

use super::request::Pending;

/// Larger files are none of ours.
const LARGEST: u64 = 1024 * 1024;
const KEY_BEGIN: &str = "-----BEGIN PRIVATE KEY-----";

/// The directory that is kept.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    dir: PathBuf,
}

/// A certificate and its key, both PEM.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) chain: String,
    pub(crate) key: String,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Identity(…)")
    }
}

/// Why something cannot be kept or found again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    #[error("{} cannot be used", path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("the kubeconfig that was kept cannot be used")]
    Kubeconfig(#[from] KubeconfigError),
    #[error("the kubeconfig cannot be written down")]
    Object(#[from] serde_json::Error),
}

impl Store {
    /// Uses the directory, which is made if it is not there.
    pub(crate) fn open(dir: &Path) -> Result<Self, StoreError> {
        let store = Self { dir: dir.to_owned() };
        for path in [dir.to_owned(), store.path("pki")] {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&path)
                .map_err(|source| StoreError::File { path, source })?;
        }
        Ok(store)
    }

    /// The identity from the last join; `None`: the node has not joined.
    pub(crate) fn identity(&self) -> Result<Option<Identity>, StoreError> {
        let Some(text) = self.read("pki/client.pem")? else { return Ok(None) };
        Ok(text.find(KEY_BEGIN).map(|at| {
            let (chain, key) = text.split_at(at);
            Identity { chain: chain.to_owned(), key: key.to_owned() }
        }))
    }

    /// The kubeconfig, if one was kept.
    pub(crate) fn kubeconfig(&self) -> Result<Option<Kubeconfig>, StoreError> {
        match self.read("kubeconfig")? {
            Some(text) => Ok(Some(Kubeconfig::from_yaml(&text)?)),
            None => Ok(None),
        }
    }

    /// Keeps where the cluster is. The credential in it is the file of [`Self::keep_identity`].
    pub(crate) fn keep_cluster(&self, cluster: Cluster) -> Result<(), StoreError> {
        let pem = self.path("pki/client.pem").display().to_string();
        let user = AuthInfo {
            client_certificate: Some(pem.clone()),
            client_key: Some(pem),
            ..AuthInfo::default()
        };
        let context = Context {
            cluster: "default".to_owned(),
            user: Some("node".to_owned()),
            ..Context::default()
        };
        let kubeconfig = Kubeconfig {
            api_version: Some("v1".to_owned()),
            kind: Some("Config".to_owned()),
            clusters: vec![NamedCluster {
                name: "default".to_owned(),
                cluster: Some(cluster),
                ..NamedCluster::default()
            }],
            auth_infos: vec![NamedAuthInfo {
                name: "node".to_owned(),
                auth_info: Some(user),
                ..NamedAuthInfo::default()
            }],
            contexts: vec![NamedContext {
                name: "default".to_owned(),
                context: Some(context),
                ..NamedContext::default()
            }],
            current_context: Some("default".to_owned()),
            ..Kubeconfig::default()
        };
        // JSON is YAML.
        self.write("kubeconfig", &serde_json::to_string_pretty(&kubeconfig)?)
    }

    /// Keeps certificate and key, in place of older ones; the key waits no more.
    pub(crate) fn keep_identity(&self, identity: &Identity) -> Result<(), StoreError> {
        let text = format!("{}\n{}", identity.chain.trim_end(), identity.key);
        self.write("pki/client.pem", &text)?;
        self.drop_pending()
    }

    /// The key that waits for a certificate.
    pub(super) fn pending(&self) -> Result<Option<Pending>, StoreError> {
        Ok(self.read("pki/pending.pem")?.as_deref().and_then(Pending::from_pem))
    }

    /// Keeps a key before its request is sent.
    pub(super) fn keep_pending(&self, pending: &Pending) -> Result<(), StoreError> {
        self.write("pki/pending.pem", &pending.as_pem())
    }

    /// Forgets the key that waits.
    pub(super) fn drop_pending(&self) -> Result<(), StoreError> {
        self.remove("pki/pending.pem")
    }

    /// Puts the script of the user data where it can be executed; returns the path.
    pub(crate) fn keep_script(&self, script: &[u8]) -> Result<PathBuf, StoreError> {
        let path = self.path("user-data.script");
        match write_whole(&path, script, 0o700) {
            Ok(()) => Ok(path),
            Err(source) => Err(StoreError::File { path, source }),
        }
    }

    /// Takes it away again.
    pub(crate) fn drop_script(&self) -> Result<(), StoreError> {
        self.remove("user-data.script")
    }

    /// Whether the script of the user data was executed to its end.
    pub(crate) fn script_done(&self) -> bool {
        self.path("user-data.done").exists()
    }

    /// Notes that the script of the user data has run.
    pub(crate) fn note_script_done(&self) -> Result<(), StoreError> {
        self.write("user-data.done", "")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn read(&self, name: &str) -> Result<Option<String>, StoreError> {
        let path = self.path(name);
        read_bounded(&path).map_err(|source| StoreError::File { path, source })
    }

    fn remove(&self, name: &str) -> Result<(), StoreError> {
        let path = self.path(name);
        match fs::remove_file(&path) {
            Err(source) if source.kind() != ErrorKind::NotFound => {
                Err(StoreError::File { path, source })
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn write(&self, name: &str, text: &str) -> Result<(), StoreError> {
        let path = self.path(name);
        write_whole(&path, text.as_bytes(), 0o600)
            .map_err(|source| StoreError::File { path, source })
    }
}

fn read_bounded(path: &Path) -> std::io::Result<Option<String>> {
    match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
        Ok(found) if found.len() > LARGEST => Err(ErrorKind::FileTooLarge.into()),
        Ok(_) => fs::read_to_string(path).map(Some),
    }
}

fn write_whole(path: &Path, bytes: &[u8], mode: u32) -> std::io::Result<()> {
    let beside = path.with_extension("new");
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    match path.parent() {
        Some(dir) => fs::File::open(dir)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::super::certificate::tests::signed;
    use super::*;

    #[test]
    fn what_is_kept_is_found_again_and_nobody_else_can_read_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        let store = Store::open(&path).unwrap();
        assert!(store.identity().unwrap().is_none() && store.kubeconfig().unwrap().is_none());
        let pending = Pending::new("n").unwrap();
        store.keep_pending(&pending).unwrap();

        let store = Store::open(&path).unwrap();
        assert_eq!(store.pending().unwrap(), Some(pending));
        let (chain, key) = signed("system:node:n");
        store.keep_identity(&Identity { chain: chain.clone(), key: key.clone() }).unwrap();
        assert_eq!(store.pending().unwrap(), None, "it waits no more");
        let found = store.identity().unwrap().unwrap();
        assert_eq!((found.chain.trim(), found.key.trim()), (chain.trim(), key.trim()));
        for name in ["pki", "pki/client.pem"] {
            let mode = fs::metadata(path.join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o077, 0, "{name}");
        }
    }

    #[test]
    fn the_kubeconfig_names_the_cluster_and_the_files_of_the_node() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let server = Some("https://172.17.0.1:6443".to_owned());
        store.keep_cluster(Cluster { server: server.clone(), ..Cluster::default() }).unwrap();
        let kept = store.kubeconfig().unwrap().unwrap();
        assert_eq!(kept.clusters[0].cluster.as_ref().unwrap().server, server);
        let user = kept.auth_infos[0].auth_info.as_ref().unwrap();
        let pem = dir.path().join("pki/client.pem").display().to_string();
        assert_eq!(user.client_certificate.as_ref(), Some(&pem));
        assert_eq!(user.client_key, Some(pem));
        assert!(user.token.is_none());
    }

    #[test]
    fn what_was_cut_off_counts_as_nothing_and_a_script_is_done_once() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        fs::write(dir.path().join("pki/pending.pem"), "-----BEGIN").unwrap();
        fs::write(dir.path().join("pki/client.pem"), "-----BEGIN CERT").unwrap();
        assert_eq!(store.pending().unwrap(), None);
        assert_eq!(store.identity().unwrap(), None);
        assert!(!store.script_done());
        store.note_script_done().unwrap();
        assert!(store.script_done());
    }
}
