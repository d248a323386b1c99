//! A driver's connection, over any transport.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use crate::Peer;

/// An accepted connection, and its peer.
#[derive(Debug)]
pub struct Connection {
    pub(super) wire: Wire,
    pub(super) peer: Peer,
}

/// The transport of the bytes.
#[derive(Debug)]
pub(super) enum Wire {
    Plain(TcpStream),
    /// Boxed, since the others are small.
    Tls(Box<TlsStream<TcpStream>>),
    Unix(UnixStream),
}

/// Calls find the [`Peer`] among their extensions.
impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

trait Stream: AsyncRead + AsyncWrite + Unpin {}
impl<S: AsyncRead + AsyncWrite + Unpin> Stream for S {}

impl Connection {
    fn wire(self: Pin<&mut Self>) -> Pin<&mut (dyn Stream + '_)> {
        match &mut self.get_mut().wire {
            Wire::Plain(stream) => Pin::new(stream),
            Wire::Tls(stream) => Pin::new(stream.as_mut()),
            Wire::Unix(stream) => Pin::new(stream),
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.wire().poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.wire().poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.wire().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.wire().poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.wire().poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.wire {
            Wire::Plain(stream) => stream.is_write_vectored(),
            Wire::Tls(stream) => stream.is_write_vectored(),
            Wire::Unix(stream) => stream.is_write_vectored(),
        }
    }
}
