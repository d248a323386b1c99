//! Clients of the API server that is joined.

use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config, Error};

/// Longer than a healthy network needs to connect.
const CONNECT: Duration = Duration::from_secs(5);
/// Longer than any single request of ours takes; watches are not under it.
pub(crate) const REQUEST: Duration = Duration::from_secs(10);

/// Why a request has no answer that can be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    #[error("the API server refused or did not answer")]
    Api(#[source] Box<Error>),
    #[error("the API server did not answer within {} s", REQUEST.as_secs())]
    Slow,
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Api(Box::new(error))
    }
}

impl Trouble {
    /// The HTTP status of a refusal.
    pub(crate) fn code(&self) -> Option<u16> {
        let Self::Api(error) = self else { return None };
        if let Error::Api(status) = error.as_ref() { Some(status.code) } else { None }
    }
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoClient {
    #[error("the kubeconfig cannot be used")]
    Kubeconfig(#[from] KubeconfigError),
    #[error("the client cannot be made")]
    Client(#[from] Box<Error>),
}

/// A client, and where it sends its requests.
#[derive(Clone)]
pub(crate) struct Access {
    pub(crate) client: Client,
    pub(crate) server: http::Uri,
}

/// The client of a kubeconfig.
pub(crate) async fn access(kubeconfig: Kubeconfig) -> Result<Access, NoClient> {
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    config.connect_timeout = Some(CONNECT);
    let server = config.cluster_url.clone();
    let client = Client::try_from(config).map_err(Box::new)?;
    Ok(Access { client, server })
}

/// Bounds a request.
pub(crate) async fn bounded<T>(
    request: impl Future<Output = Result<T, Error>>,
) -> Result<T, Trouble> {
    match tokio::time::timeout(REQUEST, request).await {
        Ok(outcome) => Ok(outcome?),
        Err(_) => Err(Trouble::Slow),
    }
}

/// An error and its causes on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

/// Waits between attempts: the first, and the longest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backoff {
    next: Duration,
    longest: Duration,
}

impl Backoff {
    pub(crate) fn new(first: Duration, longest: Duration) -> Self {
        Self { next: first, longest }
    }

    /// How long to wait now.
    pub(crate) fn next(&mut self) -> Duration {
        let now = self.next;
        self.next = (now * 2).min(self.longest);
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(3));
        let waits = [backoff.next(), backoff.next(), backoff.next(), backoff.next()];
        assert_eq!(waits.map(|it| it.as_secs()), [1, 2, 3, 3]);
    }
}
