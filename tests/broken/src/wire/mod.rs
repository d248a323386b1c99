//! Sessions that do not keep the rules: a relay between the driver and the core rewrites frames.

mod frames;
mod relay;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use ostler_driver_sdk::{ConnectError, Connection, Connector};
use ostler_proto::v1alpha1::driver_service_server::DriverServiceServer;
use parking_lot::Mutex;
use tokio::io::DuplexStream;
use tonic::transport::{Endpoint, Server};

use self::frames::Memory;
use self::relay::Relay;
use super::{Breakage, Reads};

/// Bytes between driver and relay; a frame is at most 1 MiB.
const PIPE_BYTES: usize = 64 * 1024;
/// Even a driver that hammers leaves the computer a breath.
const HAMMER: Duration = Duration::from_millis(1);

/// `core`, with a relay in between that breaks one rule, and leaves GetMachineStatus out of Hello if the driver has none.
pub(crate) fn tapped(core: Connector, breakage: Breakage, reads: Reads) -> Connector {
    let memory = Arc::new(Mutex::new(Memory::of(reads)));
    Connector::new(move || {
        let (core, memory) = (core.clone(), Arc::clone(&memory));
        async move {
            let connection = dial(&core, breakage).await?;
            let relay = Relay::new(connection.channel(), breakage, memory);
            let channel = pipe(relay).await?;
            Ok(connection.through(channel))
        }
    })
}

async fn dial(core: &Connector, breakage: Breakage) -> Result<Connection, ConnectError> {
    loop {
        match core.connect().await {
            Err(_) if breakage == Breakage::ReconnectBackoff => tokio::time::sleep(HAMMER).await,
            answer => return answer,
        }
    }
}

/// A channel whose other end is the relay. Both go when the driver drops it.
async fn pipe(relay: Relay) -> Result<tonic::transport::Channel, ConnectError> {
    let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
    let incoming = futures::stream::once(async { Ok::<DuplexStream, io::Error>(theirs) });
    let service = DriverServiceServer::new(relay)
        .max_decoding_message_size(relay::MESSAGE_BYTES)
        .max_encoding_message_size(relay::MESSAGE_BYTES);
    tokio::spawn(Server::builder().add_service(service).serve_with_incoming(incoming));
    let mut ours = Some(TokioIo::new(ours));
    let once = tower::service_fn(move |_| {
        let pipe = ours.take().ok_or_else(|| io::Error::other("the pipe is used up"));
        async move { pipe }
    });
    let endpoint = "http://relay";
    let failed = |source| ConnectError::Transport { endpoint: endpoint.to_owned(), source };
    Endpoint::from_static(endpoint).connect_with_connector(once).await.map_err(failed)
}
