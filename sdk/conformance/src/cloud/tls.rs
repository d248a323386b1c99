//! https from the driver to the suite and from the suite to the cloud: an authority that lives as long as the run, and
//! that the driver is told to trust.

use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;

use http::Uri;
use pem::{EncodeConfig, LineEnding, Pem};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use tempfile::NamedTempFile;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

/// Signs for each cloud in its place.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(super) certificate: CertificateDer<'static>,
    /// The authorities of clouds that the suite trusts.
    roots: Arc<RootCertStore>,
    file: NamedTempFile,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("file", &self.file.path()).finish_non_exhaustive()
    }
}

impl Authority {
    /// Trusts the authorities of this system, or those in the file of `SSL_CERT_FILE`.
    pub(super) fn new() -> io::Result<Self> {
        Self::trusting(&rustls_native_certs::load_native_certs().certs)
    }

    pub(super) fn trusting(others: &[CertificateDer<'_>]) -> io::Result<Self> {
        let mut params = params("ostler sanity", &[])?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let certificate = params.self_signed(&key).map_err(io::Error::other)?.der().clone();
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(others.iter().cloned().map(CertificateDer::into_owned));
        let mut file = NamedTempFile::new()?;
        // For most programs the file stands in place of the system's, and the driver may call other clouds.
        for trusted in std::iter::once(&certificate).chain(others) {
            file.write_all(pem(trusted).as_bytes())?;
        }
        let issuer = Issuer::new(params, key);
        Ok(Self { issuer, certificate, roots: Arc::new(roots), file })
    }

    /// The authorities that a driver is to trust.
    pub(super) fn file(&self) -> &Path {
        self.file.path()
    }

    /// Both ends of the TLS of a cloud.
    pub(super) fn of(&self, cloud: &Uri) -> io::Result<Tls> {
        let host = cloud.host().unwrap_or_default().trim_matches(['[', ']']);
        let mut params = params(host, &[host, "localhost", "127.0.0.1"])?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let signed = params.signed_by(&key, &self.issuer).map_err(io::Error::other)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        // HTTP/1.1 is what the suite reads, and the only protocol that both ends offer.
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_no_client_auth()
            .with_single_cert(
                vec![signed.der().clone(), self.certificate.clone()],
                PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
            )
            .map_err(io::Error::other)?;
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(Arc::clone(&self.roots))
            .with_no_client_auth();
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        Ok(Tls {
            acceptor: TlsAcceptor::from(Arc::new(server)),
            connector: TlsConnector::from(Arc::new(client)),
            name,
        })
    }
}

/// The TLS of a cloud.
pub(super) struct Tls {
    acceptor: TlsAcceptor,
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl Tls {
    /// As the cloud, to the driver.
    pub(super) async fn accept<S>(&self, stream: S) -> io::Result<server::TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        self.acceptor.accept(stream).await
    }

    /// As the driver, to the cloud.
    pub(super) async fn connect<S>(&self, stream: S) -> io::Result<client::TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        self.connector.connect(self.name.clone(), stream).await
    }
}

fn params(subject: &str, names: &[&str]) -> io::Result<CertificateParams> {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(names).map_err(io::Error::other)?;
    params.distinguished_name.push(DnType::CommonName, subject);
    Ok(params)
}

fn pem(certificate: &CertificateDer<'_>) -> String {
    let config = EncodeConfig::new().set_line_ending(LineEnding::LF);
    pem::encode_config(&Pem::new("CERTIFICATE", certificate.to_vec()), config)
}
