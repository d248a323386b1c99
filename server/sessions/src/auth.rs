//! Who a driver is, and which providers it may serve.

use std::collections::BTreeSet;
use std::fmt;

use sha2::{Digest, Sha256};

/// Who dialled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// Stable name: sessions of one name replace each other, sessions of two never do.
    pub name: String,
    /// What it may claim.
    pub providers: Providers,
}

/// The providers that a principal may claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Providers {
    /// Every provider.
    Any,
    /// These, by the names that drivers use.
    Named(BTreeSet<String>),
}

impl Providers {
    /// The providers of these names.
    pub fn named<I: IntoIterator<Item = S>, S: Into<String>>(names: I) -> Self {
        Self::Named(names.into_iter().map(Into::into).collect())
    }

    /// Whether `provider` is among them.
    pub fn allow(&self, provider: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Named(names) => names.contains(provider),
        }
    }
}

/// Why a caller was turned away. Never says anything about the token itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// The token is not valid.
    #[error("the bearer token is not valid; check OSTLER_TOKEN_FILE of the driver")]
    Invalid,
    /// The token cannot be checked for now.
    #[error("the bearer token cannot be checked: {0}")]
    Unavailable(String),
}

/// Tells who holds a token.
#[tonic::async_trait]
pub trait Authenticator: Send + Sync + 'static {
    /// Who holds `token`. `peer` is the address it came from, for logs only; empty if unknown.
    async fn authenticate(&self, token: &str, peer: &str) -> Result<Principal, AuthError>;
}

/// Tokens known from the start, e.g. one file for each driver. Holds their hashes only.
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
}

impl fmt::Debug for StaticTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.known.iter().map(|(_, who)| who.name.as_str()).collect();
        f.debug_struct("StaticTokens").field("principals", &names).finish()
    }
}

#[tonic::async_trait]
impl Authenticator for StaticTokens {
    async fn authenticate(&self, token: &str, _peer: &str) -> Result<Principal, AuthError> {
        let presented = digest(token.trim());
        // No early end: the time taken tells nothing about which token came close.
        let found = self.known.iter().fold(None, |found, (known, principal)| {
            if equal(known, &presented) { Some(principal) } else { found }
        });
        found.cloned().ok_or(AuthError::Invalid)
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
        Principal { name: "fake".into(), providers: Providers::named(["fake.ostler.dev"]) }
    }

    #[tokio::test]
    async fn a_token_names_its_principal_whatever_white_space_surrounds_it() {
        let tokens = StaticTokens::new().with("s3cret\n", fake());
        assert_eq!(tokens.authenticate(" s3cret", "").await, Ok(fake()));
    }

    #[tokio::test]
    async fn another_token_and_an_empty_one_are_refused() {
        let tokens = StaticTokens::new().with("s3cret", fake()).with(" \n", fake());
        for token in ["", "s3cre", "s3cret2"] {
            assert_eq!(tokens.authenticate(token, "").await, Err(AuthError::Invalid));
        }
    }

    #[test]
    fn debug_shows_no_token() {
        let shown = format!("{:?}", StaticTokens::new().with("s3cret", fake()));
        assert!(shown.contains("fake") && !shown.contains("s3cret"), "{shown}");
    }
}
