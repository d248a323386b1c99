//! Clients of Kubernetes API servers. No other place makes one: lints and a test of the repository see to that.

use http::Response;
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ClientBuilder, ConfigExt as _, DynBody};
use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use tower::util::BoxService;
use tower::{BoxError, ServiceBuilder, ServiceExt as _};

use crate::connector::Dial;
use crate::proxy::{BadProxy, Proxies, Proxy};

/// Stands for no proxy in a kubeconfig: without a `proxy-url`, kube takes `HTTPS_PROXY`.
const NONE: &str = "http://none.invalid/";
/// Where a kubeconfig names its proxy.
const PROXY_URL: &str = "proxy-url of the kubeconfig";

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum NoClient {
    /// The kubeconfig names a proxy that cannot be used.
    #[error(transparent)]
    Proxy(#[from] BadProxy),
    /// Its certificates or credentials cannot be used.
    #[error(transparent)]
    Config(#[from] Box<kube::Error>),
}

/// Why no cluster is configured.
#[derive(Debug, thiserror::Error)]
#[error("there is neither a kubeconfig ({kubeconfig}) nor a pod around this process ({pod})")]
pub struct NotConfigured {
    kubeconfig: KubeconfigError,
    pod: Box<InClusterError>,
}

/// A client, to which layers can be added.
pub type Builder = ClientBuilder<BoxService<http::Request<Body>, Response<Box<DynBody>>, BoxError>>;

/// Reads the current context of a kubeconfig. `proxy_url` of the result comes from the kubeconfig alone.
///
/// # Errors
/// The kubeconfig cannot be used.
#[expect(clippy::disallowed_methods, reason = "the one place")]
pub async fn config(mut kubeconfig: Kubeconfig) -> Result<Config, KubeconfigError> {
    for cluster in kubeconfig.clusters.iter_mut().filter_map(|it| it.cluster.as_mut()) {
        if cluster.proxy_url.as_ref().is_none_or(String::is_empty) {
            cluster.proxy_url = Some(NONE.to_owned());
        }
    }
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    config.proxy_url = config.proxy_url.filter(|url| *url != NONE);
    // A program for credentials is told of its cluster.
    let told = config.auth_info.exec.as_mut().and_then(|it| it.cluster.as_mut());
    if let Some(cluster) = told.filter(|it| it.proxy_url.as_deref() == Some(NONE)) {
        cluster.proxy_url = None;
    }
    Ok(config)
}

/// The configuration of a pod, from its service account.
///
/// # Errors
/// This is no pod.
#[expect(clippy::disallowed_methods, reason = "the one place")]
pub fn of_pod() -> Result<Config, InClusterError> {
    Config::incluster()
}

/// `KUBECONFIG` or `~/.kube/config`, or else what Kubernetes gives to a pod.
///
/// # Errors
/// There is none of them.
pub async fn configured() -> Result<Config, NotConfigured> {
    let read = match Kubeconfig::read() {
        Ok(kubeconfig) => config(kubeconfig).await,
        Err(error) => Err(error),
    };
    let mut config = match read {
        Ok(config) => config,
        Err(kubeconfig) => of_pod().map_err(|pod| NotConfigured { kubeconfig, pod: pod.into() })?,
    };
    config.apply_debug_overrides();
    Ok(config)
}

/// A client.
///
/// # Errors
/// The configuration cannot be used.
pub fn client(config: Config) -> Result<Client, NoClient> {
    Ok(builder(config)?.build())
}

/// A client, to which layers can be added. It is kube's own, but for its way through proxies.
///
/// # Errors
/// The configuration cannot be used.
pub fn builder(config: Config) -> Result<Builder, NoClient> {
    let dial = match &config.proxy_url {
        Some(url) => Dial::through(Proxy::named(PROXY_URL, &url.to_string())?),
        None => Dial::new(Proxies::of_environment()),
    };
    let tls = config.rustls_https_connector_with_connector(dial).map_err(Box::new)?;
    let mut connector = TimeoutConnector::new(tls);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    let http: HttpClient<_, Body> = HttpClient::builder(TokioExecutor::new()).build(connector);
    let retries = kube::client::retry::RetryPolicy::server_retry();
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.default_retry.then(|| tower::retry::RetryLayer::new(retries)))
        .option_layer(config.auth_layer().map_err(Box::new)?)
        .layer(config.extra_headers_layer().map_err(Box::new)?)
        .map_err(BoxError::from)
        .service(http)
        .map_response(|answer| {
            answer.map(|body| {
                let body = http_body_util::BodyExt::map_err(body, BoxError::from);
                Box::new(body) as Box<DynBody>
            })
        });
    Ok(ClientBuilder::new(service.boxed(), config.default_namespace))
}
