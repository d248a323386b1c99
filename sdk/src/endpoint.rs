//! The connection that flags and environment describe.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Uri;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};

use crate::connect::{ConnectError, Connection, Connector};
use crate::options::DriverArgs;

/// Strict proxies punish pings that come more often.
const KEEPALIVE: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// What the core can push at us before we read: the window is a queue that nobody sees.
const STREAM_WINDOW: u32 = 256 * 1024;

impl Connector {
    /// The connector for these flags. Fails at once if no connection can ever come of them; files
    /// are read again for every connection.
    pub fn from_args(args: &DriverArgs) -> Result<Self, ConnectError> {
        let scheme = Scheme::of(&args.endpoint, args.ca_file.as_deref())?;
        let DriverArgs { endpoint, token_file, .. } = args.clone();
        Ok(Self::new(move || dial(endpoint.clone(), scheme.clone(), token_file.clone())))
    }
}

/// How an endpoint is secured.
#[derive(Debug, Clone, PartialEq)]
enum Scheme {
    /// The socket's file permissions.
    Unix,
    /// Nothing leaves the host.
    Loopback,
    Tls {
        ca_file: PathBuf,
    },
}

impl Scheme {
    fn of(endpoint: &str, ca_file: Option<&Path>) -> Result<Self, ConnectError> {
        let unusable =
            |problem: String| ConnectError::Endpoint { endpoint: endpoint.to_owned(), problem };
        if endpoint.starts_with("unix:") {
            return Ok(Self::Unix);
        }
        let uri: Uri = endpoint.parse().map_err(|error| unusable(format!("{error}")))?;
        let host = uri.host().unwrap_or_default();
        match (uri.scheme_str(), ca_file) {
            (Some("https"), Some(ca_file)) => Ok(Self::Tls { ca_file: ca_file.to_owned() }),
            (Some("https"), None) => {
                Err(unusable("https needs --ca-file (OSTLER_CA_FILE)".to_owned()))
            }
            (Some("http"), _) if is_loopback(host) => Ok(Self::Loopback),
            (Some("http"), _) => Err(unusable(format!(
                "plaintext to {host} would show the token to the network: use https"
            ))),
            _ => Err(unusable("write http://, https:// or unix:".to_owned())),
        }
    }
}

fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

async fn dial(
    url: String,
    scheme: Scheme,
    token_file: Option<PathBuf>,
) -> Result<Connection, ConnectError> {
    let failed = |source| ConnectError::Transport { endpoint: url.clone(), source };
    let mut endpoint = Endpoint::from_shared(url.clone())
        .map_err(failed)?
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(STREAM_WINDOW)
        .tcp_nodelay(true);
    if let Scheme::Tls { ca_file } = scheme {
        let ca = read("CA file", ca_file).await?;
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca));
        endpoint = endpoint.tls_config(tls).map_err(failed)?;
    }
    let token = match token_file {
        Some(path) => Some(read("token file", path).await?),
        None => None,
    };
    let connection = Connection::new(endpoint.connect().await.map_err(failed)?);
    match token {
        Some(token) => connection.with_token(token.trim()),
        None => Ok(connection),
    }
}

async fn read(what: &'static str, path: PathBuf) -> Result<String, ConnectError> {
    let content = tokio::fs::read_to_string(&path).await;
    content.map_err(|source| ConnectError::File { what, path, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plaintext_is_for_loopback_and_unix_sockets_only() {
        for good in [
            "http://127.0.0.1:5000",
            "http://localhost:5000",
            "http://[::1]:5000",
            "unix:/run/o.sock",
        ] {
            Scheme::of(good, None).unwrap();
        }
        for bad in ["http://10.0.0.1:5000", "http://core.example.com:5000"] {
            let error = Scheme::of(bad, None).unwrap_err().to_string();
            assert!(error.contains("https") && error.contains(bad), "{error}");
        }
    }

    #[test]
    fn https_needs_a_ca_and_the_error_names_the_flag() {
        let error = Scheme::of("https://core:5000", None).unwrap_err().to_string();
        assert!(error.contains("--ca-file"), "{error}");
        let ca_file = PathBuf::from("/ca");
        assert_eq!(
            Scheme::of("https://core:5000", Some(&ca_file)).unwrap(),
            Scheme::Tls { ca_file }
        );
    }

    #[test]
    fn an_endpoint_without_a_scheme_is_refused() {
        for bad in ["127.0.0.1:5000", "ftp://127.0.0.1", ""] {
            Scheme::of(bad, None).unwrap_err();
        }
    }

    #[tokio::test]
    async fn every_connection_shows_the_token_that_the_file_has_then() {
        use tonic::service::Interceptor;

        let dir = tempfile::tempdir().unwrap();
        let (socket, token) = (dir.path().join("core.sock"), dir.path().join("token"));
        let listener = tokio::net::UnixListener::bind(&socket).unwrap();
        let url = format!("unix:{}", socket.display());
        for content in ["first\n", "second\n"] {
            std::fs::write(&token, content).unwrap();
            let dial = dial(url.clone(), Scheme::Unix, Some(token.clone()));
            let (accepted, connection) = tokio::join!(listener.accept(), dial);
            accepted.unwrap();
            let request = connection.unwrap().bearer.call(tonic::Request::new(())).unwrap();
            let shown = request.metadata().get("authorization").unwrap();
            assert_eq!(shown.to_str().unwrap(), format!("Bearer {}", content.trim()));
            assert!(!format!("{shown:?}").contains(content.trim()), "{shown:?}");
        }
    }

    #[tokio::test]
    async fn a_token_file_that_cannot_be_read_is_named() {
        let missing = Some(PathBuf::from("/nowhere/token"));
        let error = dial("http://127.0.0.1:1".to_owned(), Scheme::Loopback, missing).await;
        let error = error.unwrap_err().to_string();
        assert!(error.contains("/nowhere/token"), "{error}");
    }
}
