//! Drivers authenticate by the token in a file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

use ostler_sessions::{Principal, Providers, StaticTokens};
use parking_lot::Mutex;

/// The token of a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverToken {
    /// The name of the driver.
    pub name: String,
    /// The only providers for this token; `None`: the provider claimed first, for the life of the process.
    pub providers: Option<BTreeSet<String>>,
    /// The file with the token. Read whenever a driver presents a token, so that the file can change at any time.
    pub file: PathBuf,
}

/// `PROVIDER=FILE`, as `--driver-token` takes it.
impl FromStr for DriverToken {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('=') {
            Some((provider, file)) if !provider.is_empty() && !file.is_empty() => Ok(Self {
                name: provider.to_owned(),
                providers: Some([provider.to_owned()].into()),
                file: Path::new(file).to_owned(),
            }),
            _ => Err(format!(
                "`{text}` is not PROVIDER=FILE, e.g. fake.ostler.dev=/run/ostler/token"
            )),
        }
    }
}

/// First claims of drivers that may claim anything, by name. Bounded by the names that operators configure.
#[derive(Debug, Default)]
pub(super) struct FirstClaims(Mutex<BTreeMap<String, Arc<OnceLock<String>>>>);

impl FirstClaims {
    fn of(&self, name: &str) -> Providers {
        let mut claims = self.0.lock();
        Providers::First(Arc::clone(claims.entry(name.to_owned()).or_default()))
    }
}

impl DriverToken {
    fn principal(&self, claims: &FirstClaims) -> Principal {
        let named = self.providers.clone().map(Providers::Named);
        let providers = named.unwrap_or_else(|| claims.of(&self.name));
        Principal::new(self.name.clone(), providers)
    }
}

/// The owner of a token.
pub(super) async fn find<'a>(
    tokens: impl Iterator<Item = &'a DriverToken>,
    claims: &FirstClaims,
    token: &str,
) -> Option<Principal> {
    let mut known = StaticTokens::new();
    for driver in tokens {
        match tokio::fs::read_to_string(&driver.file).await {
            Ok(expected) => known = known.with(&expected, driver.principal(claims)),
            Err(error) => {
                tracing::warn!(driver = driver.name, %error, "the token file cannot be read");
            }
        }
    }
    known.find(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_flag_names_provider_and_file() {
        let token: DriverToken = "aws.example.com=/run/token".parse().unwrap();
        assert_eq!(token.providers, Some(["aws.example.com".to_owned()].into()));
        assert_eq!(token.file, Path::new("/run/token"));
        for broken in ["", "aws.example.com", "=x", "x="] {
            assert!(broken.parse::<DriverToken>().unwrap_err().contains("PROVIDER=FILE"));
        }
    }

    #[tokio::test]
    async fn a_changed_token_file_counts_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        std::fs::write(&file, "first\n").unwrap();
        let tokens = [DriverToken {
            name: "fake".to_owned(),
            providers: Some(["fake.ostler.dev".to_owned()].into()),
            file: file.clone(),
        }];
        let claims = FirstClaims::default();
        assert_eq!(find(tokens.iter(), &claims, "first").await.unwrap().name, "fake");
        std::fs::write(&file, "second").unwrap();
        assert_eq!(find(tokens.iter(), &claims, "first").await, None);
        let second = find(tokens.iter(), &claims, "second").await.unwrap();
        assert!(second.providers.allow("fake.ostler.dev"));
    }

    #[tokio::test]
    async fn a_driver_that_may_claim_any_provider_keeps_to_the_first() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "token").unwrap();
        let path = file.path().to_owned();
        let tokens = [DriverToken { name: "mine".to_owned(), providers: None, file: path }];
        let claims = FirstClaims::default();
        let who = || async { find(tokens.iter(), &claims, "token").await.unwrap().providers };
        assert!(who().await.allow("a.example.com"));
        assert!(!who().await.allow("b.example.com"));
        assert!(who().await.allow("a.example.com"));
    }
}
