//! Requests that are begun and not finished.

use std::time::Duration;

use futures::FutureExt as _;
use tokio::time::sleep;

use crate::attacks::client::{CSRS, Client, raise_files};
use crate::attacks::others::Attack;
use crate::attacks::raw::{drain, many, push, together};
use crate::attacks::up::{Options, Up};

/// For how long all of them are held while others are served.
const HELD: Duration = Duration::from_secs(5);
/// No client needs longer for a head or a body of three megabytes than the server allows; by then it has ended all.
const ENDED: Duration = Duration::from_secs(75);
/// How long the server may take to read what is sent.
const TAKE: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread")]
async fn heads_and_bodies_that_never_end_take_little_and_are_ended() {
    raise_files();
    together(vec![bodies_that_never_end().boxed_local(), heads_byte_by_byte().boxed_local()]).await;
}

async fn bodies_that_never_end() {
    let mut up = Up::start(Options::api_only()).await;
    let machine = Client::machine(&up, "attack").await;
    let attack =
        Attack::begin(&up, "04c 100 bodies of 2.9 MB that never end", "bootstrap token").await;
    let held = many(100, 8, |_| {
        let machine = machine.clone();
        async move {
            let Ok(mut wire) = machine.tls("http/1.1").await else { return None };
            let head = format!(
                "POST {CSRS} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {}\r\n\
                 Content-Type: application/json\r\nContent-Length: 2900001\r\n\r\n",
                machine.token().unwrap()
            );
            push(&mut wire, head.as_bytes(), TAKE).await;
            // Refused early is fine.
            push(&mut wire, &vec![b' '; 2_900_000], TAKE).await;
            Some(wire)
        }
    });
    let held = held.await;
    sleep(HELD).await;
    let mut wires: Vec<_> = held.into_iter().flatten().collect();
    let open = wires.len();
    let ended = many(open, open, |_| {
        let mut wire = wires.pop().unwrap();
        async move { drain(&mut wire, 0, ENDED).await.is_some() }
    });
    let ended = ended.await.into_iter().filter(|ended| *ended).count();
    let seen = attack.end(&format!("{ended} of {open} ended by the server")).await;
    assert_eq!(up.ended(), None);
    seen.took_little_memory().left_others_alone();
    assert_eq!(ended, open, "all are ended");
}

async fn heads_byte_by_byte() {
    let up = Up::start(Options::api_only()).await;
    let nobody = Client::anonymous(&up);
    let attack = Attack::begin(&up, "04d 512 heads, a byte a second", "anybody").await;
    let ended = many(512, 512, |_| {
        let nobody = nobody.clone();
        async move {
            let Ok(mut wire) = nobody.tls("http/1.1").await else { return true };
            if !push(&mut wire, b"GET /readyz HTTP/1.1\r\nHost: a\r\nX: ", TAKE).await {
                return true;
            }
            for _ in 0..ENDED.as_secs() {
                if !push(&mut wire, b"x", TAKE).await {
                    return true;
                }
                // The last words of the server before it closes.
                if drain(&mut wire, 0, Duration::from_secs(1)).await.is_some() {
                    return true;
                }
            }
            false
        }
    });
    let ended = ended.await.into_iter().filter(|ended| *ended).count();
    let seen = attack.end(&format!("{ended} of 512 ended by the server")).await;
    seen.took_little_memory().left_others_alone();
    assert_eq!(ended, 512, "all are ended");
}
