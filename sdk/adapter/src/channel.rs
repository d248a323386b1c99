//! One HTTP/2 connection to a driver. Between a call and the connection there is no queue and no task: each
//! would cost as much as the rest of a short call.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::RecvStream;
use h2::client::SendRequest;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;
use tower::Service;

/// Unread bytes of one answer, and of all. A driver that lists many machines is not to wait for each page.
const STREAM_WINDOW: u32 = 2 << 20;
const CONNECTION_WINDOW: u32 = 5 << 20;

/// Sends calls over one connection. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Channel(SendRequest<Bytes>);

impl Channel {
    /// `lost` is cancelled when the connection is over.
    pub(crate) async fn over(
        stream: UnixStream,
        lost: CancellationToken,
    ) -> Result<Self, h2::Error> {
        let (requests, connection) = h2::client::Builder::new()
            .enable_push(false)
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .handshake(stream)
            .await?;
        tokio::spawn(async move {
            let _lost = lost.drop_guard();
            if let Err(error) = connection.await {
                tracing::debug!(%error, "the connection to the driver broke");
            }
        });
        Ok(Self(requests))
    }
}

type BoxError = Box<dyn Error + Send + Sync>;

impl Service<Request<tonic::body::Body>> for Channel {
    type Response = Response<Answer>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<tonic::body::Body>) -> Self::Future {
        let requests = self.0.clone();
        Box::pin(async move {
            let (head, mut body) = request.into_parts();
            let head = Request::from_parts(head, ());
            let (answer, mut parts) = requests.ready().await?.send_request(head, false)?;
            let mut last = Bytes::new();
            while let Some(part) = body.frame().await {
                let Ok(part) = part?.into_data() else { continue };
                let before = std::mem::replace(&mut last, part);
                if !before.is_empty() {
                    parts.send_data(before, false)?;
                }
            }
            // The last part ends the stream, which takes no frame of its own.
            parts.send_data(last, true)?;
            Ok(answer.await?.map(Answer))
        })
    }
}

/// The answer of a driver to a call, as a stream of frames.
#[derive(Debug)]
pub(crate) struct Answer(RecvStream);

impl Body for Answer {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        match ready!(self.0.poll_data(context)) {
            Some(Ok(data)) => {
                self.0.flow_control().release_capacity(data.len())?;
                Poll::Ready(Some(Ok(Frame::data(data))))
            }
            Some(Err(error)) => Poll::Ready(Some(Err(error))),
            None => self
                .0
                .poll_trailers(context)
                .map(|it| it.map(|it| it.map(Frame::trailers)).transpose()),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }
}
