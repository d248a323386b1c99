//! The choice of drivers that `ostler up` starts.

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::Context as _;
use ostler_driver_sdk::is_provider;
use serde::{Deserialize, Serialize};

/// A value of `--driver`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum DriverChoice {
    /// `none`: start no driver.
    None,
    /// `fake`: the built-in fake cloud.
    Fake,
    /// `docker`: the built-in driver that makes containers on a Docker Engine.
    Docker,
    /// `PATH` or `PROVIDER=PATH`: any executable that dials in.
    Path {
        /// The only provider it may claim; any, if not said.
        provider: Option<String>,
        /// The executable.
        path: PathBuf,
    },
}

/// A provider, as a person names it.
pub(crate) fn provider(text: &str) -> Result<String, String> {
    if is_provider(text) {
        return Ok(text.to_owned());
    }
    Err(format!("`{text}` cannot be a PROVIDER, which is a DNS name such as cloud.example.com"))
}

impl FromStr for DriverChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "none" => Ok(Self::None),
            "fake" => Ok(Self::Fake),
            "docker" => Ok(Self::Docker),
            other => {
                let (provider, path) = other
                    .split_once('=')
                    .map_or((None, other), |(provider, path)| (Some(provider), path));
                let provider = provider.map(self::provider).transpose()?;
                // It is remembered for commands that run in another directory. A link stays one: it may lead to another version then.
                if let Ok(path) = std::path::absolute(path)
                    && path.is_file()
                {
                    return Ok(Self::Path { provider, path });
                }
                Err(format!(
                    "`{other}` is neither a built-in driver (fake, docker), nor `none`, nor the path of an executable ([PROVIDER=]PATH)"
                ))
            }
        }
    }
}

impl DriverChoice {
    /// What the driver is called in messages and in the data directory, where its token is: `up` starts no two of one name.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::None => "none".to_owned(),
            Self::Fake => "fake".to_owned(),
            Self::Docker => "docker".to_owned(),
            Self::Path { provider: Some(provider), .. } => provider.clone(),
            Self::Path { path, provider: None } => path
                .file_name()
                .map_or_else(|| "driver".to_owned(), |name| name.to_string_lossy().into_owned()),
        }
    }

    /// The program to start; `None`: this program.
    ///
    /// # Errors
    /// It is not there, or cannot be executed.
    pub(crate) fn executable(&self) -> anyhow::Result<Option<PathBuf>> {
        let Self::Path { path, .. } = self else { return Ok(None) };
        let found = path.canonicalize();
        let path = found.with_context(|| format!("driver {} cannot be found", path.display()))?;
        ostler_adapter::refuse_unexecutable(&path)?;
        Ok(Some(path))
    }

    /// The only provider that the driver may claim; `None`: any.
    pub(crate) fn provider(&self) -> Option<&str> {
        match self {
            Self::Fake => Some(ostler_driver_fake::PROVIDER),
            Self::Docker => Some(ostler_driver_docker::PROVIDER),
            Self::Path { provider, .. } => provider.as_deref(),
            Self::None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_is_a_name_we_know_or_an_executable_that_exists() {
        assert_eq!("fake".parse(), Ok(DriverChoice::Fake));
        assert_eq!("docker".parse(), Ok(DriverChoice::Docker));
        assert_eq!("none".parse(), Ok(DriverChoice::None));
        let path = PathBuf::from("/bin/sh");
        assert_eq!(
            "/bin/sh".parse(),
            Ok(DriverChoice::Path { provider: None, path: path.clone() })
        );
        assert_eq!(
            DriverChoice::Path { provider: None, path: "./class.py".into() }.name(),
            "class.py"
        );
        let provider = Some("sh.example.com".to_owned());
        assert_eq!("sh.example.com=/bin/sh".parse(), Ok(DriverChoice::Path { provider, path }));
        let name = |text: &str| text.parse::<DriverChoice>().unwrap().name();
        assert_eq!(name("/bin/sh"), "sh");
        assert_eq!(name("a.example.com=/bin/sh"), "a.example.com", "not its token is another's");
        for bad in ["../a", "..", "", "A", "a..b"] {
            let refused = format!("{bad}=/bin/sh").parse::<DriverChoice>().unwrap_err();
            assert!(refused.contains("PROVIDER"), "{refused}");
        }
        let here = "src/lib.rs".parse();
        let path = std::env::current_dir().unwrap().join("src/lib.rs");
        assert_eq!(
            here,
            Ok(DriverChoice::Path { provider: None, path }),
            "good from any directory"
        );
        let refused = "dokcer".parse::<DriverChoice>().unwrap_err();
        assert!(refused.contains("`dokcer`") && refused.contains("fake"), "{refused}");
    }
}
