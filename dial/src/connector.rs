//! Opens TCP connections, directly or through a proxy.

use std::error::Error;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower::Service;

use crate::owner::{NotTrusted, Trusted};
use crate::proxy::{BadProxy, Kind, Proxies, Proxy};

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The proxy on the way cannot be used.
    #[error(transparent)]
    Proxy(#[from] BadProxy),
    /// The listener on this host may belong to another user.
    #[error(transparent)]
    NotTrusted(#[from] NotTrusted),
    /// The host cannot be reached directly.
    #[error(transparent)]
    Direct(Box<dyn Error + Send + Sync>),
    /// The host cannot be reached through the proxy.
    #[error("no connection through the proxy {proxy}; NO_PROXY names what is reached without it")]
    Through {
        /// The proxy.
        proxy: Proxy,
        /// The error of the proxy or of the way to it.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
}

/// Opens TCP connections for HTTP clients, directly or through a proxy.
#[derive(Debug, Clone)]
pub struct Dial {
    way: Way,
    tcp: HttpConnector,
    /// Users whose processes may listen, if this host is dialled.
    trusted: Trusted,
}

#[derive(Debug, Clone)]
enum Way {
    /// As the environment says.
    Decided(Arc<Proxies>),
    /// Through this proxy, whatever the environment says.
    Through(Proxy),
}

impl Dial {
    /// As `proxies` say for each address.
    pub fn new(proxies: Proxies) -> Self {
        Self::by(Way::Decided(Arc::new(proxies)))
    }

    /// Through this proxy, whatever is dialled.
    pub fn through(proxy: Proxy) -> Self {
        Self::by(Way::Through(proxy))
    }

    fn by(way: Way) -> Self {
        let mut tcp = HttpConnector::new();
        // The layer above speaks TLS.
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        Self { way, tcp, trusted: Trusted::AnyUser }
    }

    /// Connects to nobody else than `trusted` on this host.
    #[must_use]
    pub fn trusting(self, trusted: Trusted) -> Self {
        Self { trusted, ..self }
    }

    fn proxy(&self, to: &Uri) -> Result<Option<Proxy>, BadProxy> {
        match &self.way {
            Way::Decided(proxies) => proxies.on_the_way_to(to),
            Way::Through(proxy) => Ok(Some(proxy.clone())),
        }
    }
}

impl Service<Uri> for Dial {
    type Response = TokioIo<TcpStream>;
    type Error = DialError;
    type Future = BoxFuture<'static, Result<Self::Response, DialError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        self.tcp.poll_ready(context).map_err(|error| DialError::Direct(error.into()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let proxy = match self.proxy(&to) {
            Ok(proxy) => proxy,
            Err(error) => return Box::pin(async { Err(error.into()) }),
        };
        let mut tcp = self.tcp.clone();
        let Some(proxy) = proxy else {
            let connecting = tcp.call(to);
            let trusted = self.trusted;
            return Box::pin(async move {
                let stream = connecting.await.map_err(|it| DialError::Direct(it.into()))?;
                let local = stream.inner().peer_addr().is_ok_and(|it| it.ip().is_loopback());
                if local {
                    trusted.check_tcp(stream.inner()).await?;
                }
                Ok(stream)
            });
        };
        Box::pin(async move {
            let answered = through(&proxy, tcp, with_port(to)).await;
            answered.map_err(|source| DialError::Through { proxy, source })
        })
    }
}

async fn through(
    proxy: &Proxy,
    tcp: HttpConnector,
    to: Uri,
) -> Result<TokioIo<TcpStream>, Box<dyn Error + Send + Sync>> {
    let at = proxy.at.clone();
    Ok(match proxy.kind {
        Kind::Connect => {
            let tunnel = Tunnel::new(at, tcp);
            let mut tunnel = match proxy.authorization() {
                Some(shown) => tunnel.with_auth(shown),
                None => tunnel,
            };
            tunnel.call(to).await?
        }
        Kind::Socks5 => {
            let socks = SocksV5::new(at, tcp);
            let mut socks = match proxy.user.clone() {
                Some((user, password)) => socks.with_auth(user, password),
                None => socks,
            };
            socks.call(to).await?
        }
    })
}

