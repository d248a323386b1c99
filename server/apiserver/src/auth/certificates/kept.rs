//! The files that keys and certificates are kept in.

use std::{io, path::Path};

use jiff::{SignedDuration, Timestamp};
use rcgen::CertificateParams;
use serde::{Deserialize, Serialize};

use crate::store::secret::{read_private, write_private};

/// A certificate whose rest is shorter is renewed.
const RENEW_BEFORE: SignedDuration = SignedDuration::from_hours(24 * 30);

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// The files could not be read or written.
    #[error("cannot keep certificates in the data directory")]
    Files(#[from] io::Error),
    /// A certificate could not be made: usually a name that is none.
    #[error("cannot make a certificate")]
    Certificate(#[from] rcgen::Error),
    /// The TLS library refuses what was made.
    #[error("cannot serve with the certificate")]
    Tls(#[from] rustls::Error),
    /// The TLS library cannot verify clients by the authority.
    #[error("cannot verify clients by the server's authority")]
    Clients(#[from] rustls::server::VerifierBuilderError),
    /// A file does not hold what was written to it.
    #[error("{file} in the data directory is damaged; remove it to have a new one made")]
    Damaged {
        /// The file.
        file: &'static str,
    },
}

impl PkiError {
    pub(crate) fn into_io(self) -> io::Error {
        io::Error::other(self)
    }
}

/// A stored certificate with its key.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Kept {
    pub(super) certificate: String,
    pub(super) key: String,
    pub(super) expires: Timestamp,
    /// The names it is good for; none for an authority.
    pub(super) names: Vec<String>,
    /// The signing certificate; none for an authority.
    pub(super) signed_by: Option<String>,
}

impl Kept {
    /// Whether it is good for a while yet.
    pub(super) fn is_fresh(&self, now: Timestamp) -> bool {
        self.expires.duration_since(now) > RENEW_BEFORE
    }
}

pub(super) fn read(directory: Option<&Path>, file: &'static str) -> Result<Option<Kept>, PkiError> {
    let Some(directory) = directory else { return Ok(None) };
    let Some(text) = read_private(&directory.join(file))? else { return Ok(None) };
    parse(file, &text).map(Some)
}

pub(super) fn parse(file: &'static str, text: &str) -> Result<Kept, PkiError> {
    serde_json::from_str(text).map_err(|_| PkiError::Damaged { file })
}

pub(super) fn write(
    directory: Option<&Path>,
    file: &'static str,
    kept: Kept,
) -> Result<Kept, PkiError> {
    if let Some(directory) = directory {
        let text = serde_json::to_string_pretty(&kept).map_err(io::Error::from)?;
        write_private(&directory.join(file), &text)?;
    }
    Ok(kept)
}

/// Dates a certificate, to the second. Times before 1970 count as 1970.
pub(super) fn valid(params: &mut CertificateParams, begins: Timestamp, ends: Timestamp) {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let seconds = |at: Timestamp| u64::try_from(at.as_second()).unwrap_or(0);
    let date = |at| epoch + std::time::Duration::from_secs(seconds(at));
    (params.not_before, params.not_after) = (date(begins), date(ends));
}
