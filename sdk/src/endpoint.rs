//! The connection that flags and environment describe.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use http::Uri;
use ostler_dial::{Dial, DialUnix, Proxies, Trusted};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use crate::connect::{ConnectError, Connection, Connector};
use crate::diagnosis;
use crate::options::DriverArgs;

/// Strict proxies punish pings that come more often.
const KEEPALIVE: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// What the core can push at us before we read: the window is a hidden queue.
const STREAM_WINDOW: u32 = 256 * 1024;

impl Connector {
    /// The connector for these flags. Fails if no connection can ever come of them; files
    /// are read again for every connection.
    pub fn from_args(args: &DriverArgs) -> Result<Self, ConnectError> {
        let scheme = Scheme::of(args)?;
        let DriverArgs { endpoint, token_file, .. } = args.clone();
        let trusted = trusted(args);
        Ok(Self::new(move || dial(endpoint.clone(), scheme.clone(), trusted, token_file.clone())))
    }
}

/// How an endpoint is secured.
#[derive(Debug, Clone, PartialEq)]
enum Scheme {
    /// By the user that listens, as the kernel names it.
    Unix(PathBuf),
    /// The connection stays on the host, or the user allowed plaintext.
    Plaintext,
    Tls {
        ca_file: PathBuf,
        identity: Option<Pair>,
    },
}

/// Files of a certificate and its key.
#[derive(Debug, Clone, PartialEq)]
struct Pair {
    cert_file: PathBuf,
    key_file: PathBuf,
}

impl Scheme {
    fn of(args: &DriverArgs) -> Result<Self, ConnectError> {
        let endpoint = &args.endpoint;
        let unusable =
            |problem: String| Err(ConnectError::Endpoint { endpoint: endpoint.clone(), problem });
        let identity = match (&args.cert_file, &args.key_file) {
            (Some(cert_file), Some(key_file)) => {
                Some(Pair { cert_file: cert_file.clone(), key_file: key_file.clone() })
            }
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => {
                let files = "--cert-file (OSTLER_CERT_FILE) and --key-file (OSTLER_KEY_FILE)";
                return unusable(format!("{files} go together; give both or none"));
            }
        };
        let uri = if endpoint.starts_with("unix:") { None } else { Some(endpoint.parse::<Uri>()) };
        let uri = match uri.transpose() {
            Ok(uri) => uri,
            Err(error) => return unusable(error.to_string()),
        };
        let host = uri.as_ref().and_then(Uri::host).unwrap_or_default();
        match (uri.as_ref().map(Uri::scheme_str), &args.ca_file, identity) {
            (Some(Some("https")), Some(ca_file), identity) => {
                Ok(Self::Tls { ca_file: ca_file.clone(), identity })
            }
            (Some(Some("https")), None, _) => {
                unusable("https needs --ca-file (OSTLER_CA_FILE)".to_owned())
            }
            (None | Some(Some("http")), _, Some(_)) => {
                unusable("a certificate (--cert-file) can only be shown over https".to_owned())
            }
            (None, _, None) => Ok(Self::Unix(socket(endpoint))),
            (Some(Some("http")), _, None) if is_loopback(host) || args.allow_plaintext => {
                Ok(Self::Plaintext)
            }
            (Some(Some("http")), _, None) => unusable(format!(
                "plaintext to {host} would show the token to the network: use https, or --allow-plaintext if something else encrypts"
            )),
            (Some(_), _, _) => unusable("write https://, unix: or http://".to_owned()),
        }
    }
}

/// The users whose processes may be the core on this host.
fn trusted(args: &DriverArgs) -> Trusted {
    match args.core_uid {
        Some(uid) => Trusted::Given(uid),
        None if args.allow_plaintext => Trusted::AnyUser,
        None => Trusted::Own(nix::unistd::geteuid().as_raw()),
    }
}

/// The path of `unix:PATH` and `unix:///PATH`.
fn socket(endpoint: &str) -> PathBuf {
    let path = endpoint.strip_prefix("unix:").unwrap_or(endpoint);
    PathBuf::from(path.strip_prefix("//").unwrap_or(path))
}

fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

async fn dial(
    url: String,
    scheme: Scheme,
    trusted: Trusted,
    token_file: Option<PathBuf>,
) -> Result<Connection, ConnectError> {
    let failed = |source| match diagnosis::of(&source) {
        Some(remedy) => ConnectError::Tls { endpoint: url.clone(), remedy, source },
        None => ConnectError::Transport { endpoint: url.clone(), source },
    };
    let address = if matches!(scheme, Scheme::Unix(_)) { "http://core" } else { url.as_str() };
    let mut endpoint = Endpoint::from_shared(address.to_owned())
        .map_err(failed)?
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(STREAM_WINDOW)
        .tcp_nodelay(true);
    let token = match token_file {
        Some(path) => Some(read("token file", path).await?),
        None => None,
    };
    let dial = Dial::new(Proxies::of_environment());
    let connected = match scheme {
        Scheme::Unix(path) => endpoint.connect_with_connector(DialUnix::new(path, trusted)).await,
        Scheme::Plaintext => endpoint.connect_with_connector(dial.trusting(trusted)).await,
        Scheme::Tls { ca_file, identity } => {
            endpoint = endpoint.tls_config(tls(ca_file, identity).await?).map_err(failed)?;
            endpoint.connect_with_connector(dial).await
        }
    };
    let connection = Connection::new(connected.map_err(failed)?);
    match token {
        Some(token) => connection.with_token(token.trim()),
        None => Ok(connection),
    }
}

