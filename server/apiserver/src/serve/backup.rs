//! `GET /backup`: every object at one revision, streamed to an administrator.

use std::{
    io::{self, Write},
    sync::Arc,
};

use axum::body::Body;
use bytes::Bytes;
use http::{
    HeaderValue, Response, StatusCode,
    header::{CONTENT_TYPE, RETRY_AFTER},
};
use tokio::sync::{Semaphore, mpsc};
use tokio_stream::{StreamExt, wrappers::ReceiverStream};

use crate::{
    auth::{Attributes, Target},
    backup::{BackupError, Encoder, FORMAT, Header},
    context::Context,
    kinds::{access::text, identity::Identity},
    rest::respond,
    store::{Key, Page, Prefix},
};

/// Where it is served. Authorization lets only administrators at paths that it does not know.
const PATH: &str = "/backup";
/// Concurrent backups: a slow reader keeps the objects of its revision in memory.
const AT_ONCE: usize = 1;
/// Bytes of a chunk, and chunks on the way to the reader.
const CHUNK: (usize, usize) = (64 << 10, 4);
/// When to ask again, in seconds.
const AGAIN: u16 = 10;

/// Takes backups.
#[derive(Clone, Debug)]
pub(super) struct Backups {
    context: Context,
    free: Arc<Semaphore>,
}

impl Backups {
    pub(super) fn new(context: &Context) -> Self {
        Self { context: context.clone(), free: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// Answers an authorized request for a backup; none for other requests.
    pub(super) fn answer(
        &self,
        identity: &Identity,
        attributes: &Attributes,
    ) -> Option<Response<Body>> {
        let asked = attributes.verb == "get"
            && matches!(&attributes.target, Target::Path(path) if path == PATH);
        if !asked || !identity.is_master() {
            return None;
        }
        let Ok(turn) = Arc::clone(&self.free).try_acquire_owned() else {
            let why = "another backup is being taken; try again when it is done\n";
            let mut refused = respond::text(StatusCode::TOO_MANY_REQUESTS, why);
            refused.headers_mut().insert(RETRY_AFTER, AGAIN.into());
            return Some(refused);
        };
        let (header, page) = self.read();
        tracing::info!(
            target: "ostler::audit",
            who = identity.username,
            verb = "get",
            object = PATH,
            revision = header.revision,
            outcome = "backup"
        );
        let (chunks, body) = mpsc::channel::<Bytes>(CHUNK.1);
        tokio::task::spawn_blocking(move || {
            let _turn = turn;
            if let Err(error) = write(Chunks { chunks, full: Vec::new() }, &header, &page) {
                tracing::warn!(%error, "a backup broke off");
            }
        });
        let body = Body::from_stream(ReceiverStream::new(body).map(Ok::<_, io::Error>));
        let mut response = Response::new(body);
        let lines = HeaderValue::from_static("application/jsonl");
        response.headers_mut().insert(CONTENT_TYPE, lines);
        Some(response)
    }

    /// The objects as they are now. Their texts are shared with the store, not copied.
    fn read(&self) -> (Header, Page) {
        let page = self.context.store.list(&Prefix::all(), None, None);
        (header(&page, (self.context.clock)()), page)
    }
}

/// The header of a backup of these objects.
pub(super) fn header(page: &Page, now: jiff::Timestamp) -> Header {
    let system = Key::new("", "namespaces", "", "kube-system");
    let found = page.records.iter().find(|record| record.key == system);
    let cluster = found.and_then(crate::store::Record::readable).unwrap_or_default();
    let cluster = text(&cluster, "/metadata/uid");
    Header {
        format: FORMAT,
        program: env!("CARGO_PKG_VERSION").to_owned(),
        time: now,
        cluster: cluster.to_owned(),
        revision: page.revision,
    }
}

fn write(out: Chunks, header: &Header, page: &Page) -> Result<(), BackupError> {
    let mut encoder = Encoder::begin(out, header)?;
    for record in &page.records {
        if let Err(unreadable) = encoder.object(record) {
            encoder.break_off(&unreadable)?;
            return Err(unreadable);
        }
    }
    encoder.end().map(drop)
}

/// Hands what is written to the reader, who may be slow.
struct Chunks {
    chunks: mpsc::Sender<Bytes>,
    full: Vec<u8>,
}

impl Write for Chunks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.full.extend_from_slice(bytes);
        if self.full.len() >= CHUNK.0 {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let chunk = Bytes::from(std::mem::take(&mut self.full));
        let gone = |_| io::Error::new(io::ErrorKind::BrokenPipe, "the reader is gone");
        self.chunks.blocking_send(chunk).map_err(gone)
    }
}
