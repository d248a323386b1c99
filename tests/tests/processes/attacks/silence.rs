//! Connections to the API server on which nothing is asked, begun again as soon as they are ended.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use tokio::time::{Instant, sleep, timeout_at};

use crate::attacks::client::{Client, raise_files};
use crate::attacks::frames::Frames;
use crate::attacks::others::Attack;
use crate::attacks::raw::{drain, many, together};
use crate::attacks::up::{Options, Up};

/// For how long all of it goes on: longer than the others are ready to wait for an answer.
const HELD: Duration = Duration::from_secs(15);
/// Before a connection that was ended is begun again.
const AGAIN: Duration = Duration::from_millis(200);

/// How many connections are open.
#[derive(Default)]
struct Open {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Open {
    /// Counts a connection for as long as it goes on.
    async fn during(&self, connection: impl Future) {
        let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(now, Ordering::Relaxed);
        connection.await;
        self.now.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Runs `once`, which opens a connection and stays on it, again and again, so many at the same
/// time.
async fn hold<F: Future<Output = ()>>(
    name: &'static str,
    count: usize,
    once: impl Fn(Client, &'static Open) -> F,
) {
    raise_files();
    let mut up = Up::start(Options::api_only()).await;
    let nobody = Client::anonymous(&up);
    let attack = Attack::begin(&up, name, "anybody").await;
    let open: &'static Open = Box::leak(Box::default());
    let until = Instant::now() + HELD;
    many(count, count, |_| {
        timeout_at(until, async {
            loop {
                once(nobody.clone(), open).await;
                sleep(AGAIN).await;
            }
        })
    })
    .await
    .into_iter()
    .for_each(|ended: Result<(), _>| assert!(ended.is_err(), "only the time ends it"));
    let most = open.most.load(Ordering::Relaxed);
    let seen = attack.end(&format!("{most} open at once")).await;
    assert_eq!(up.ended(), None);
    seen.took_little_memory().left_others_alone();
}

async fn silent() {
    hold("04g 1,100 silent TCP connections, renewed", 1_100, async |nobody, open| {
        if let Ok(mut wire) = nobody.tcp().await {
            open.during(drain(&mut wire, 0, HELD)).await;
        }
    })
    .await;
}

async fn idle_tls() {
    hold("04e 520 idle TLS connections, renewed", 520, async |nobody, open| {
        if let Ok(mut wire) = nobody.tls("http/1.1").await {
            open.during(drain(&mut wire, 0, HELD)).await;
        }
    })
    .await;
}

async fn idle_http2() {
    let name = "04f 520 idle HTTP/2 connections that answer PINGs, renewed";
    hold(name, 520, async |nobody, open| {
        let Ok(wire) = nobody.tls("h2").await else { return };
        if let Some(mut frames) = Frames::open(wire, &[]).await {
            open.during(frames.behave()).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_on_which_nothing_is_asked_keep_nobody_out() {
    together(vec![silent().boxed_local(), idle_tls().boxed_local(), idle_http2().boxed_local()])
        .await;
}
