//! Clients of the API server that is joined.

use std::time::Duration;

use backon::ExponentialBuilder;
use http::HeaderValue;
use http::header::USER_AGENT;
use kube::config::{Kubeconfig, KubeconfigError};
use ostler_dial::cluster;
use ostler_kubelet::KubeletApi;

/// Longer than a healthy network needs to connect.
const CONNECT: Duration = Duration::from_secs(5);
/// Longer than any single request of ours takes; watches are not under it.
const REQUEST: Duration = Duration::from_secs(10);

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoClient {
    #[error("the kubeconfig cannot be used")]
    Kubeconfig(#[from] KubeconfigError),
    #[error("the client cannot be made")]
    Client(#[from] cluster::NoClient),
}

/// A client and the address of its API server.
#[derive(Clone)]
pub(crate) struct Access {
    pub(crate) api: KubeletApi,
    pub(crate) server: http::Uri,
}

/// The client of a kubeconfig.
pub(crate) async fn access(kubeconfig: Kubeconfig) -> Result<Access, NoClient> {
    let mut config = cluster::config(kubeconfig).await?;
    config.connect_timeout = Some(CONNECT);
    let agent = concat!("ostler-docker-node/", env!("CARGO_PKG_VERSION"));
    config.headers.push((USER_AGENT, HeaderValue::from_static(agent)));
    let server = config.cluster_url.clone();
    let client = cluster::client(config)?;
    Ok(Access { api: KubeletApi::new(client).timeout(REQUEST), server })
}

/// Waits that double between attempts, for ever.
pub(crate) fn backoff(first: Duration, longest: Duration) -> ExponentialBuilder {
    ExponentialBuilder::default().with_min_delay(first).with_max_delay(longest).without_max_times()
}

#[cfg(test)]
mod tests {
    use backon::BackoffBuilder as _;

    use super::*;

    #[test]
    fn waits_double_up_to_the_longest() {
        let waits = backoff(Duration::from_secs(1), Duration::from_secs(3)).build();
        assert_eq!(waits.take(4).map(|it| it.as_secs()).collect::<Vec<_>>(), [1, 2, 3, 3]);
    }
}
