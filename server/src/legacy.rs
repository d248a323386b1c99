//! Flags for drivers of the first proposal. Legacy drivers show no credentials, so they run on this host.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use ostler_legacy::{LegacyKind, LegacyOptions};
use ostler_sessions::{ListenAddress, Listeners};

/// Where drivers of the first proposal dial in, and what they are.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct LegacyArgs {
    /// Where drivers of the first proposal dial in, unencrypted: loopback or unix:PATH; off by default
    ///
    /// Every client that can connect can register as such a driver. docs/mcm-providers.md says what is safe
    /// about it.
    #[arg(id = "legacy", long = "legacy-listen", value_name = "ADDR:PORT|unix:PATH", value_parser = here)]
    listen: Option<ListenAddress>,
    /// NAME with which such a driver registers, and the provider of its classes; repeatable
    #[arg(
        id = "legacy_drivers",
        long = "legacy-driver",
        value_name = "GROUP/VERSION/KIND=PROVIDER",
        value_parser = driver,
        requires = "legacy"
    )]
    drivers: Vec<(LegacyKind, String)>,
}

impl LegacyArgs {
    /// Binds the address, if there is one.
    pub(crate) async fn bind(self) -> anyhow::Result<Option<(Listeners, LegacyOptions)>> {
        let Some(listen) = self.listen else { return Ok(None) };
        let mut drivers = BTreeMap::new();
        for (kind, provider) in self.drivers {
            if let Some(other) = drivers.insert(kind.clone(), provider.clone()) {
                bail!("--legacy-driver names {kind} twice, for {other} and {provider}");
            }
        }
        if drivers.is_empty() {
            bail!(
                "--legacy-listen needs --legacy-driver GROUP/VERSION/KIND=PROVIDER as well, or no driver can register"
            );
        }
        let listeners = Listeners::bind(&[listen], None).await;
        Ok(Some((
            listeners.context("--legacy-listen cannot be used")?,
            LegacyOptions::new(drivers),
        )))
    }
}

fn here(text: &str) -> Result<ListenAddress, String> {
    match text.parse()? {
        ListenAddress::Tcp(address) if !address.ip().is_loopback() => Err(format!(
            "{address} is not a loopback address; such drivers show no credentials, so they must run beside the core"
        )),
        local @ (ListenAddress::Tcp(_) | ListenAddress::Unix { .. }) => Ok(local),
    }
}

fn driver(text: &str) -> Result<(LegacyKind, String), String> {
    let (kind, provider) = text
        .split_once('=')
        .filter(|(_, provider)| !provider.is_empty())
        .ok_or_else(|| format!("`{text}` is not GROUP/VERSION/KIND=PROVIDER"))?;
    let kind = kind.parse::<LegacyKind>().map_err(|error| error.to_string())?;
    Ok((kind, provider.to_owned()))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    const DRIVER: &str = "machine.sapcloud.io/v1alpha1/AWSMachineClass=aws.example.com";

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        legacy: LegacyArgs,
    }

    fn parse(args: &[&str]) -> Result<LegacyArgs, clap::Error> {
        Cli::try_parse_from([&["core"], args].concat()).map(|cli| cli.legacy)
    }

    #[test]
    fn only_this_host_is_listened_on() {
        for address in ["127.0.0.1:50000", "[::1]:50000", "unix:/run/ostler/legacy.sock"] {
            parse(&["--legacy-listen", address, "--legacy-driver", DRIVER]).unwrap();
        }
        for address in ["0.0.0.0:50000", "[::]:50000", "10.0.0.1:50000", "localhost:1", "unix:"] {
            parse(&["--legacy-listen", address, "--legacy-driver", DRIVER]).unwrap_err();
        }
    }

    #[test]
    fn a_driver_is_named_with_its_provider() {
        let (kind, provider) = driver(DRIVER).unwrap();
        assert_eq!((kind.kind.as_str(), provider.as_str()), ("AWSMachineClass", "aws.example.com"));
        for broken in ["a/b/c", "a/b/c=", "a/b=p", "=p"] {
            assert!(driver(broken).is_err(), "{broken}");
        }
    }

    #[tokio::test]
    async fn it_is_off_by_default_and_one_flag_without_the_other_is_a_mistake() {
        assert!(parse(&[]).unwrap().bind().await.unwrap().is_none());
        parse(&["--legacy-driver", DRIVER]).unwrap_err();
        let listen = ["--legacy-listen", "127.0.0.1:0"];
        assert!(parse(&listen).unwrap().bind().await.is_err());
        let both = [&listen[..], &["--legacy-driver", DRIVER]].concat();
        assert!(parse(&both).unwrap().bind().await.unwrap().is_some());
        let twice = [&both[..], &["--legacy-driver", DRIVER]].concat();
        assert!(parse(&twice).unwrap().bind().await.is_err());
    }
}
