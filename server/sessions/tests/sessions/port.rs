//! Connections without authentication: how long they stay, and their failure to keep drivers out.

use std::sync::Arc;

use ostler_sessions::{Principal, Providers, Sessions, SessionsOptions, StaticTokens, Term};
use prometheus_client::registry::Registry;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tonic::Code;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::core::{Classes, Core, PROVIDER, TOKEN, create};
use crate::driver::{Driver, hello};

/// What HTTP/2 begins with, and an empty SETTINGS frame.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// As many as wait unknown on a listener with 4096 places.
const POOL: usize = 128;

async fn watch(channel: Channel) -> tonic::Streaming<tonic_health::pb::HealthCheckResponse> {
    let mut client = HealthClient::new(channel);
    let answer = client.watch(HealthCheckRequest { service: String::new() }).await;
    answer.unwrap().into_inner()
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_says_nothing_or_speaks_http2_and_calls_nothing_is_closed() {
    let core = Core::start();
    for said in [&b""[..], PREFACE] {
        let began = Instant::now();
        let mut stream = core.raw().await;
        stream.write_all(said).await.unwrap();
        let mut heard = Vec::new();
        // Closed by the core, whether or not it says goodbye.
        let _ended = stream.read_to_end(&mut heard).await;
        assert_eq!(began.elapsed().as_secs(), 10, "{said:?}");
    }
    assert!(metrics(&core).contains("connections_refused_total{reason=\"Silent\"} 2"));
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_only_asks_for_health_ends_after_a_minute() {
    let core = Core::start();
    let began = Instant::now();
    let mut answers = watch(core.connect().await).await;
    answers.message().await.unwrap().unwrap();
    answers.message().await.unwrap_err();
    assert_eq!(began.elapsed().as_secs(), 60);
    let metrics = metrics(&core);
    assert!(metrics.contains("connections_refused_total{reason=\"Unauthenticated\"} 1"));
}

#[tokio::test(start_paused = true)]
async fn calls_with_a_bad_token_do_not_keep_a_connection_open() {
    let core = Core::start();
    let channel = core.connect().await;
    let began = Instant::now();
    let ended = loop {
        let status = Driver::call(&channel, "wrong").await;
        if status.code() != Code::Unauthenticated {
            break began.elapsed();
        }
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    };
    assert!((58..=62).contains(&ended.as_secs()), "{ended:?}");
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_said_who_it_is_stays_and_may_ask_for_health_all_along() {
    let mut core = Core::start();
    let (driver, channel) = Driver::ready_on(&mut core, 1).await;
    let mut answers = watch(channel).await;
    answers.message().await.unwrap().unwrap();
    let quiet = tokio::time::timeout(std::time::Duration::from_mins(30), answers.message()).await;
    assert!(quiet.is_err(), "{quiet:?}");
    drop(driver);
}

#[tokio::test(start_paused = true)]
async fn a_connection_has_few_calls_that_show_no_token() {
    let core = Core::start();
    let channel = core.connect().await;
    let mut open = Vec::new();
    for _ in 0..8 {
        open.push(watch(channel.clone()).await);
    }
    let mut client = HealthClient::new(channel.clone());
    let check = || HealthCheckRequest { service: String::new() };
    let refused = client.check(check()).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    // Other connections are not concerned, nor is this one once there is room.
    HealthClient::new(core.connect().await).check(check()).await.unwrap();
    open.pop();
    while client.check(check()).await.is_err() {
        tokio::task::yield_now().await;
    }
}

/// Strangers could open streams without end, and leave their answers with the core.
#[tokio::test(start_paused = true)]
async fn a_connection_is_told_how_many_calls_it_may_have_open() {
    const MAX_CONCURRENT_STREAMS: u16 = 3;
    let core = Core::start();
    let mut stream = core.raw().await;
    stream.write_all(PREFACE).await.unwrap();
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.unwrap();
    assert_eq!(head[3], 4, "a SETTINGS frame");
    let mut settings = vec![0; usize::from(head[2])];
    stream.read_exact(&mut settings).await.unwrap();
    let limit = settings.chunks(6).find(|it| it[..2] == MAX_CONCURRENT_STREAMS.to_be_bytes());
    assert_eq!(limit.map(|it| &it[2..]), Some(&100_u32.to_be_bytes()[..]), "{settings:?}");
}

#[tokio::test(start_paused = true)]
async fn a_driver_gets_in_and_stays_while_the_pool_of_strangers_is_full() {
    let mut core = Core::start();
    let (driver, _) = Driver::ready_on(&mut core, 1).await;
    let mut strangers = Vec::new();
    for _ in 0..=POOL {
        strangers.push(core.raw().await);
    }
    // The oldest had to go.
    let mut rest = Vec::new();
    let _ended = strangers[0].read_to_end(&mut rest).await;
    let (late, _welcome) = Driver::dial(&core, hello(2)).await;
    for _ in 0..2 * POOL {
        strangers.push(core.raw().await);
    }
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    let mut driver = driver;
    driver.take().await;
    drop((late, strangers));
}

#[tokio::test]
async fn over_tcp_strangers_that_hold_connections_keep_no_driver_out() {
    let tokens =
        StaticTokens::new().with(TOKEN, Principal::new("fake", Providers::named([PROVIDER])));
    let options = SessionsOptions::default();
    let sessions = Sessions::new(options, Arc::new(Classes::default()), Arc::new(tokens));
    sessions.lead(Term(3));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = sessions.clone();
    let served =
        tokio::spawn(async move { serving.serve_tcp(listener, std::future::pending()).await });
    let mut strangers = Vec::new();
    for _ in 0..2 * POOL {
        strangers.push(TcpStream::connect(address).await.unwrap());
    }
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{address}")).unwrap();
    let channel = endpoint.connect().await.unwrap();
    // Known, and only without a session.
    let status = Driver::call(&channel, TOKEN).await;
    assert_eq!(status.code(), Code::PermissionDenied, "{status}");
    served.abort();
}

fn metrics(core: &Core) -> String {
    let mut registry = Registry::default();
    core.sessions.register_metrics(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    text
}
