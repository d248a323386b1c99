//! Drivers prove who they are by the token in a file.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use ostler_sessions::{
    AuthError, Authenticator, Presented, Principal, Providers, StaticTokens, async_trait,
};

/// The token of one driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverToken {
    /// What the driver is called.
    pub name: String,
    /// The only provider that it may serve; `None`: any.
    pub provider: Option<String>,
    /// Where its token is. Read whenever a driver presents one, so that it can be changed at any time.
    pub file: PathBuf,
}

/// `PROVIDER=FILE`, as `--driver-token` takes it.
impl FromStr for DriverToken {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('=') {
            Some((provider, file)) if !provider.is_empty() && !file.is_empty() => Ok(Self {
                name: provider.to_owned(),
                provider: Some(provider.to_owned()),
                file: Path::new(file).to_owned(),
            }),
            _ => Err(format!(
                "`{text}` is not PROVIDER=FILE, e.g. fake.ostler.dev=/run/ostler/token"
            )),
        }
    }
}

impl DriverToken {
    fn principal(&self) -> Principal {
        let providers = match &self.provider {
            Some(provider) => Providers::named([provider]),
            None => Providers::Any,
        };
        Principal::new(self.name.clone(), providers)
    }
}

/// Knows the drivers by their token files.
#[derive(Clone, Debug)]
pub(crate) struct TokenFiles(pub(crate) Vec<DriverToken>);

#[async_trait]
impl Authenticator for TokenFiles {
    async fn authenticate(&self, presented: Presented<'_>) -> Result<Principal, AuthError> {
        let mut known = StaticTokens::new();
        for driver in &self.0 {
            match tokio::fs::read_to_string(&driver.file).await {
                Ok(expected) => known = known.with(&expected, driver.principal()),
                Err(error) => {
                    tracing::warn!(driver = driver.name, %error, "the token file cannot be read");
                }
            }
        }
        known.authenticate(presented).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_flag_names_provider_and_file() {
        let token: DriverToken = "aws.example.com=/run/token".parse().unwrap();
        assert_eq!(token.provider.as_deref(), Some("aws.example.com"));
        assert_eq!(token.file, Path::new("/run/token"));
        for broken in ["", "aws.example.com", "=x", "x="] {
            assert!(broken.parse::<DriverToken>().unwrap_err().contains("PROVIDER=FILE"));
        }
    }

    async fn shown(tokens: &TokenFiles, token: &str) -> Result<Principal, AuthError> {
        let peer = ostler_sessions::Peer::default();
        tokens.authenticate(Presented { token: Some(token), peer: &peer }).await
    }

    #[tokio::test]
    async fn a_changed_token_file_counts_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        std::fs::write(&file, "first\n").unwrap();
        let tokens = TokenFiles(vec![DriverToken {
            name: "fake".to_owned(),
            provider: Some("fake.ostler.dev".to_owned()),
            file: file.clone(),
        }]);
        assert_eq!(shown(&tokens, "first").await.unwrap().name, "fake");
        std::fs::write(&file, "second").unwrap();
        assert_eq!(shown(&tokens, "first").await, Err(AuthError::Invalid));
        assert!(shown(&tokens, "second").await.unwrap().providers.allow("fake.ostler.dev"));
    }
}
