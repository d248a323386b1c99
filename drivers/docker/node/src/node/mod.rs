//! The Node of this machine and its Lease: registered once, kept alive, and reported not ready at the end.

mod heartbeat;
mod object;

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::machine::Facts;
use crate::options::{Labels, Taints};

pub(crate) use heartbeat::{beat, register, report_not_ready};

/// The content of the Node that stays the same while this process lives.
#[derive(Debug, Clone)]
pub(crate) struct About {
    pub(crate) name: String,
    pub(crate) provider_id: Option<String>,
    pub(crate) taints: Taints,
    pub(crate) labels: Labels,
    pub(crate) facts: Facts,
    /// On the file system that pods write to.
    pub(crate) disk: PathBuf,
}

/// A name server that does not answer may not hold up a heartbeat.
const LOOK_UP: Duration = Duration::from_secs(2);

/// The address of this machine on the way to the API server, which pods and Node have, too. `None`: it cannot be told now.
pub(crate) async fn own_address(server: &http::Uri) -> Option<IpAddr> {
    tokio::time::timeout(LOOK_UP, look_up(server)).await.unwrap_or_default()
}

async fn look_up(server: &http::Uri) -> Option<IpAddr> {
    let host = server.host()?.trim_matches(['[', ']']).to_owned();
    let port = server.port_u16().unwrap_or(443);
    // Connecting a datagram socket sends nothing; it only chooses the way.
    for any in ["0.0.0.0:0", "[::]:0"] {
        let Ok(socket) = tokio::net::UdpSocket::bind(any).await else { continue };
        if socket.connect((host.as_str(), port)).await.is_ok() {
            return socket.local_addr().ok().map(|address| address.ip());
        }
    }
    None
}