/// Proxies are told a port, and would take that of TLS for one that is not written.
fn with_port(to: Uri) -> Uri {
    let (None, Some("http"), Some(host)) = (to.port(), to.scheme_str(), to.host()) else {
        return to;
    };
    format!("http://{host}:80").parse().unwrap_or(to)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    async fn listener() -> (TcpListener, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        (listener, address)
    }

    /// Returns the requests to a proxy before its `answers`, and the connection.
    async fn dialled(
        variable: &str,
        scheme: &str,
        to: &'static str,
        answers: &[&[u8]],
    ) -> (Vec<String>, Result<TokioIo<TcpStream>, DialError>) {
        let (listener, address) = listener().await;
        let value = format!("{scheme}://u:p@{address}");
        let proxies = Proxies::of(|name| (name == variable).then(|| value.clone()));
        let heard = async {
            let mut stream = listener.accept().await.unwrap().0;
            let mut heard = Vec::new();
            for answer in answers {
                let mut buffer = [0; 1024];
                let read = stream.read(&mut buffer).await.unwrap();
                heard.push(String::from_utf8_lossy(&buffer[..read]).into_owned());
                stream.write_all(answer).await.unwrap();
            }
            heard
        };
        let mut dial = Dial::new(proxies);
        tokio::join!(heard, dial.call(Uri::from_static(to)))
    }

    #[tokio::test]
    async fn an_http_proxy_is_asked_for_the_host_with_its_port_and_shown_the_password() {
        let ok = b"HTTP/1.1 200 OK\r\n\r\n";
        for (variable, to, line) in [
            ("HTTPS_PROXY", "https://api.invalid", "CONNECT api.invalid:443 HTTP/1.1\r\n"),
            ("https_proxy", "https://api.invalid:6443", "CONNECT api.invalid:6443 HTTP/1.1\r\n"),
            ("http_proxy", "http://api.invalid", "CONNECT api.invalid:80 HTTP/1.1\r\n"),
            ("ALL_PROXY", "https://[2001:db8::1]:6443", "CONNECT [2001:db8::1]:6443 HTTP/1.1\r\n"),
        ] {
            let (heard, connection) = dialled(variable, "http", to, &[ok]).await;
            assert!(heard[0].starts_with(line), "{heard:?}");
            assert!(heard[0].contains("Proxy-Authorization: Basic dTpw\r\n"), "{heard:?}");
            connection.unwrap();
        }
    }

    #[tokio::test]
    async fn a_refusal_names_the_proxy_and_its_variable_and_not_the_password() {
        let refusal: &[u8] = b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n";
        let (_, refused) = dialled("HTTPS_PROXY", "http", "https://api.invalid", &[refusal]).await;
        let error = refused.unwrap_err();
        let said = format!("{error}: {}", error.source().unwrap());
        assert!(said.contains("of HTTPS_PROXY") && said.contains("authorization"), "{said}");
        assert!(!said.contains("u:p"), "{said}");
    }

    #[tokio::test]
    async fn a_socks_proxy_resolves_the_name_itself() {
        let answers: [&[u8]; 3] = [&[5, 2], &[1, 0], &[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]];
        let (heard, connection) =
            dialled("ALL_PROXY", "socks5h", "https://api.invalid:6443", &answers).await;
        assert!(heard[2].contains("api.invalid"), "{heard:?}");
        connection.unwrap();
    }

    #[tokio::test]
    async fn loopback_is_dialled_directly_whatever_the_variables_say() {
        let (listener, address) = listener().await;
        let proxies =
            Proxies::of(|name| name.ends_with("PROXY").then(|| "http://127.0.0.1:1".into()));
        let mut dial = Dial::new(proxies);
        let to = format!("https://{address}").parse().unwrap();
        let (accepted, connected) = tokio::join!(listener.accept(), dial.call(to));
        accepted.unwrap();
        connected.unwrap();
    }
}
