//! The cluster that a person means, and what is said if its API server does not answer.

use std::fmt::Debug;
use std::io::{self, ErrorKind};
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use http::Uri;
use kube::api::{Api, ListParams};
use kube::config::Kubeconfig;
use kube::core::NamespaceResourceScope;
use kube::{Client, Config, Resource};
use ostler_dial::{DialError, cluster};
use serde::de::DeserializeOwned;

/// What a command for people logs: that a request failed is said by the command itself.
pub(crate) const LOGGED: &str = "warn,kube_client::client::builder=off";

/// Of the `ostler up` of this folder.
const HERE: &str = "./.ostler/kubeconfig";

/// The cluster and the namespace that a person means.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Place {
    /// The kubeconfig of the cluster with the machines
    ///
    /// Without it: $KUBECONFIG, else that of the `ostler up` of this folder, else kubectl's own. As `kubectl ostler`:
    /// kubectl's default.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig; its current one by default
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// The namespace; the one of the kubeconfig by default
    #[arg(long, short, global = true)]
    pub(crate) namespace: Option<String>,
}

impl Place {
    /// The file that is read, unless it is kubectl's own.
    fn file(&self) -> Option<PathBuf> {
        let here = || {
            let here = PathBuf::from(HERE);
            (!is_plugin() && std::env::var_os("KUBECONFIG").is_none() && here.exists())
                .then_some(here)
        };
        self.kubeconfig.clone().or_else(here)
    }

    /// How to reach it, with the namespace as the default one.
    pub(crate) async fn config(&self) -> anyhow::Result<Config> {
        let mut config = config(self.file(), self.context.as_deref()).await?;
        if let Some(namespace) = &self.namespace {
            config.default_namespace.clone_from(namespace);
        }
        Ok(config)
    }

    /// The data directory of the `ostler up` that wrote the kubeconfig; `None`: no `ostler up` wrote the kubeconfig.
    pub(crate) fn home(&self) -> Option<PathBuf> {
        let of_environment = || std::env::var_os("KUBECONFIG").map(PathBuf::from);
        let file = self.file().or_else(of_environment)?;
        Some(file.parent()?.to_owned()).filter(|dir| dir.join("admin.sock").exists())
    }
}

/// Whether kubectl started this program: as `kubectl ostler`.
pub(crate) fn is_plugin() -> bool {
    let name = std::env::args_os().next().map(PathBuf::from);
    name.is_some_and(|path| path.file_stem().is_some_and(|stem| stem == "kubectl-ostler"))
}

/// Does something in the cluster and namespace that a person means.
pub(crate) async fn within<T>(
    place: Place,
    act: impl AsyncFnOnce(Client, String) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let config = place.config().await?;
    let (address, namespace) = (config.cluster_url.clone(), config.default_namespace.clone());
    let client = cluster::client(config).context("the kubeconfig cannot be used")?;
    act(client, namespace).await.map_err(|error| told(error, &address))
}

/// All objects of a kind; none if the cluster does not have the kind. No namespace: those of all.
pub(crate) async fn list<K>(client: &Client, namespace: Option<&str>) -> kube::Result<Vec<K>>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned,
{
    let api = match namespace {
        Some(namespace) => Api::<K>::namespaced(client.clone(), namespace),
        None => Api::<K>::all(client.clone()),
    };
    match api.list(&ListParams::default()).await {
        Ok(list) => Ok(list.items),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// The cluster of a kubeconfig, or of kubectl's default.
async fn config(file: Option<PathBuf>, context: Option<&str>) -> anyhow::Result<Config> {
    let (mut kubeconfig, from) = match (file, context) {
        (None, None) => {
            return cluster::configured()
                .await
                .context("no cluster is configured; give --kubeconfig");
        }
        (None, Some(_)) => {
            let read = Kubeconfig::read().context("there is no kubeconfig; give --kubeconfig")?;
            (read, "the kubeconfig".to_owned())
        }
        (Some(path), _) => {
            let from = format!("--kubeconfig {}", path.display());
            let read = Kubeconfig::read_from(&path);
            (read.with_context(|| format!("{from} cannot be used"))?, from)
        }
    };
    if let Some(context) = context {
        let all: Vec<_> = kubeconfig.contexts.iter().map(|it| it.name.as_str()).collect();
        if !all.contains(&context) {
            bail!("{from} has no context {context}; it has {}", all.join(", "));
        }
        kubeconfig.current_context = Some(context.to_owned());
    }
    cluster::config(kubeconfig).await.with_context(|| format!("{from} cannot be used"))
}

/// An error with the address of an API server that cannot be reached, if that is the cause.
fn told(error: anyhow::Error, address: &Uri) -> anyhow::Error {
    use ErrorKind::{
        ConnectionRefused, ConnectionReset, HostUnreachable, NetworkUnreachable, TimedOut,
    };
    let kinds = [ConnectionRefused, ConnectionReset, HostUnreachable, NetworkUnreachable, TimedOut];
    let asked = error.chain().any(<dyn std::error::Error>::is::<kube::Error>);
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>());
    if !(asked && causes.any(|cause| kinds.contains(&cause.kind()))) {
        return error;
    }
    if error.chain().any(|cause| matches!(cause.downcast_ref(), Some(DialError::Through { .. }))) {
        return error.context(format!("no API server answers at {address}"));
    }
    error.context(format!(
        "no API server answers at {address}; is `ostler up` running, or the API server of the kubeconfig?"
    ))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use kube::Api;

    use super::*;

    #[tokio::test]
    async fn an_api_server_that_is_not_there_is_named_with_what_to_do() {
        let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr();
        let address: Uri = format!("http://{}/", closed.unwrap()).parse().unwrap();
        let nodes = Api::<Node>::all(cluster::client(Config::new(address.clone())).unwrap());
        let error = nodes.get_opt("a").await.context("the node cannot be read").unwrap_err();
        let said = told(error, &address).to_string();
        let expected = format!("no API server answers at {address}; is `ostler up` running");
        assert!(said.contains(&expected), "{said}");
    }

    #[test]
    fn any_other_error_is_left_as_it_is() {
        let refused = || io::Error::from(ErrorKind::ConnectionRefused);
        let broken = kube::Error::Service(io::Error::from(ErrorKind::InvalidData).into());
        for error in [anyhow::Error::from(refused()), broken.into()] {
            let before = error.to_string();
            assert_eq!(told(error, &Uri::from_static("http://a/")).to_string(), before);
        }
    }
}
