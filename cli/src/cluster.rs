//! The cluster that a person means, and what is said if its API server does not answer.

use std::io::{self, ErrorKind};
use std::path::PathBuf;

use anyhow::Context as _;
use http::Uri;
use kube::config::Kubeconfig;
use kube::{Client, Config};
use ostler_dial::{DialError, cluster};

/// What a command for people logs: that a request failed is said by the command itself.
pub(crate) const LOGGED: &str = "warn,kube_client::client::builder=off";

/// Does something in the cluster and namespace that a person means.
pub(crate) async fn within<T>(
    kubeconfig: Option<PathBuf>,
    namespace: Option<String>,
    act: impl AsyncFnOnce(Client, String) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let config = config(kubeconfig).await?;
    let address = config.cluster_url.clone();
    let namespace = namespace.unwrap_or_else(|| config.default_namespace.clone());
    let client = cluster::client(config).context("the kubeconfig cannot be used")?;
    act(client, namespace).await.map_err(|error| told(error, &address))
}

/// The cluster that a person means.
pub(crate) async fn config(given: Option<PathBuf>) -> anyhow::Result<Config> {
    let here = PathBuf::from("./.ostler/kubeconfig");
    let path = match given {
        Some(path) => Some(path),
        None if std::env::var_os("KUBECONFIG").is_none() && here.exists() => Some(here),
        None => None,
    };
    let Some(path) = path else {
        return cluster::configured().await.context("no cluster is configured; give --kubeconfig");
    };
    let unusable = || format!("--kubeconfig {} cannot be used", path.display());
    let kubeconfig = Kubeconfig::read_from(&path).with_context(unusable)?;
    cluster::config(kubeconfig).await.with_context(unusable)
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
