//! Drivers prove who they are by the token in a file.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use ostler_sessions::{Principal, Providers, StaticTokens};

/// The token of one driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverToken {
    /// What the driver is called.
    pub name: String,
    /// The only providers that it may serve; `None`: any.
    pub providers: Option<BTreeSet<String>>,
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
                providers: Some([provider.to_owned()].into()),
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
        let providers = self.providers.clone().map_or(Providers::Any, Providers::Named);
        Principal::new(self.name.clone(), providers)
    }
}

/// Whose token this is.
pub(super) async fn find<'a>(
    tokens: impl Iterator<Item = &'a DriverToken>,
    token: &str,
) -> Option<Principal> {
    let mut known = StaticTokens::new();
    for driver in tokens {
        match tokio::fs::read_to_string(&driver.file).await {
            Ok(expected) => known = known.with(&expected, driver.principal()),
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
        assert_eq!(find(tokens.iter(), "first").await.unwrap().name, "fake");
        std::fs::write(&file, "second").unwrap();
        assert_eq!(find(tokens.iter(), "first").await, None);
        let second = find(tokens.iter(), "second").await.unwrap();
        assert!(second.providers.allow("fake.ostler.dev"));
    }
}
