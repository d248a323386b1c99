//! Those who are known and want too much: objects stored, answers not read, secrets asked for.

use std::time::{Duration, Instant};

use rcgen::{DnType, KeyPair};
use serde_json::json;
use tokio::time::sleep;

use crate::attacks::client::{CSRS, Client, JSON, csr, plain, raise_files, request, with_body};
use crate::attacks::frames::{
    END_HEADERS, END_STREAM, Frames, HEADERS, frame, request as headers, setting,
};
use crate::attacks::others::Attack;
use crate::attacks::raw::many;
use crate::attacks::up::{Options, Up};

/// Nothing more is sent after this: a server that takes all of it may take long for each.
const SENDING: Duration = Duration::from_secs(20);
/// How long the heads of the answers may take.
const ANSWERED: Duration = Duration::from_secs(30);
/// For how long their bodies are left unread.
const UNREAD: Duration = Duration::from_secs(3);
/// For how long a node asks.
const ASKING: Duration = Duration::from_secs(5);
const INITIAL_WINDOW: u16 = 4;

/// A request whose PEM has two megabytes of text before it. `NAME` stands for its name.
fn bloated() -> String {
    let key = KeyPair::generate().unwrap();
    let subject =
        [(DnType::OrganizationName, "system:nodes"), (DnType::CommonName, "system:node:x")];
    let pem = request(&key, &subject, &[]);
    csr("NAME", &format!("{}{pem}", "text\n".repeat(430_000))).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_for_certificates_of_megabytes_are_refused() {
    let up = Up::start(Options::api_only()).await;
    let machine = Client::machine(&up, "attack").await;
    let bloated = bloated();
    let attack = Attack::begin(&up, "03 up to 60 CSRs of 2.9 MB in 20 s", "bootstrap token").await;
    let (over, mut sent) = (Instant::now() + SENDING, 0);
    let stored = many(60, 2, |number| {
        let machine = machine.clone();
        let body = bloated.replacen("NAME", &format!("big-{number}"), 1);
        let late = Instant::now() > over;
        sent += usize::from(!late);
        async move {
            !late
                && machine
                    .ask(with_body("POST", CSRS, JSON, body))
                    .await
                    .is_ok_and(|it| it.code == 201)
        }
    });
    let stored = stored.await.into_iter().filter(|stored| *stored).count();
    let seen = attack.end(&format!("{stored} of {sent} stored")).await;
    assert_eq!(stored, 0);
    seen.took_little_memory().left_others_alone();
}

/// Twelve streams of one connection, none of which may carry a byte.
async fn leave_unread(client: &Client, path: &str) -> String {
    let window = setting(INITIAL_WINDOW, 0);
    let wire = client.tls("h2").await.unwrap();
    let mut connection = Frames::open(wire, &window).await.unwrap();
    let block = headers("GET", path, client.token());
    for stream in (1..24).step_by(2) {
        let flags = END_HEADERS | END_STREAM;
        connection.send(&frame(HEADERS, flags, stream, &block)).await;
    }
    let answered = connection.answers(12, ANSWERED).await;
    let ended = connection.ends(UNREAD).await;
    format!("{answered} of 12 streams answered, connection: {ended:?}")
}

#[tokio::test(flavor = "multi_thread")]
async fn twelve_answers_that_a_bootstrap_token_does_not_read_take_little() {
    let up = Up::start(Options::api_only()).await;
    let machine = Client::machine(&up, "attack").await;
    let bloated = bloated();
    let attack = Attack::begin(
        &up,
        "04a 12 LISTs of up to 20 CSRs of 2.9 MB, never read",
        "bootstrap token",
    )
    .await;
    let (mut stored, begun) = (0, Instant::now());
    for number in (0..20).take_while(|_| begun.elapsed() < SENDING) {
        let body = bloated.replacen("NAME", &format!("big-{number}"), 1);
        // Refused is fine, and so is a connection that is ended for it.
        let answer = machine.ask(with_body("POST", CSRS, JSON, body)).await;
        stored += usize::from(answer.is_ok_and(|answer| answer.code == 201));
    }
    let outcome = leave_unread(&machine, CSRS).await;
    let seen = attack.end(&format!("{stored} stored; {outcome}")).await;
    seen.took_little_memory().left_others_alone();
}

#[tokio::test(flavor = "multi_thread")]
async fn twelve_answers_that_a_node_does_not_read_take_little() {
    let up = Up::start(Options::api_only()).await;
    let (admin, node) = (Client::admin(&up), Client::node(&up, "attack", "n1").await);
    for number in 0..60 {
        let service = json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": format!("s{number}"), "annotations": {"a": "x".repeat(250_000)}},
            "spec": {"ports": [{"port": 80}]}});
        admin.post("/api/v1/namespaces/default/services", &service).await.unwrap().good();
    }
    let attack = Attack::begin(&up, "04b 12 LISTs of 15 MB of services, never read", "node").await;
    let outcome = leave_unread(&node, "/api/v1/services").await;
    let seen = attack.end(&outcome).await;
    seen.took_little_memory().left_others_alone();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_asks_for_a_secret_does_not_make_the_server_read_every_pod() {
    raise_files();
    let up = Up::start(Options::api_only()).await;
    let (admin, node) = (Client::admin(&up), Client::node(&up, "attack", "n1").await);
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
    admin.post("/api/v1/namespaces/default/secrets", &secret).await.unwrap().good();
    let made = many(4, 4, |part| {
        let admin = admin.clone();
        async move {
            let mut connection = admin.connect().await.unwrap();
            for number in 0..300 {
                let pod = json!({"apiVersion": "v1", "kind": "Pod",
                    "metadata": {"name": format!("p-{part}-{number}")},
                    "spec": {"nodeName": format!("other-{part}"), "containers": [{"name": "c", "image": "i",
                        "env": [{"name": "A", "value": "a"}], "command": ["/bin/true"]}]}});
                let path = "/api/v1/namespaces/default/pods";
                connection
                    .ask(with_body("POST", path, JSON, pod.to_string()))
                    .await
                    .unwrap()
                    .good();
            }
        }
    });
    made.await;
    let attack =
        Attack::begin(&up, "06 GET of a secret on 16 connections, 1,200 pods", "node").await;
    let asked = many(16, 16, |_| {
        let node = node.clone();
        async move {
            let mut connection = node.connect().await.unwrap();
            let (mut asked, over) = (0_u32, sleep(ASKING));
            tokio::pin!(over);
            while !over.is_elapsed() {
                let path = "/api/v1/namespaces/default/secrets/s";
                tokio::select! {
                    () = &mut over => break,
                    answer = connection.ask(plain("GET", path)) => {
                        let code = answer.unwrap().code;
                        // Too many at the same time may be told to wait.
                        assert!(code == 403 || code == 429, "{code}");
                    }
                }
                asked += 1;
            }
            asked
        }
    });
    let asked: u32 = asked.await.into_iter().sum();
    let seen =
        attack.end(&format!("{} refusals a second", u64::from(asked) / ASKING.as_secs())).await;
    seen.took_little_memory().left_others_alone();
}
