//! A connection as a client makes it that trusts the authority of the server.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

/// Connects and offers one protocol.
pub(crate) async fn connect(
    authority: &str,
    address: SocketAddr,
    protocol: &[u8],
) -> TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::from(address.ip());
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
}