async fn tls(ca_file: PathBuf, identity: Option<Pair>) -> Result<ClientTlsConfig, ConnectError> {
    let certificate = ("-----BEGIN CERTIFICATE-----", "holds no certificate (PEM)");
    let ca = read_pem("CA file", ca_file, certificate).await?;
    let tls =
        ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca)).timeout(CONNECT_TIMEOUT);
    let Some(Pair { cert_file, key_file }) = identity else { return Ok(tls) };
    let cert = read_pem("certificate file", cert_file, certificate).await?;
    let key = ("PRIVATE KEY-----", "holds no private key (PEM)");
    let key = read_pem("key file", key_file, key).await?;
    Ok(tls.identity(Identity::from_pem(cert, key)))
}

/// Reads a file that must contain a mark; without it TLS would fail later, and not say why.
async fn read_pem(
    what: &'static str,
    path: PathBuf,
    (mark, problem): (&str, &'static str),
) -> Result<String, ConnectError> {
    let content = read(what, path.clone()).await?;
    if content.contains(mark) {
        return Ok(content);
    }
    Err(ConnectError::Content { what, path, problem })
}

async fn read(what: &'static str, path: PathBuf) -> Result<String, ConnectError> {
    let content = tokio::fs::read_to_string(&path).await;
    content.map_err(|source| ConnectError::File { what, path, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: DriverArgs,
    }

    fn scheme(endpoint: &str, more: &[&str]) -> Result<Scheme, String> {
        let args = [&["driver", "--endpoint", endpoint], more].concat();
        let args = <Cli as clap::Parser>::parse_from(args).args;
        Scheme::of(&args).map_err(|error| error.to_string())
    }

    #[test]
    fn plaintext_is_for_loopback_and_unix_sockets_only() {
        for good in ["http://127.0.0.1:5000", "http://localhost:5000", "http://[::1]:5000"] {
            assert_eq!(scheme(good, &[]), Ok(Scheme::Plaintext));
        }
        for good in ["unix:/run/o.sock", "unix:///run/o.sock"] {
            assert_eq!(scheme(good, &[]), Ok(Scheme::Unix("/run/o.sock".into())));
        }
        for bad in ["http://10.0.0.1:5000", "http://core.example.com:5000"] {
            let error = scheme(bad, &[]).unwrap_err();
            assert!(error.contains("https") && error.contains(bad), "{error}");
            assert_eq!(scheme(bad, &["--allow-plaintext"]), Ok(Scheme::Plaintext));
        }
    }

    #[test]
    fn https_needs_a_ca_and_the_error_names_the_flag() {
        let error = scheme("https://core:5000", &[]).unwrap_err();
        assert!(error.contains("--ca-file"), "{error}");
        let tls = Scheme::Tls { ca_file: PathBuf::from("/ca"), identity: None };
        assert_eq!(scheme("https://core:5000", &["--ca-file", "/ca"]), Ok(tls));
    }

    #[test]
    fn a_certificate_is_shown_over_https_only() {
        let pair = ["--ca-file", "/ca", "--cert-file", "/cert", "--key-file", "/key"];
        assert!(matches!(
            scheme("https://core:5000", &pair),
            Ok(Scheme::Tls { identity: Some(_), .. })
        ));
        for endpoint in ["http://127.0.0.1:1", "unix:/run/o.sock"] {
            let error = scheme(endpoint, &pair).unwrap_err();
            assert!(error.contains("over https"), "{error}");
        }
    }

    #[test]
    fn an_endpoint_without_a_scheme_is_refused() {
        for bad in ["127.0.0.1:5000", "ftp://127.0.0.1", ""] {
            scheme(bad, &[]).unwrap_err();
        }
    }

    #[tokio::test]
    async fn a_file_that_is_no_certificate_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let ca_file = dir.path().join("ca.crt");
        std::fs::write(&ca_file, "canary").unwrap();
        let scheme = Scheme::Tls { ca_file, identity: None };
        let error = dial("https://127.0.0.1:1".to_owned(), scheme, Trusted::AnyUser, None)
            .await
            .unwrap_err();
        let error = error.to_string();
        assert!(error.contains("ca.crt holds no certificate"), "{error}");
        assert!(!error.contains("canary"), "{error}");
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
            let dial = dial(
                url.clone(),
                Scheme::Unix(socket.clone()),
                Trusted::AnyUser,
                Some(token.clone()),
            );
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
        let error =
            dial("http://127.0.0.1:1".to_owned(), Scheme::Plaintext, Trusted::AnyUser, missing)
                .await;
        let error = error.unwrap_err().to_string();
        assert!(error.contains("/nowhere/token"), "{error}");
    }
}
