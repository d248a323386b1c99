//! TLS and its misconfigurations.

use ostler_driver_sdk::DriverArgs;

use crate::security::authority::Authority;
use crate::security::stage::{Stage, text};

const TOKEN: &str = "a token of the tests";

/// A TLS core of these names and a token file, and the flags of a driver that fits.
async fn stage(names: &[&str]) -> (Stage, Authority, DriverArgs) {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let ca = authority.file(directory.path().join("ca.crt"));
    let pair = authority.server(directory.path(), names);
    let token = directory.path().join("token");
    std::fs::write(&token, TOKEN).unwrap();
    let access =
        format!("bindings: [{{ tokenFile: {}, providers: [fake.ostler.dev] }}]", text(&token));
    let stage = Stage::new(directory, Some(pair.files(None)), &access).await;
    let mut args = stage.tcp("https://localhost");
    args.ca_file = Some(ca);
    args.token_file = Some(token);
    (stage, authority, args)
}

#[tokio::test]
async fn a_driver_works_over_tls_with_a_token() {
    let (stage, _, args) = stage(&["localhost"]).await;
    let driver = stage.driver(&args);
    stage.serves(&format!("token:{}", text(&stage.file("token")))).await;
    stage.make("m").await;
    driver.stop().await;
    let metrics = stage.metrics();
    let expiry = "ostler_driver_listener_certificate_expiry_timestamp_seconds ";
    assert!(metrics.contains(expiry), "{metrics}");
    stage.core.stop().await;
}

#[tokio::test]
async fn a_new_certificate_is_for_new_connections_and_old_ones_live_on() {
    let (stage, _, args) = stage(&["localhost"]).await;
    let principal = format!("token:{}", text(&stage.file("token")));
    let first = stage.driver(&args);
    stage.serves(&principal).await;

    let other = Authority::new();
    let other_ca = other.file(stage.file("other-ca.crt"));
    other.server(stage.directory.path(), &["localhost"]);
    stage.tls.as_ref().unwrap().refresh().await;
    let refused = stage.driver(&args);
    stage.line(&["cannot reach the core", "does not come from the CA in --ca-file"]).await;
    stage.make("over-the-old-connection").await;
    refused.stop().await;

    first.stop().await;
    let second = stage.driver(&DriverArgs { ca_file: Some(other_ca), ..args });
    stage.serves(&principal).await;
    stage.make("over-the-new-connection").await;
    second.stop().await;
    stage.core.stop().await;
}

#[tokio::test]
async fn a_certificate_for_another_name_is_refused_by_the_driver() {
    let (stage, _, args) = stage(&["core.example.com"]).await;
    let driver = stage.driver(&args);
    stage.line(&["cannot reach the core", "is for another name"]).await;
    driver.stop().await;
    stage.core.stop().await;
}

#[tokio::test]
async fn plaintext_to_a_tls_port_is_told_so_on_both_sides() {
    let (stage, _, args) = stage(&["localhost"]).await;
    let plain = stage.tcp("http://127.0.0.1");
    let driver = stage.driver(&DriverArgs { token_file: args.token_file, ..plain });
    stage.line(&["the session broke", "this port speaks TLS: dial it with https://"]).await;
    stage.line(&["refused at the door", "speaks plaintext to a port that speaks TLS"]).await;
    let metrics = stage.metrics();
    assert!(
        metrics.contains("ostler_driver_listener_rejected_total{reason=\"Plaintext\"}"),
        "{metrics}"
    );
    driver.stop().await;
    stage.core.stop().await;
}

#[tokio::test]
async fn tls_to_a_plaintext_port_is_told_so() {
    let directory = tempfile::tempdir().unwrap();
    let ca = Authority::new().file(directory.path().join("ca.crt"));
    let stage = Stage::new(directory, None, "bindings: []").await;
    let tls = stage.tcp("https://localhost");
    let driver = stage.driver(&DriverArgs { ca_file: Some(ca), ..tls });
    stage.line(&["cannot reach the core", "speaks no TLS"]).await;
    driver.stop().await;
    stage.core.stop().await;
}
