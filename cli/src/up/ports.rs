//! Where `up` listens.

use std::io::ErrorKind;
use std::net::SocketAddr;

use anyhow::{Context as _, bail};
use ostler_server::{ListenAddress, listen_for_drivers};
use ostler_sessions::Listeners;
use tokio::net::TcpListener;

use super::narrate::Story;
use crate::data_dir::DataDir;

/// Where the core listens for drivers, if it runs here, and the endpoint for our drivers. Our drivers use the socket, which no
/// other user can open.
pub(super) async fn for_drivers(
    embedded: bool,
    address: SocketAddr,
    data: &DataDir,
    story: Story,
) -> anyhow::Result<(Option<Listeners>, String)> {
    if !embedded {
        return Ok((None, format!("http://{address}")));
    }
    // Says best what is wrong with a port.
    let port = bind("--drivers-listen", address).await?;
    let tcp = ListenAddress::Tcp(port.local_addr()?);
    drop(port);
    let socket = ListenAddress::Unix { path: data.core_socket(), mode: 0o600 };
    match listen_for_drivers(&[tcp.clone(), socket.clone()], None).await {
        Ok(listeners) => Ok((Some(listeners), format!("unix:{}", data.core_socket().display()))),
        Err(error) => {
            story.tell(format_args!("drivers dial in at {tcp} alone: {error:#}"));
            Ok((
                Some(listen_for_drivers(std::slice::from_ref(&tcp), None).await?),
                format!("http://{tcp}"),
            ))
        }
    }
}

/// Listens on a port, or says what to do about the flag that names it.
pub(super) async fn bind(flag: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    let error = match TcpListener::bind(address).await {
        Ok(listener) => return Ok(listener),
        Err(error) => error,
    };
    if error.kind() == ErrorKind::AddrInUse {
        bail!(
            "{flag} {address} is taken by another process; end it, or choose another address with {flag}"
        );
    }
    if error.kind() == ErrorKind::AddrNotAvailable {
        bail!("{flag} {address} is not an address of this computer");
    }
    Err(error).with_context(|| format!("{flag} {address} cannot be listened on"))
}
