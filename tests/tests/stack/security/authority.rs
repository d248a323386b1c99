//! Certificates for tests.

use std::path::{Path, PathBuf};

use ostler_sessions::TlsFiles;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType,
};

/// A CA that signs every request.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// Files of a certificate and its key.
pub(crate) struct Pair {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "CA of the tests");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign];
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// The file that others trust.
    pub(crate) fn file(&self, path: PathBuf) -> PathBuf {
        std::fs::write(&path, &self.pem).unwrap();
        path
    }

    /// A certificate for a server of these names.
    pub(crate) fn server(&self, directory: &Path, names: &[&str]) -> Pair {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        self.sign(directory, "server", &CertificateParams::new(names).unwrap())
    }

    /// A certificate for a driver with this SPIFFE id, that ends with the year before `year`.
    pub(crate) fn driver(&self, directory: &Path, id: &str, year: i32) -> Pair {
        let mut params = CertificateParams::default();
        params.subject_alt_names.push(SanType::URI(id.try_into().unwrap()));
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        self.sign(directory, "driver", &params)
    }

    fn sign(&self, directory: &Path, name: &str, params: &CertificateParams) -> Pair {
        let key = KeyPair::generate().unwrap();
        let signed = params.signed_by(&key, &self.issuer).unwrap();
        let file = |kind: &str| directory.join(format!("{name}.{kind}"));
        let pair = Pair { certificate: file("crt"), key: file("key") };
        std::fs::write(&pair.certificate, signed.pem()).unwrap();
        std::fs::write(&pair.key, key.serialize_pem()).unwrap();
        pair
    }
}

impl Pair {
    /// As a listener wants them.
    pub(crate) fn files(&self, client_ca: Option<&Path>) -> TlsFiles {
        TlsFiles {
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            client_ca: client_ca.map(Path::to_owned),
        }
    }
}
