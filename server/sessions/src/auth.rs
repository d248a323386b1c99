//! The identity of a driver, and its providers.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use sha2::{Digest, Sha256};

/// A driver that dialled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// Stable name: sessions of the same name replace each other, sessions of two names never do.
    pub name: String,
    /// The providers to claim.
    pub providers: Providers,
    /// How much longer the caller's credentials are valid; `None`: without end. A session does not
    /// outlive it.
    pub expires_in: Option<Duration>,
}

impl Principal {
    /// A principal whose credential does not expire.
    pub fn new(name: impl Into<String>, providers: Providers) -> Self {
        Self { name: name.into(), providers, expires_in: None }
    }
}

/// The providers that a principal may claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Providers {
    /// Every provider.
    Any,
    /// The named providers, by the names that drivers use.
    Named(BTreeSet<String>),
    /// The provider claimed first, over all clones of this value.
    First(Arc<OnceLock<String>>),
}

impl Providers {
    /// The providers of the given names.
    pub fn named<I: IntoIterator<Item = S>, S: Into<String>>(names: I) -> Self {
        Self::Named(names.into_iter().map(Into::into).collect())
    }

    /// Whether `provider` is among them. Asking is claiming, where the first claim counts.
    pub fn allow(&self, provider: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Named(names) => names.contains(provider),
            Self::First(first) => first.get_or_init(|| provider.to_owned()) == provider,
        }
    }
}

/// So many names are shown.
const NAMES_SHOWN: usize = 5;

/// The allowed providers, for the error about a wrong claim.
impl fmt::Display for Providers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("every provider"),
            Self::Named(names) if names.is_empty() => f.write_str("no provider"),
            Self::Named(names) => {
                let shown: Vec<_> = names.iter().take(NAMES_SHOWN).map(String::as_str).collect();
                f.write_str(&shown.join(", "))?;
                match names.len().saturating_sub(NAMES_SHOWN) {
                    0 => Ok(()),
                    more => write!(f, " and {more} more"),
                }
            }
            Self::First(first) => match first.get() {
                Some(name) => write!(f, "{name}, which was claimed first"),
                None => f.write_str("the provider that is claimed first"),
            },
        }
    }
}

/// The other end of a connection, as far as the transport knows it. All fields are verified; none
/// was merely claimed by the caller.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Peer {
    /// Where the connection comes from, for logs; empty if unknown.
    pub address: String,
    /// The client certificate, if one was shown; its chain ends in the trusted CA.
    pub certificate: Option<Arc<PeerCertificate>>,
    /// The process at the other end of a unix socket.
    pub process: Option<PeerProcess>,
}

/// The identity in a client certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerCertificate {
    /// The URI name; else the DNS name; else the common name.
    pub identity: String,
    /// When it ends, in seconds since 1970.
    pub not_after: i64,
}

/// The process at the other end of a unix socket, by the word of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerProcess {
    /// The effective user.
    pub uid: u32,
    /// The effective group.
    pub gid: u32,
    /// The process id, where the kernel tells.
    pub pid: Option<i32>,
}

/// All that a caller shows.
#[derive(Clone, Copy)]
pub struct Presented<'a> {
    /// The bearer token of the call.
    pub token: Option<&'a str>,
    /// The connection that the call came over.
    pub peer: &'a Peer,
}

impl fmt::Debug for Presented<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Presented")
            .field("token", &self.token.map(|_| "<redacted>"))
            .field("peer", self.peer)
            .finish()
    }
}

/// Why a caller was turned away. Never says anything about the token itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// The caller showed nothing.
    #[error(
        "the call shows no bearer token and no client certificate; set OSTLER_TOKEN_FILE, or OSTLER_CERT_FILE and OSTLER_KEY_FILE, of the driver"
    )]
    Missing,
    /// The caller's credentials are not valid.
    #[error("the bearer token is not valid; check OSTLER_TOKEN_FILE of the driver")]
    Invalid,
    /// The caller's credentials are refused, for this reason.
    #[error("{0}")]
    Refused(String),
    /// The caller is known, and may serve no provider.
    #[error("{0}")]
    Unbound(String),
    /// The caller's credentials cannot be checked for now.
    #[error("the bearer token cannot be checked: {0}")]
    Unavailable(String),
}

impl AuthError {
    /// The kind of error, as a word.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Missing => "Missing",
            Self::Invalid => "Invalid",
            Self::Refused(_) => "Refused",
            Self::Unbound(_) => "Unbound",
            Self::Unavailable(_) => "Unavailable",
        }
    }
}

