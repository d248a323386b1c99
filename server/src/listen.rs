//! Flags that say where drivers and autoscalers dial in, and how they are protected on the way.

use std::path::PathBuf;

use anyhow::Context as _;
use ostler_autoscaler::AutoscalerListener;
use ostler_sessions::{ListenAddress, Listeners, ServerTls, TlsFiles};

/// Where drivers dial in.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct DriverListenArgs {
    /// Where drivers dial in (gRPC): ADDR:PORT, unix:PATH or unix:PATH,mode=0660; repeatable
    ///
    /// Without --drivers-tls-cert, TCP is plaintext and for loopback only; with it, every TCP port speaks TLS. A socket
    /// is for its owner only, or with mode=0660 for the group of its directory as well.
    #[arg(
        long = "drivers-listen",
        value_name = "ADDR:PORT|unix:PATH",
        default_value = "127.0.0.1:5000"
    )]
    listen: Vec<ListenAddress>,
    /// Certificate (PEM, with its chain) to show to drivers; read again when it changes
    #[arg(long = "drivers-tls-cert", value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// Private key (PEM) of that certificate; read again when it changes
    #[arg(id = "key", long = "drivers-tls-key", value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
    /// CA certificates (PEM) that client certificates of drivers must come from; read again when they change
    ///
    /// With it, a driver may prove who it is by a certificate instead of a token.
    #[arg(long = "drivers-client-ca", value_name = "FILE", requires = "certificate")]
    client_ca: Option<PathBuf>,
}

impl DriverListenArgs {
    /// Binds all addresses.
    pub(crate) async fn bind(self) -> anyhow::Result<Listeners> {
        let Self { listen, certificate, key, client_ca } = self;
        let tls = match (certificate, key) {
            (Some(certificate), Some(key)) => Some(TlsFiles { certificate, key, client_ca }),
            _ => None,
        };
        listen_for_drivers(&listen, tls).await
    }
}

/// Binds all addresses, as `--drivers-listen` and `--drivers-tls-cert` name them.
///
/// # Errors
/// An address cannot be listened on, or the certificate cannot be used.
pub async fn listen_for_drivers(
    addresses: &[ListenAddress],
    tls: Option<TlsFiles>,
) -> anyhow::Result<Listeners> {
    let tls = match tls {
        Some(files) => {
            Some(ServerTls::load(files).await.context("--drivers-tls-cert cannot be used")?)
        }
        None => None,
    };
    Listeners::bind(addresses, tls).await.context("--drivers-listen cannot be used")
}

/// Where autoscalers dial in.
#[derive(Debug, Clone, clap::Args)]
#[expect(clippy::struct_field_names, reason = "clap names flags after the fields")]
pub(crate) struct AutoscalerListenArgs {
    /// Where cluster-autoscaler dials in with --cloud-provider=externalgrpc: ADDR:PORT or unix:PATH; off by default
    ///
    /// Without --autoscaler-tls-cert, TCP is plaintext and for loopback only. Any replica may be asked.
    #[arg(long = "autoscaler-listen", value_name = "ADDR:PORT|unix:PATH")]
    autoscaler_listen: Option<ListenAddress>,
    /// Certificate (PEM, with its chain) to show to autoscalers; read again when it changes
    #[arg(
        long,
        value_name = "FILE",
        requires_all = ["autoscaler_listen", "autoscaler_tls_key", "autoscaler_client_ca"]
    )]
    autoscaler_tls_cert: Option<PathBuf>,
    /// Private key (PEM) of that certificate; read again when it changes
    #[arg(long, value_name = "FILE", requires = "autoscaler_tls_cert")]
    autoscaler_tls_key: Option<PathBuf>,
    /// CA certificates (PEM) that client certificates of autoscalers must come from: each may scale every group
    #[arg(long, value_name = "FILE", requires = "autoscaler_tls_cert")]
    autoscaler_client_ca: Option<PathBuf>,
}

impl AutoscalerListenArgs {
    /// Binds the address, if there is one.
    pub(crate) async fn bind(self) -> anyhow::Result<Option<AutoscalerListener>> {
        let Some(address) = self.autoscaler_listen else { return Ok(None) };
        let tls = self.autoscaler_tls_cert.zip(self.autoscaler_tls_key);
        let client_ca = self.autoscaler_client_ca;
        let tls = tls.map(|(certificate, key)| TlsFiles { certificate, key, client_ca });
        AutoscalerListener::bind(&address, tls).await.map(Some)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        drivers: DriverListenArgs,
    }

    fn parse(args: &[&str]) -> Result<DriverListenArgs, clap::Error> {
        Cli::try_parse_from([&["core"], args].concat()).map(|cli| cli.drivers)
    }

    #[test]
    fn a_certificate_needs_its_key_and_a_client_ca_needs_both() {
        for half in [
            &["--drivers-tls-cert", "c"][..],
            &["--drivers-tls-key", "k"],
            &["--drivers-client-ca", "ca"],
        ] {
            parse(half).unwrap_err();
        }
        parse(&["--drivers-tls-cert", "c", "--drivers-tls-key", "k"]).unwrap();
    }

    #[tokio::test]
    async fn plaintext_to_the_network_is_refused_and_the_error_says_what_to_do() {
        let args = parse(&["--drivers-listen", "0.0.0.0:0"]).unwrap();
        let refused = format!("{:#}", args.bind().await.unwrap_err());
        for part in ["--drivers-listen", "0.0.0.0:0", "unix:PATH"] {
            assert!(refused.contains(part), "{refused}");
        }
    }

    #[tokio::test]
    async fn several_addresses_are_listened_on() {
        let dir = tempfile::tempdir().unwrap();
        let socket = format!("unix:{}", dir.path().join("core.sock").display());
        let args =
            parse(&["--drivers-listen", "127.0.0.1:0", "--drivers-listen", &socket]).unwrap();
        assert_eq!(args.bind().await.unwrap().addresses().len(), 2);
    }
}
