//! Where autoscalers dial in: plaintext on loopback and unix sockets, TLS with client certificates elsewhere.

use std::time::Duration;

use anyhow::Context as _;
use ostler_controllers::Scaler;
use ostler_sessions::{
    Gate, GateLayer, GateRules, ListenAddress, Listeners, Pass, Peer, ServerTls, TlsFiles,
    bounded_server,
};
use tokio_util::sync::CancellationToken;
use tonic::service::InterceptorLayer;
use tonic::{Request, Status};

use crate::routes;

/// Concurrent connections: a few autoscalers, and people with grpcurl.
const CONNECTIONS: usize = 64;
/// For how long calls may take to end when the core goes.
const END_WITHIN: Duration = Duration::from_secs(2);
/// Calls of this service may stay, and the call with many Nodes may be large.
const OWN: &str = "/";
const LARGE: &str =
    "/clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider/NodeGroupDeleteNodes";

/// A bound listener.
#[derive(Debug)]
pub struct AutoscalerListener {
    listeners: Listeners,
    gate: Gate,
}

impl AutoscalerListener {
    /// Listens. With `tls`, which names the CA of the clients, a TCP port speaks TLS, and each client shows a certificate of
    /// that CA; without, it is on loopback.
    ///
    /// # Errors
    /// The address cannot be listened on, or the certificate cannot be used.
    pub async fn bind(address: &ListenAddress, tls: Option<TlsFiles>) -> anyhow::Result<Self> {
        let tls = match tls {
            Some(files) => {
                Some(ServerTls::load(files).await.context("--autoscaler-tls-cert cannot be used")?)
            }
            None => None,
        };
        let listeners = Listeners::bind(std::slice::from_ref(address), tls)
            .await
            .with_context(|| format!("--autoscaler-listen {address} cannot be used"))?;
        Ok(Self { listeners, gate: Gate::new(GateRules::new(CONNECTIONS)) })
    }

    /// The listener's address, with the chosen port in place of port 0.
    pub fn address(&self) -> Option<ListenAddress> {
        self.listeners.addresses().pop()
    }

    /// Serves until `end`, and then for as long as calls take to end, but not for long.
    ///
    /// # Errors
    /// The listener failed.
    pub async fn serve(self, scaler: Scaler, end: CancellationToken) -> anyhow::Result<()> {
        let Self { listeners, gate } = self;
        let secured = listeners.tls().is_some();
        let server = bounded_server()
            .layer(GateLayer::<Peer>::new(OWN, LARGE))
            .layer(InterceptorLayer::new(move |request| admit(request, secured)))
            .add_routes(routes(scaler))
            .serve_with_incoming_shutdown(
                gate.guard(listeners.incoming()),
                end.clone().cancelled_owned(),
            );
        let mut server = Box::pin(server);
        tokio::select! {
            ended = &mut server => return ended.context("the listener for autoscalers failed"),
            () = end.cancelled() => {}
        }
        let _late = tokio::time::timeout(END_WITHIN, server).await;
        Ok(())
    }
}

/// Clients on loopback or on a socket are trusted; any other client shows a certificate.
fn admit(request: Request<()>, secured: bool) -> Result<Request<()>, Status> {
    let peer = request.extensions().get::<Peer>().cloned().unwrap_or_default();
    let who = match (&peer.certificate, &peer.process) {
        (Some(certificate), _) => certificate.identity.clone(),
        (None, Some(process)) => format!("user {}", process.uid),
        (None, None) if secured => {
            let what = "a client certificate of the CA in --autoscaler-client-ca is needed";
            return Err(Status::unauthenticated(what));
        }
        (None, None) => "loopback".to_owned(),
    };
    if let Some(pass) = request.extensions().get::<Pass>() {
        pass.known(&who)?;
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ostler_sessions::PeerCertificate;

    use super::*;

    #[test]
    fn with_tls_only_a_client_with_a_certificate_is_admitted() {
        let ask = |certificate: Option<&str>, secured| {
            let mut request = Request::new(());
            let certificate = certificate.map(|identity| {
                Arc::new(PeerCertificate { identity: identity.to_owned(), not_after: i64::MAX })
            });
            request.extensions_mut().insert(Peer { certificate, ..Peer::default() });
            admit(request, secured)
        };
        ask(Some("autoscaler"), true).unwrap();
        ask(None, false).unwrap();
        assert_eq!(ask(None, true).unwrap_err().code(), tonic::Code::Unauthenticated);
    }

    #[tokio::test]
    async fn plaintext_to_the_network_is_refused() {
        let refused = AutoscalerListener::bind(&"0.0.0.0:0".parse().unwrap(), None).await;
        let refused = format!("{:#}", refused.unwrap_err());
        assert!(refused.contains("--autoscaler-listen 0.0.0.0:0"), "{refused}");
    }
}
