//! The calls of connections at a gate: limits for calls without a known caller.

use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::{BodyExt as _, Limited};
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::codegen::{Bytes, StdError};
use tonic::transport::Server;
use tonic::{Code, Status};
use tower::{Layer, Service};

use super::Turn;
use super::guarded::Admitted;

/// Most bytes of the requests of a call that is no long stream of the service. The largest honest call, a long session
/// of reflection, has a tenth; [`WINDOW`] bounds unread bytes.
const REQUEST_BYTES: usize = 64 << 10;
/// Bytes that a peer may send on a connection before they are read.
pub(crate) const WINDOW: u32 = 256 << 10;

/// Calls that a connection may have open, as many as RFC 9113 recommends at least. Even a call refused immediately
/// stays with the core until its peer has read the answer.
const STREAMS: u32 = 100;
/// Most streams of a connection that the core resets for the peer's errors; such streams do not count as open.
const RESETS: usize = 1024;

/// A server whose connections hold a bounded number of calls. tonic's own has no bound, nor has hyper's.
pub fn bounded_server() -> Server {
    let server = Server::builder().max_concurrent_streams(STREAMS);
    server.http2_max_local_error_reset_streams(Some(RESETS))
}

/// Gives calls the [`Pass`](super::Pass) of their connection, and bounds unauthenticated calls. `C` is the connections'
/// own information.
pub struct GateLayer<C> {
    /// Calls with this path prefix are authenticated by the service itself.
    own: &'static str,
    /// The path of the long stream.
    stream: &'static str,
    info: PhantomData<fn() -> C>,
}

impl<C> GateLayer<C> {
    /// Calls of service `own`, written as `/name/`, are authenticated; `stream` is the path of the call whose requests
    /// have no end.
    pub fn new(own: &'static str, stream: &'static str) -> Self {
        Self { own, stream, info: PhantomData }
    }
}

impl<C> Clone for GateLayer<C> {
    fn clone(&self) -> Self {
        Self::new(self.own, self.stream)
    }
}

impl<C> std::fmt::Debug for GateLayer<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GateLayer").field("own", &self.own).finish_non_exhaustive()
    }
}

impl<S, C> Layer<S> for GateLayer<C> {
    type Service = Gated<S, C>;

    fn layer(&self, inner: S) -> Gated<S, C> {
        Gated { inner, layer: self.clone() }
    }
}

/// A service behind a gate.
pub struct Gated<S, C> {
    inner: S,
    layer: GateLayer<C>,
}

impl<S: Clone, C> Clone for Gated<S, C> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), layer: self.layer.clone() }
    }
}

impl<S, C> std::fmt::Debug for Gated<S, C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gated").field("layer", &self.layer).finish_non_exhaustive()
    }
}

impl<S, C, B> Service<Request<Body>> for Gated<S, C>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<StdError>,
    C: Clone + Send + Sync + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let own = request.uri().path().starts_with(self.layer.own);
        let is_stream = request.uri().path() == self.layer.stream;
        request = request.map(|body| {
            if is_stream {
                Body::new(body.map_err(broken))
            } else {
                Body::new(Limited::new(body, REQUEST_BYTES))
            }
        });
        let Some(Admitted { info, pass }) = request.extensions_mut().remove::<Admitted<C>>() else {
            let answer = self.inner.call(request);
            return Box::pin(async move { Ok(answer.await?.map(Body::new)) });
        };
        pass.note_call();
        let turn = if own && pass.is_known() { None } else { Some(pass.turn()) };
        let turn = match turn {
            None => None,
            Some(Some(turn)) => Some(turn),
            Some(None) => {
                let message = "too many calls on this connection that show no token";
                let refused = Status::resource_exhausted(message).into_http();
                return Box::pin(std::future::ready(Ok(refused)));
            }
        };
        request.extensions_mut().insert(info);
        request.extensions_mut().insert(pass.clone());
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await?;
            // The caller is known by now.
            let turn = turn.filter(|_| !(own && pass.is_known()));
            Ok(answer.map(|body| match turn {
                Some(turn) => Body::new(Held { body, _turn: turn }),
                None => Body::new(body),
            }))
        })
    }
}

/// A stream given up by its peer is broken: under the code CANCELLED it would end as if the peer had said all.
fn broken(status: Status) -> Status {
    if status.code() != Code::Cancelled {
        return status;
    }
    let mut broken = Status::unavailable("the stream was reset");
    broken.set_source(Arc::new(status));
    broken
}

/// An answer with a turn until its end.
struct Held<B> {
    body: B,
    _turn: Turn,
}

impl<B: HttpBody + Unpin> HttpBody for Held<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use http_body_util::StreamBody;

    use super::*;

    /// The service would see an orderly end of a stream that ends with CANCELLED.
    #[tokio::test]
    async fn a_stream_that_its_peer_gave_up_is_broken_and_not_at_its_end() {
        let service = tower::service_fn(async |request: Request<Body>| {
            let end = request.into_body().collect().await.map(drop).err();
            let mut response = Response::new(Body::empty());
            response.extensions_mut().insert(end);
            Ok::<_, std::convert::Infallible>(response)
        });
        let mut service = GateLayer::<()>::new("/own/", "/own/Stream").layer(service);
        for (said, read, has_cause) in [
            (Status::cancelled("RST_STREAM"), Code::Unavailable, true),
            (Status::internal("not a frame"), Code::Internal, false),
        ] {
            let frames = stream::iter([Err::<Frame<Bytes>, _>(said)]);
            let mut request = Request::new(Body::new(StreamBody::new(frames)));
            *request.uri_mut() = "/own/Stream".parse().unwrap();
            let response = service.call(request).await.unwrap();
            let end = response.extensions().get::<Option<Status>>().unwrap().clone().unwrap();
            let cause = std::error::Error::source(&end);
            assert_eq!((end.code(), cause.is_some()), (read, has_cause));
        }
    }
}
