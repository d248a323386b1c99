//! Access control: who may dial in, and for which providers.
//!
//! A caller is known by its first credential in this order: a bearer token (of a known file, or a
//! ServiceAccount's), a client certificate, the user of a unix socket. The caller's providers are
//! written in `--driver-access` and `--driver-token`; they never come from the caller.

mod bindings;
mod file;
mod review;
mod tokens;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use kube::Client;
use ostler_sessions::{
    AuthError, Authenticator, Peer, Presented, Principal, Providers, async_trait,
};

use self::bindings::{Bindings, Who};
use self::file::AccessFile;
use self::review::{Reviewer, Verdict};
pub use self::tokens::DriverToken;
use self::tokens::FirstClaims;

/// The audience that tokens of drivers must be meant for.
pub const TOKEN_AUDIENCE: &str = "ostler-driver";

/// Knows every driver.
#[derive(Debug)]
pub(crate) struct Access {
    tokens: Vec<DriverToken>,
    claims: FirstClaims,
    file: Option<AccessFile>,
    reviewer: Reviewer,
}

impl Access {
    /// Reads the access file, if there is one.
    ///
    /// # Errors
    /// The file cannot be read or is wrong.
    pub(crate) async fn open(
        client: Client,
        audience: String,
        tokens: Vec<DriverToken>,
        file: Option<std::path::PathBuf>,
    ) -> anyhow::Result<Self> {
        let file = match file {
            Some(path) => Some(AccessFile::open(path).await?),
            None => None,
        };
        Ok(Self {
            tokens,
            claims: FirstClaims::default(),
            file,
            reviewer: Reviewer::new(client, audience),
        })
    }

    async fn by_token(&self, token: &str, bindings: &Bindings) -> Result<Principal, AuthError> {
        let known = self.tokens.iter().chain(bindings.tokens());
        if let Some(principal) = tokens::find(known, &self.claims, token).await {
            return Ok(principal);
        }
        if !review::is_signed(token) {
            return Err(AuthError::Invalid);
        }
        if !bindings.has_accounts() {
            tracing::info!("a signed token was shown, and --driver-access binds no serviceAccount");
            return Err(AuthError::Invalid);
        }
        match self.reviewer.review(token).await? {
            Verdict::Account { name, expires } => {
                let principal = bound(bindings, &Who::ServiceAccount(name))?;
                Ok(Principal { expires_in: expires.map(until).transpose()?, ..principal })
            }
            Verdict::Refused => Err(AuthError::Refused(format!(
                "the API server does not accept the token for audience {}; project one with that audience into the driver's pod",
                self.reviewer.audience()
            ))),
        }
    }
}

#[async_trait]
impl Authenticator for Access {
    async fn authenticate(&self, presented: Presented<'_>) -> Result<Principal, AuthError> {
        let bindings = match &self.file {
            Some(file) => file.bindings().await,
            None => Arc::default(),
        };
        let Peer { certificate, process, .. } = presented.peer;
        match (presented.token, certificate, process) {
            (Some(token), _, _) => self.by_token(token, &bindings).await,
            (None, Some(certificate), _) => {
                let who = Who::Certificate(certificate.identity.clone());
                let expires_in = Some(until(certificate.not_after)?);
                Ok(Principal { expires_in, ..bound(&bindings, &who)? })
            }
            (None, None, Some(process)) => bound(&bindings, &Who::UnixUser(process.uid)),
            (None, None, None) => Err(AuthError::Missing),
        }
    }
}

fn bound(bindings: &Bindings, who: &Who) -> Result<Principal, AuthError> {
    let providers = bindings.of(who).cloned().ok_or_else(|| {
        AuthError::Unbound(format!(
            "{who} is bound to no provider; add this to the core's --driver-access file under `bindings`: {}",
            who.example()
        ))
    })?;
    Ok(Principal::new(who.to_string(), Providers::Named(providers)))
}

/// How much longer something is good that ends then, in seconds since 1970.
fn until(end: i64) -> Result<Duration, AuthError> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let end = Duration::from_secs(u64::try_from(end).unwrap_or_default());
    end.checked_sub(now).filter(|left| !left.is_zero()).ok_or_else(|| {
        AuthError::Refused("what the driver shows is over; renew it, or look at the clocks".into())
    })
}
