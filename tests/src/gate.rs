//! A gate in front of an API server. Closed, nothing gets through: requests fail, and watches break.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use kube::Client;
use tokio::sync::watch;
use tower::{BoxError, Layer, Service, ServiceBuilder};

/// The gate. Cheap to clone; every clone is the same.
#[derive(Clone, Debug)]
pub struct Gate {
    open: Arc<watch::Sender<bool>>,
}

impl Default for Gate {
    fn default() -> Self {
        Self { open: Arc::new(watch::Sender::new(true)) }
    }
}

impl Gate {
    /// Opens or closes it.
    pub fn open(&self, open: bool) {
        self.open.send_replace(open);
    }

    /// A client of an API server behind the gate.
    pub fn client<S, B, A>(&self, api: S) -> Client
    where
        S: Service<Request<kube::client::Body>, Response = Response<A>, Error = B>
            + Clone
            + Send
            + 'static,
        S::Future: Send,
        B: Into<BoxError> + 'static,
        A: Body<Data = Bytes> + Send + Unpin + 'static,
        A::Error: Into<BoxError>,
    {
        Client::new(ServiceBuilder::new().layer(self.clone()).service(api), "default")
    }
}

impl<S> Layer<S> for Gate {
    type Service = Behind<S>;

    fn layer(&self, inner: S) -> Behind<S> {
        Behind { inner, open: self.open.subscribe() }
    }
}

/// A service behind a gate.
#[derive(Clone, Debug)]
pub struct Behind<S> {
    inner: S,
    open: watch::Receiver<bool>,
}

fn closed() -> BoxError {
    io::Error::new(io::ErrorKind::ConnectionRefused, "the gate is closed").into()
}

impl<S, B, Q> Service<Request<Q>> for Behind<S>
where
    S: Service<Request<Q>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Through<B>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        if !*self.open.borrow() {
            return Box::pin(async { Err(closed()) });
        }
        let (answer, mut open) = (self.inner.call(request), self.open.clone());
        Box::pin(async move {
            let answer = answer.await.map_err(Into::into)?;
            let shut: Shut = Box::pin(async move {
                let _gone = open.wait_for(|open| !*open).await;
            });
            Ok(answer.map(|body| Through { body, shut }))
        })
    }
}

type Shut = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A body that breaks when the gate is closed.
#[expect(missing_debug_implementations, reason = "a future cannot be shown")]
pub struct Through<B> {
    body: B,
    shut: Shut,
}

impl<B> Body for Through<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.shut.as_mut().poll(context).is_ready() {
            return Poll::Ready(Some(Err(closed())));
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }
}