/// Identifies callers.
#[tonic::async_trait]
pub trait Authenticator: Send + Sync + 'static {
    /// Identifies the caller, and the providers it may claim. Called for every call of a driver.
    async fn authenticate(&self, presented: Presented<'_>) -> Result<Principal, AuthError>;
}

/// Tokens known from the start, e.g. one file for each driver. Only the hashes of the tokens are
/// held.
#[derive(Clone, Default)]
pub struct StaticTokens {
    known: Vec<([u8; 32], Principal)>,
}

impl StaticTokens {
    /// No token is valid.
    pub fn new() -> Self {
        Self::default()
    }

    /// `token` is valid for `principal`. Surrounding white space does not count, because token
    /// files tend to end with a newline. An empty token is never valid.
    #[must_use]
    pub fn with(mut self, token: &str, principal: Principal) -> Self {
        let token = token.trim();
        if !token.is_empty() {
            self.known.push((digest(token), principal));
        }
        self
    }

    /// The holder of `token`.
    pub fn find(&self, token: &str) -> Option<Principal> {
        let presented = digest(token.trim());
        // No early end: the time taken tells nothing about which token came close.
        let found = self.known.iter().fold(None, |found, (known, principal)| {
            if equal(known, &presented) { Some(principal) } else { found }
        });
        found.cloned()
    }
}

impl fmt::Debug for StaticTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.known.iter().map(|(_, who)| who.name.as_str()).collect();
        f.debug_struct("StaticTokens").field("principals", &names).finish()
    }
}

#[tonic::async_trait]
impl Authenticator for StaticTokens {
    async fn authenticate(&self, presented: Presented<'_>) -> Result<Principal, AuthError> {
        self.find(presented.token.ok_or(AuthError::Missing)?).ok_or(AuthError::Invalid)
    }
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

fn equal(a: &[u8; 32], b: &[u8; 32]) -> bool {
    a.iter().zip(b).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fake() -> Principal {
        Principal::new("fake", Providers::named(["fake.ostler.dev"]))
    }

    async fn shown(tokens: &StaticTokens, token: Option<&str>) -> Result<Principal, AuthError> {
        tokens.authenticate(Presented { token, peer: &Peer::default() }).await
    }

    #[tokio::test]
    async fn a_token_names_its_principal_whatever_white_space_surrounds_it() {
        let tokens = StaticTokens::new().with("s3cret\n", fake());
        assert_eq!(shown(&tokens, Some(" s3cret")).await, Ok(fake()));
    }

    #[tokio::test]
    async fn another_token_and_none_are_refused() {
        let tokens = StaticTokens::new().with("s3cret", fake()).with(" \n", fake());
        for token in ["", "s3cre", "s3cret2"] {
            assert_eq!(shown(&tokens, Some(token)).await, Err(AuthError::Invalid));
        }
        assert_eq!(shown(&tokens, None).await, Err(AuthError::Missing));
    }

    #[test]
    fn what_a_principal_may_serve_is_said_in_a_few_words() {
        let first = Providers::First(Arc::default());
        assert_eq!(first.to_string(), "the provider that is claimed first");
        assert!(first.allow("a.example.com"));
        for (providers, said) in [
            (first, "a.example.com, which was claimed first"),
            (Providers::Any, "every provider"),
            (Providers::named([""; 0]), "no provider"),
            (Providers::named(["b", "a"]), "a, b"),
            (Providers::named((0..9).map(|it| it.to_string())), "0, 1, 2, 3, 4 and 4 more"),
        ] {
            assert_eq!(providers.to_string(), said);
        }
    }

    #[test]
    fn the_first_claim_counts_for_all_who_share_it() {
        let first = Providers::First(Arc::default());
        let another = Providers::First(Arc::default());
        assert!(first.allow("a.example.com") && first.clone().allow("a.example.com"));
        assert!(!first.clone().allow("b.example.com") && !first.allow("b.example.com"));
        assert!(another.allow("b.example.com"));
    }

    #[test]
    fn debug_shows_no_token() {
        let tokens = StaticTokens::new().with("s3cret", fake());
        let presented = Presented { token: Some("s3cret"), peer: &Peer::default() };
        let shown = format!("{tokens:?} {presented:?}");
        assert!(shown.contains("fake") && !shown.contains("s3cret"), "{shown}");
    }
}
