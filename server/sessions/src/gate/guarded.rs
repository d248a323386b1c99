//! The bytes of a connection, for as long as the gate lets it be.

use std::convert::Infallible;
use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::{Stream, StreamExt as _};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;
use tonic::transport::server::Connected;

use super::{Admission, Gate, Pass, Refusal, state};

impl Gate {
    /// Connections admitted by this gate; others are closed. The accepting code waits out errors of
    /// accepting.
    pub fn guard<I, IO, E>(
        &self,
        incoming: I,
    ) -> impl Stream<Item = Result<Guarded<IO>, Infallible>>
    where
        I: Stream<Item = Result<IO, E>>,
        IO: Connected,
    {
        let gate = self.clone();
        incoming
            .filter_map(move |io| std::future::ready(io.ok().and_then(|io| gate.take(io)).map(Ok)))
    }

    /// Admits a connection, if there is a place.
    pub fn take<IO: Connected>(&self, io: IO) -> Option<Guarded<IO>> {
        let admission = self.admit(&io.connect_info())?;
        Some(Guarded::new(io, admission))
    }
}

/// A connection with a place.
pub struct Guarded<IO> {
    io: IO,
    admission: Admission,
    /// By when it must have called, then by when it must be known.
    deadline: Option<Pin<Box<Sleep>>>,
    called: bool,
}

impl<IO> Guarded<IO> {
    pub(crate) fn new(io: IO, admission: Admission) -> Self {
        let sleep = tokio::time::sleep(admission.gate.0.rules.first_call);
        Self { io, admission, deadline: Some(Box::pin(sleep)), called: false }
    }

    /// Fails once the connection is to end. The task that moves the bytes is woken then.
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let place = &self.admission.place;
        if place.state() == state::KNOWN {
            self.deadline = None;
            return Ok(());
        }
        if place.poll_ended(cx).is_ready() {
            return Err(ended());
        }
        let rules = &self.admission.gate.0.rules;
        let Some(deadline) = &mut self.deadline else { return Ok(()) };
        while deadline.as_mut().poll(cx).is_ready() {
            if !self.called && place.state() == state::CALLED {
                self.called = true;
                let rest = rules.unknown.saturating_sub(rules.first_call);
                let until = deadline.deadline() + rest;
                deadline.as_mut().reset(until);
                continue;
            }
            let why = if self.called { Refusal::Unauthenticated } else { Refusal::Silent };
            self.admission.gate.end(place, why);
            // Unless the connection became known in this very moment.
            return if place.state() == state::KNOWN { Ok(()) } else { Err(ended()) };
        }
        Ok(())
    }
}

fn ended() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the connection did not show who it is")
}

impl<IO> std::fmt::Debug for Guarded<IO> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guarded").field("place", &self.admission.place).finish_non_exhaustive()
    }
}

/// A call's knowledge of its connection.
#[derive(Debug, Clone)]
pub struct Admitted<C> {
    pub(super) info: C,
    pub(super) pass: Pass,
}

impl<IO: Connected> Connected for Guarded<IO> {
    type ConnectInfo = Admitted<IO::ConnectInfo>;

    fn connect_info(&self) -> Self::ConnectInfo {
        Admitted { info: self.io.connect_info(), pass: self.admission.pass() }
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Guarded<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Guarded<IO> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.io).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}
