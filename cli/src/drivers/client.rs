//! The way to the admin listener, and errors that say what to do.

use std::path::PathBuf;

use anyhow::{Context as _, anyhow, bail};
use ostler_dial::{Dial, DialUnix, Proxies, Trusted};
use ostler_proto::v1alpha1::driver_debug_service_client::DriverDebugServiceClient;
use ostler_proto::v1alpha1::{
    ListOperationsRequest, ListOperationsResponse, ListOrphansRequest, ListOrphansResponse,
    ListSessionsRequest, ListSessionsResponse,
};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status};

use crate::data_dir::own_uid;

/// As much as the core may answer.
const ANSWER_BYTES: usize = 80 << 20;

/// A client of the debug service.
pub(super) type Client = DriverDebugServiceClient<InterceptedService<Channel, Token>>;

/// The admin listener of a core, for commands that ask it beside the API.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct AdminArgs {
    /// The admin listener of the core, which knows the drivers; by default that of the `ostler up` whose kubeconfig is used
    #[arg(long, value_name = "ENDPOINT", env = "OSTLER_ADMIN")]
    admin: Option<String>,
    /// The token of an admin listener on loopback (its `--admin-token-file`)
    #[arg(long, value_name = "FILE", env = "OSTLER_ADMIN_TOKEN_FILE")]
    admin_token_file: Option<PathBuf>,
    /// User id that the core runs as on this host, if it is not yours: no other user is shown the token
    #[arg(long, value_name = "UID", env = "OSTLER_CORE_UID")]
    core_uid: Option<u32>,
}

impl AdminArgs {
    /// Connects to the listener that is named, or else to that of the `ostler up` with this data directory.
    async fn connect(&self, home: Option<PathBuf>) -> anyhow::Result<Client> {
        let here = || Some(format!("unix:{}", home?.join("admin.sock").display()));
        let endpoint = self.admin.clone().or_else(here).context(
            "the drivers are known to the core alone; name its admin listener with --admin ENDPOINT",
        )?;
        let trusted = self.core_uid.map_or_else(|| Trusted::Own(own_uid()), Trusted::Given);
        Admin { endpoint, token_file: self.admin_token_file.clone(), trusted }.connect().await
    }

    /// The drivers that are connected to the core.
    pub(crate) async fn sessions(
        &self,
        home: Option<PathBuf>,
    ) -> anyhow::Result<ListSessionsResponse> {
        let mut client = self.connect(home).await?;
        let sessions = client.list_sessions(ListSessionsRequest::default()).await;
        Ok(sessions.map_err(told)?.into_inner())
    }

    /// The drivers that are connected to the core, their operations, and the orphans.
    pub(crate) async fn all(&self, home: Option<PathBuf>) -> anyhow::Result<Known> {
        let mut client = self.connect(home).await?;
        let sessions = client.list_sessions(ListSessionsRequest::default()).await;
        let operations = client.list_operations(ListOperationsRequest::default()).await;
        let orphans = client.list_orphans(ListOrphansRequest::default()).await;
        Ok(Known {
            sessions: sessions.map_err(told)?.into_inner(),
            operations: operations.map_err(told)?.into_inner(),
            // A core that does not lead, or has read nothing yet, answers with an error.
            orphans: orphans.map(Response::into_inner).map_err(|it| it.message().to_owned()),
        })
    }
}

/// A core's knowledge beside the API.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) sessions: ListSessionsResponse,
    pub(crate) operations: ListOperationsResponse,
    pub(crate) orphans: Result<ListOrphansResponse, String>,
}

/// Where the core answers people.
#[derive(Debug)]
pub(super) struct Admin {
    pub(super) endpoint: String,
    pub(super) token_file: Option<PathBuf>,
    /// The users that may see the token.
    pub(super) trusted: Trusted,
}

impl Admin {
    pub(super) async fn connect(&self) -> anyhow::Result<Client> {
        let shown = &self.endpoint;
        let endpoint = Endpoint::from_shared(uri(shown)?)
            .with_context(|| format!("--admin {shown} is neither unix:PATH nor an address"))?;
        let token = self.token()?;
        let trusted = if self.token_file.is_some() { self.trusted } else { Trusted::AnyUser };
        let channel = if let Some(path) = shown.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            endpoint.connect_with_connector(DialUnix::new(path.into(), trusted)).await
        } else {
            let dial = Dial::new(Proxies::of_environment()).trusting(trusted);
            endpoint.connect_with_connector(dial).await
        };
        let channel = channel.map_err(|error| {
            anyhow::Error::new(error).context(format!(
                "no core listens at {shown}; is `ostler up` running, or should --admin name another?"
            ))
        })?;
        let client = DriverDebugServiceClient::with_interceptor(channel, token);
        Ok(client.max_decoding_message_size(ANSWER_BYTES))
    }

    fn token(&self) -> anyhow::Result<Token> {
        let Some(file) = &self.token_file else { return Ok(Token(None)) };
        let token = std::fs::read_to_string(file)
            .with_context(|| format!("--admin-token-file {} cannot be read", file.display()))?;
        let mut header: MetadataValue<Ascii> = format!("Bearer {}", token.trim())
            .parse()
            .with_context(|| format!("--admin-token-file {} holds no token", file.display()))?;
        header.set_sensitive(true);
        Ok(Token(Some(header)))
    }
}

/// What tonic takes: a socket as it is, an address with a scheme.
fn uri(endpoint: &str) -> anyhow::Result<String> {
    if endpoint.is_empty() {
        bail!("--admin is empty; give unix:PATH or an address such as 127.0.0.1:5001");
    }
    let known = ["unix:", "http://"].iter().any(|scheme| endpoint.starts_with(scheme));
    Ok(if known { endpoint.to_owned() } else { format!("http://{endpoint}") })
}

/// Shows the admin token with every call, if there is one.
#[derive(Clone, Debug)]
pub(super) struct Token(Option<MetadataValue<Ascii>>);

impl Interceptor for Token {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.0 {
            request.metadata_mut().insert("authorization", token.clone());
        }
        Ok(request)
    }
}

/// A refusal of the core, for people.
#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
pub(super) fn told(status: Status) -> anyhow::Error {
    let message = status.message();
    let code = status.code();
    if code == Code::Unauthenticated {
        return anyhow!("the core refused: {message}; give it with --admin-token-file");
    }
    if message.is_empty() {
        return anyhow!("the core refused: {code}");
    }
    anyhow!("the core refused: {message} ({code:?})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_socket_or_an_address() {
        for (given, expected) in [
            ("unix:./.ostler/admin.sock", "unix:./.ostler/admin.sock"),
            ("127.0.0.1:5001", "http://127.0.0.1:5001"),
            ("http://127.0.0.1:5001", "http://127.0.0.1:5001"),
        ] {
            assert_eq!(uri(given).unwrap(), expected);
        }
        assert!(uri("").is_err());
    }

    #[tokio::test]
    async fn a_core_that_is_not_there_is_named_with_what_to_do() {
        let endpoint = "unix:/no/such/admin.sock".to_owned();
        let refused = Admin { endpoint, token_file: None, trusted: Trusted::AnyUser }
            .connect()
            .await
            .unwrap_err();
        let said = refused.to_string();
        assert!(said.contains("no core listens at unix:/no/such/admin.sock"), "{said}");
        assert!(said.contains("is `ostler up` running"), "{said}");
    }
}
