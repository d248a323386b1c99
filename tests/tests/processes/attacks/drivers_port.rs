//! The port of drivers, by those who have no token.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::attacks::client::{ATTACKER, Client, dial, raise_files};
use crate::attacks::frames::{DATA, END_HEADERS, END_STREAM, Frames, HEADERS, call, frame};
use crate::attacks::others::Attack;
use crate::attacks::raw::many;
use crate::attacks::up::{Options, Up, within};

/// For how long connections are held while others are served.
const HELD: Duration = Duration::from_secs(4);
const OPENED: Duration = Duration::from_secs(3);
/// A driver that serves makes a machine in a second or two.
const MADE: Duration = Duration::from_secs(30);
const REGISTER: &str = "/ostler.driver.v1alpha1.DriverService/Register";
const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
/// Lines that an outsider may cause in the log, however often he calls.
const LINES: usize = 200;

async fn silent(to: SocketAddr, count: usize) -> Vec<TcpStream> {
    let held =
        many(count, 100, |_| async move { timeout(OPENED, dial(ATTACKER, to)).await.ok()?.ok() });
    held.await.into_iter().flatten().collect()
}

/// Classes, secret and a machine of the fake cloud; true once the driver has made it.
async fn a_machine_is_made(up: &Up) -> bool {
    let admin = Client::admin(up);
    let space = "/apis/machine.sapcloud.io/v1alpha1/namespaces/default";
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "fake"},
        "stringData": {"userData": "#!/bin/sh", "accessToken": "example-token"}});
    let class = json!({"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass",
        "metadata": {"name": "fake"}, "provider": "fake.ostler.dev",
        "secretRef": {"name": "fake", "namespace": "default"},
        "providerSpec": {"region": "local", "image": "fake-1.0"}});
    let machine = json!({"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
        "metadata": {"name": "m"}, "spec": {"class": {"kind": "MachineClass", "name": "fake"}}});
    for (path, object) in [
        ("/api/v1/namespaces/default/secrets".to_owned(), secret),
        (format!("{space}/machineclasses"), class),
        (format!("{space}/machines"), machine),
    ] {
        if !admin.post(&path, &object).await.is_ok_and(|answer| answer.code == 201) {
            return false;
        }
    }
    let made = within(MADE, async || {
        let machine = admin.get(&format!("{space}/machines/m")).await.ok()?.json();
        machine["spec"]["providerID"].as_str().map(str::to_owned)
    });
    made.await.is_some()
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_do_not_take_the_descriptors_of_the_others() {
    raise_files();
    let options = Options { files: Some(1024), ..Options::default() };
    let up = Up::start(options).await;
    let drivers = up.drivers().await;
    let attack = Attack::begin(
        &up,
        "05a 1,100 silent connections to the drivers' port, ulimit -n 1024",
        "anybody",
    )
    .await;
    let held = silent(drivers, 1_100).await;
    let made = timeout(MADE, a_machine_is_made(&up)).await.unwrap_or(false);
    sleep(HELD).await;
    let outcome = format!(
        "{} connected, {}",
        held.len(),
        if made { "a machine was made" } else { "no machine was made" }
    );
    let seen = attack.end(&outcome).await;
    assert!(made, "the driver and the core go on: {}", up.stderr.all());
    seen.took_little_memory().left_others_alone();
}

#[tokio::test(flavor = "multi_thread")]
async fn two_thousand_silent_connections_to_the_port_of_drivers_take_little() {
    raise_files();
    let up = Up::start(Options::default()).await;
    let drivers = up.drivers().await;
    let attack =
        Attack::begin(&up, "05b 2,000 silent connections to the drivers' port", "anybody").await;
    let held = silent(drivers, 2_000).await;
    sleep(HELD).await;
    let made = a_machine_is_made(&up).await;
    let seen = attack.end(&format!("{} connected", held.len())).await;
    assert!(made, "the driver goes on: {}", up.said());
    seen.took_little_memory().left_others_alone();
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_to_the_port_of_drivers_are_ended() {
    raise_files();
    let up = Up::start(Options::flags(&["--driver", "none"])).await;
    let mut held = silent(up.drivers().await, 5).await;
    let ended = many(5, 5, |_| {
        let mut wire = held.pop().unwrap();
        async move { crate::attacks::raw::drain(&mut wire, 0, Duration::from_secs(45)).await.is_some() }
    });
    let ended = ended.await.into_iter().filter(|ended| *ended).count();
    crate::attacks::table::verdict(
        "05e 5 silent connections to the drivers' port, 45 s",
        "anybody",
        &format!("{ended} ended by the server"),
    );
    assert_eq!(ended, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn four_thousand_anonymous_streams_take_little() {
    raise_files();
    let up = Up::start(Options::default()).await;
    let drivers = up.drivers().await;
    let attack = Attack::begin(&up, "05c 4,000 anonymous reflection streams", "anybody").await;
    let held = many(40, 40, |_| async move {
        let mut frames = Frames::open(dial(ATTACKER, drivers).await.ok()?, &[]).await?;
        for stream in (1..200).step_by(2) {
            frames.send(&frame(HEADERS, END_HEADERS, stream, &call(REFLECTION, None))).await;
        }
        Some(tokio::spawn(async move { frames.behave().await }))
    });
    let held = held.await;
    sleep(HELD).await;
    let open = held.iter().flatten().filter(|held| !held.is_finished()).count();
    let made = a_machine_is_made(&up).await;
    let seen = attack.end(&format!("{open} of 40 connections open")).await;
    assert!(made, "the driver goes on: {}", up.said());
    seen.took_little_memory().left_others_alone();
}

#[tokio::test(flavor = "multi_thread")]
async fn five_thousand_wrong_tokens_do_not_fill_the_log() {
    raise_files();
    let up = Up::start(Options::default()).await;
    let drivers = up.drivers().await;
    let before = up.stderr.lines();
    let attack = Attack::begin(&up, "05d 5,000 calls with wrong tokens", "anybody").await;
    let answered = many(50, 10, |_| async move {
        let mut frames = Frames::open(dial(ATTACKER, drivers).await.ok()?, &[]).await?;
        for stream in (1..200).step_by(2) {
            frames.send(&frame(HEADERS, END_HEADERS, stream, &call(REGISTER, Some("wrong")))).await;
            frames.send(&frame(DATA, END_STREAM, stream, &[])).await;
        }
        let mut answers = 0;
        while answers < 100 {
            let (kind, flags, _) = timeout(OPENED, frames.next()).await.ok()??;
            answers += u32::from(kind == HEADERS && flags & END_STREAM != 0);
        }
        Some(())
    });
    let answered = answered.await.into_iter().flatten().count();
    let lines = up.stderr.lines() - before;
    let seen =
        attack.end(&format!("{lines} lines of log, {answered} of 50 connections answered")).await;
    assert!(lines <= LINES, "{lines} lines");
    seen.took_little_memory().left_others_alone();
}
