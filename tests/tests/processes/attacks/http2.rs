//! Floods and bombs of HTTP/2 and TLS, and what is neither.

use std::time::Duration;

use tokio::time::timeout;

use crate::attacks::client::Client;
use crate::attacks::frames::{
    CONTINUATION, END_HEADERS, END_STREAM, Frames, HEADERS, PING, RESET, SETTINGS, block, frame,
    request,
};
use crate::attacks::others::{Attack, Seen};
use crate::attacks::raw::{drain, many, push};
use crate::attacks::up::{Options, Up};

/// How long the server may take to end a connection that misbehaves.
const ENDED: Duration = Duration::from_secs(20);
const TAKE: Duration = Duration::from_secs(5);
const CANCEL: [u8; 4] = 8_u32.to_be_bytes();

async fn over(mut up: Up, attack: Attack, outcome: &str) -> Seen {
    let seen = attack.end(outcome).await;
    assert_eq!(up.ended(), None, "the process goes on: {}", up.stderr.all());
    seen.took_little_memory().left_others_alone();
    seen
}

async fn open(up: &Up) -> Frames<impl crate::attacks::raw::Wire> {
    let wire = Client::anonymous(up).tls("h2").await.unwrap();
    Frames::open(wire, &[]).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_that_are_reset_at_once_end_their_connection() {
    let up = Up::start(Options::api_only()).await;
    let attack = Attack::begin(&up, "07a rapid reset, 5,000 streams", "anybody").await;
    let mut connection = open(&up).await;
    let block = request("GET", "/readyz", None);
    let mut storm = Vec::new();
    for stream in (1..10_000).step_by(2) {
        storm.extend(frame(HEADERS, END_HEADERS | END_STREAM, stream, &block));
        storm.extend(frame(RESET, 0, stream, &CANCEL));
    }
    connection.send(&storm).await;
    let ended = connection.ends(ENDED).await;
    over(up, attack, &format!("connection: {ended:?}")).await;
    assert!(ended.is_some(), "the connection is ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_and_pings_without_end_take_nothing() {
    let up = Up::start(Options::api_only()).await;
    let attack =
        Attack::begin(&up, "07b 100,000 SETTINGS and PINGs, answers never read", "anybody").await;
    let mut connection = open(&up).await;
    let both = [frame(SETTINGS, 0, 0, &[]), frame(PING, 0, 0, &[0; 8])].concat();
    // It stops reading when the client does not read its answers.
    let taken = push(&mut connection.wire, &both.repeat(50_000), TAKE).await;
    over(up, attack, if taken { "all taken" } else { "not read to the end" }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_without_end_ends_its_connection() {
    let up = Up::start(Options::api_only()).await;
    let attack = Attack::begin(&up, "07c CONTINUATION flood", "anybody").await;
    let mut connection = open(&up).await;
    let piece = block(&[("x", &"x".repeat(8_000))]);
    let mut storm = frame(HEADERS, END_STREAM, 1, &request("GET", "/readyz", None));
    for _ in 0..2_000 {
        storm.extend(frame(CONTINUATION, 0, 1, &piece));
    }
    connection.send(&storm).await;
    let ended = connection.ends(ENDED).await;
    over(up, attack, &format!("connection: {ended:?}")).await;
    assert!(ended.is_some(), "the connection is ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_header_that_is_named_ten_thousand_times_is_not_unpacked() {
    let up = Up::start(Options::api_only()).await;
    let attack =
        Attack::begin(&up, "07d HPACK bomb, 36 MB of headers on each of 20 streams", "anybody")
            .await;
    let mut connection = open(&up).await;
    // One header of 3 KB goes into the table; then a byte each names it.
    let mut bomb = request("GET", "/readyz", None);
    let mut entry = block(&[("x", &"x".repeat(3_000))]);
    entry[0] = 0x40;
    bomb.extend(entry);
    bomb.extend(vec![0xbe; 12_000]);
    for stream in (1..40).step_by(2) {
        connection.send(&frame(HEADERS, END_HEADERS | END_STREAM, stream, &bomb)).await;
    }
    let ended = connection.ends(TAKE).await;
    over(up, attack, &format!("connection: {ended:?}")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_tls_is_ended() {
    let up = Up::start(Options::api_only()).await;
    let nobody = Client::anonymous(&up);
    let attack = Attack::begin(
        &up,
        "07e random bytes, plain HTTP, huge ClientHellos, 300 of them",
        "anybody",
    )
    .await;
    let noise: Vec<u8> =
        (0..60_000_u32).map(|at| at.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    // A record of a ClientHello that says it has 16 MB, in records of 16 KB.
    let mut huge = Vec::new();
    for record in 0..64 {
        let head: &[u8] = if record == 0 { &[1, 0xff, 0xff, 0xff] } else { &[3; 4] };
        huge.extend([0x16, 3, 1, 0x40, 0]);
        huge.extend_from_slice(head);
        huge.extend(vec![3; 0x4000 - 4]);
    }
    let inputs = [noise, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(), huge];
    let ended = many(300, 30, |number| {
        let (nobody, input) = (nobody.clone(), inputs[number % 3].clone());
        async move {
            let mut wire = nobody.tcp().await.unwrap();
            push(&mut wire, &input, TAKE).await;
            timeout(ENDED, drain(&mut wire, 0, ENDED)).await.is_ok_and(|ended| ended.is_some())
        }
    });
    let ended = ended.await.into_iter().filter(|ended| *ended).count();
    over(up, attack, &format!("{ended} of 300 ended by the server")).await;
    assert_eq!(ended, 300);
}
