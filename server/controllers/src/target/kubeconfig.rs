//! Reads kubeconfigs from secrets. A user who may write such a secret must not be able to make the core run a program
//! or read a file.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use http::HeaderValue;
use http::header::USER_AGENT;
use kube::config::Kubeconfig;
use kube::{Client, Config};
use ostler_dial::cluster::{self, NoClient};

/// By this name API servers distinguish our requests from others'.
const AGENT: &str = concat!("ostler-server/", env!("CARGO_PKG_VERSION"));

/// For how long an API server may say nothing on a connection that has a request. A watch without events lasts 290 s.
const SILENCE: Duration = Duration::from_secs(330);

/// Creates a client from a kubeconfig. Tests use a connection without a network.
pub type Connect =
    Arc<dyn Fn(String) -> BoxFuture<'static, Result<Client, Unusable>> + Send + Sync>;

/// Why a kubeconfig cannot be used. Contains nothing of its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// It is no kubeconfig, or has no cluster or user for its current context.
    #[error("it is no kubeconfig with a current context")]
    Malformed,
    /// The kubeconfig refers to a file or command on the core's host.
    #[error("it may not use {0}: credentials and certificates must be in it")]
    NotSelfContained(&'static str),
    /// The proxy on the way cannot be used; the text says whose proxy.
    #[error(
        "the proxy on the way to it cannot be used: write http://HOST:PORT or socks5://HOST:PORT in proxy-url, or in HTTPS_PROXY of the core"
    )]
    Proxy,
}

/// Connects with the kubeconfig as it is.
pub fn connect() -> Connect {
    Arc::new(|text| Box::pin(async move { client(&text).await }))
}

async fn client(text: &str) -> Result<Client, Unusable> {
    let kubeconfig = Kubeconfig::from_yaml(text).map_err(|_| Unusable::Malformed)?;
    check(&kubeconfig)?;
    let mut config = cluster::config(kubeconfig).await.map_err(|_| Unusable::Malformed)?;
    configure(&mut config);
    cluster::client(config).map_err(|error| match error {
        NoClient::Proxy(_) => Unusable::Proxy,
        NoClient::Config(_) => Unusable::Malformed,
    })
}

/// How the core talks to every API server: by its name, without retries of its own, and not for ever.
pub fn configure(config: &mut Config) {
    // A refused eviction must return immediately; the work queue retries it.
    config.default_retry = false;
    // Lists and the start of a watch have no other limit: over a connection that was dropped silently they would
    // never end, and the core would lead on with a cache that stands still.
    config.read_timeout = Some(SILENCE);
    config.reset_reader_on_write = true;
    config.headers.push((USER_AGENT, HeaderValue::from_static(AGENT)));
}

fn check(kubeconfig: &Kubeconfig) -> Result<(), Unusable> {
    let users = kubeconfig.auth_infos.iter().filter_map(|user| user.auth_info.as_ref());
    let clusters = kubeconfig.clusters.iter().filter_map(|one| one.cluster.as_ref());
    let of_users = users.flat_map(|user| {
        [
            (user.exec.is_some(), "exec"),
            (user.auth_provider.is_some(), "auth-provider"),
            (user.token_file.is_some(), "tokenFile"),
            (user.client_certificate.is_some(), "client-certificate"),
            (user.client_key.is_some(), "client-key"),
        ]
    });
    let of_clusters =
        clusters.map(|cluster| (cluster.certificate_authority.is_some(), "certificate-authority"));
    let used = of_users.chain(of_clusters).find(|(used, _)| *used);
    used.map_or(Ok(()), |(_, what)| Err(Unusable::NotSelfContained(what)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubeconfig(user: &str, cluster: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts:\n- name: c\n  context: \
             {{cluster: c, user: u}}\nclusters:\n- name: c\n  cluster: {{server: \
             'http://127.0.0.1:1'{cluster}}}\nusers:\n- name: u\n  user: {{{user}}}\n"
        )
    }

    #[tokio::test]
    async fn credentials_in_the_kubeconfig_are_taken() {
        assert!(client(&kubeconfig("token: secret", "")).await.is_ok());
    }

    #[tokio::test]
    async fn what_would_run_a_program_or_read_a_file_is_refused() {
        let exec = "exec: {apiVersion: client.authentication.k8s.io/v1, command: sh}";
        for (user, cluster, what) in [
            (exec, "", "exec"),
            ("auth-provider: {name: gcp, config: {}}", "", "auth-provider"),
            ("tokenFile: /etc/passwd", "", "tokenFile"),
            ("client-certificate: /etc/passwd", "", "client-certificate"),
            ("client-key: /etc/passwd", "", "client-key"),
            ("token: x", ", certificate-authority: /etc/passwd", "certificate-authority"),
        ] {
            let refused = client(&kubeconfig(user, cluster)).await.err();
            assert_eq!(refused, Some(Unusable::NotSelfContained(what)));
        }
    }

    #[tokio::test]
    async fn what_is_no_kubeconfig_is_refused_without_repeating_it() {
        let refused = client("hunter2: [").await.err().unwrap();
        assert_eq!(refused, Unusable::Malformed);
        assert!(!refused.to_string().contains("hunter2"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_gets_no_answer_ends() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let _silent = tokio::spawn(async move {
            let mut open = Vec::new();
            while let Ok((stream, _)) = listener.accept().await {
                open.push(stream);
            }
        });
        let text = kubeconfig("token: x", "").replace("127.0.0.1:1", &address.to_string());
        let client = client(&text).await.unwrap();
        let nodes = kube::Api::<k8s_openapi::api::core::v1::Node>::all(client);
        let parameters = kube::api::ListParams::default();
        let listed = tokio::time::timeout(2 * SILENCE, nodes.list(&parameters)).await;
        assert!(listed.expect("it waits for ever").is_err());
    }
}
