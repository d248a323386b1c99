//! Who a driver is: certificates, ServiceAccounts, unix users; and who gets no identity.

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, DeleteParams, PostParams};
use ostler_driver_sdk::DriverArgs;

use crate::security::authority::{Authority, Pair};
use crate::security::stage::Stage;

const ID: &str = "spiffe://example.com/driver/fake";
const CERTIFICATE: &str =
    "bindings: [{ certificate: spiffe://example.com/driver/fake, providers: [fake.ostler.dev] }]";
const ACCOUNT: &str =
    "bindings: [{ serviceAccount: default/driver-fake, providers: [fake.ostler.dev] }]";

/// A core that asks for certificates of an authority, and flags without one.
async fn mtls(access: &str) -> (Stage, Authority, DriverArgs) {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let ca = authority.file(directory.path().join("ca.crt"));
    let server = authority.server(directory.path(), &["localhost"]);
    let stage = Stage::new(directory, Some(server.files(Some(&ca))), access).await;
    let mut args = stage.tcp("https://localhost");
    args.ca_file = Some(ca);
    (stage, authority, args)
}

fn with(pair: Pair, args: &DriverArgs) -> DriverArgs {
    DriverArgs { cert_file: Some(pair.certificate), key_file: Some(pair.key), ..args.clone() }
}

#[tokio::test]
async fn a_driver_works_over_mtls_without_a_token() {
    let (stage, authority, args) = mtls(CERTIFICATE).await;
    let pair = authority.driver(stage.directory.path(), ID, 2090);
    let driver = stage.driver(&with(pair, &args));
    stage.serves(&format!("certificate:{ID}")).await;
    stage.make("m").await;
    driver.stop().await;
    stage.core.stop().await;
}

#[tokio::test]
async fn certificates_of_another_authority_and_old_ones_are_refused_and_so_is_none() {
    let (stage, authority, args) = mtls(CERTIFICATE).await;
    let stranger = Authority::new().driver(stage.directory.path(), ID, 2090);
    let driver = stage.driver(&with(stranger, &args));
    stage.line(&["the session broke", "does not accept the certificate in --cert-file"]).await;
    driver.stop().await;

    let old = authority.driver(stage.directory.path(), ID, 2010);
    let driver = stage.driver(&with(old, &args));
    stage.line(&["the session broke", "the certificate in --cert-file is over"]).await;
    driver.stop().await;

    let driver = stage.driver(&args);
    stage.line(&["the session broke", "shows no bearer token and no client certificate"]).await;
    driver.stop().await;
    stage.core.stop().await;
}

#[tokio::test]
async fn a_driver_that_is_bound_to_nothing_is_told_what_to_add() {
    let (stage, authority, args) = mtls("bindings: []").await;
    let pair = authority.driver(stage.directory.path(), ID, 2090);
    let driver = stage.driver(&with(pair, &args));
    let line = stage.line(&["the core refuses this driver"]).await;
    for part in ["--driver-access", ID, "providers: [NAME]"] {
        assert!(line.contains(part), "{line}");
    }
    driver.stop().await;
    stage.core.stop().await;
}

#[tokio::test]
async fn a_driver_on_a_unix_socket_is_its_user() {
    let uid = nix::unistd::getuid().as_raw();
    let access = format!("bindings: [{{ unixUser: {uid}, providers: [fake.ostler.dev] }}]");
    let stage = Stage::new(tempfile::tempdir().unwrap(), None, &access).await;
    let driver = stage.driver(&stage.unix());
    stage.serves(&format!("unix:uid:{uid}")).await;
    stage.make("m").await;
    driver.stop().await;
    std::fs::write(stage.file("access.yaml"), "bindings: []").unwrap();
    let driver = stage.driver(&stage.unix());
    stage.line(&["the core refuses this driver", &format!("unixUser: {uid}")]).await;
    driver.stop().await;
    let socket = stage.file("core.sock");
    stage.core.stop().await;
    assert!(!socket.exists(), "the socket goes with the core");
}

/// A token of ServiceAccount `default/driver-fake`.
async fn token(stage: &Stage, audience: &str) -> String {
    let accounts = Api::<ServiceAccount>::default_namespaced(stage.client.clone());
    let request = TokenRequest {
        spec: TokenRequestSpec {
            audiences: vec![audience.to_owned()],
            expiration_seconds: Some(600),
            bound_object_ref: None,
        },
        ..TokenRequest::default()
    };
    let answer: TokenRequest = accounts
        .create_subresource("token", "driver-fake", &PostParams::default(), &request)
        .await
        .unwrap();
    answer.status.unwrap().token
}

#[tokio::test]
async fn a_service_account_is_known_by_a_token_for_drivers_and_by_no_other() {
    let stage = Stage::new(tempfile::tempdir().unwrap(), None, ACCOUNT).await;
    let accounts = Api::<ServiceAccount>::default_namespaced(stage.client.clone());
    let mut account = ServiceAccount::default();
    account.metadata.name = Some("driver-fake".to_owned());
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let file = stage.file("token");
    let args = DriverArgs { token_file: Some(file.clone()), ..stage.tcp("http://127.0.0.1") };

    std::fs::write(&file, token(&stage, "https://kubernetes.default.svc").await).unwrap();
    let driver = stage.driver(&args);
    stage.line(&["the session broke", "for audience ostler-driver"]).await;
    driver.stop().await;

    std::fs::write(&file, token(&stage, "ostler-driver").await).unwrap();
    let driver = stage.driver(&args);
    stage.serves("system:serviceaccount:default:driver-fake").await;
    stage.make("m").await;
    driver.stop().await;

    let last = token(&stage, "ostler-driver").await;
    accounts.delete("driver-fake", &DeleteParams::default()).await.unwrap();
    std::fs::write(&file, last).unwrap();
    let driver = stage.driver(&args);
    stage.line(&["a token was refused", "user=\"\""]).await;
    driver.stop().await;
    stage.core.stop().await;
}
