//! The listener for autoscalers with TLS, on an address that is not loopback's: who gets in.

use ostler_autoscaler::AutoscalerListener;
use ostler_autoscaler::wire::CleanupRequest;
use ostler_autoscaler::wire::cloud_provider_client::CloudProviderClient;
use ostler_driver_sdk::{CancellationToken, Connector, DriverArgs};
use ostler_server::ListenAddress;
use tonic::Code;

use crate::security::authority::{Authority, Pair};
use crate::security::stage::Stage;

const ID: &str = "spiffe://example.com/autoscaler";

/// The answer to an autoscaler with these credentials, or the error of its dial.
async fn asks(args: DriverArgs, pair: Option<&Pair>) -> Result<Code, String> {
    let (cert_file, key_file) =
        (pair.map(|it| it.certificate.clone()), pair.map(|it| it.key.clone()));
    let args = DriverArgs { cert_file, key_file, ..args };
    let connection = Connector::from_args(&args).unwrap().connect().await;
    let mut client = CloudProviderClient::new(connection.map_err(|it| it.to_string())?.channel());
    let answer = client.cleanup(CleanupRequest {}).await;
    Ok(answer.map_or_else(|status| status.code(), |_| Code::Ok))
}

#[tokio::test]
async fn a_certificate_of_the_ca_of_autoscalers_is_the_only_way_in_beyond_loopback() {
    let stage = Stage::new(tempfile::tempdir().unwrap(), None, "bindings: []").await;
    let (directory, authority) = (stage.directory.path(), Authority::new());
    let ca = authority.file(stage.file("ca.crt"));
    let files = authority.server(directory, &["localhost"]).files(Some(&ca));
    let address = "0.0.0.0:0".parse().unwrap();
    let listener = AutoscalerListener::bind(&address, Some(files)).await.unwrap();
    let Some(ListenAddress::Tcp(address)) = listener.address() else { panic!("it has a port") };
    let end = CancellationToken::new();
    let serving = tokio::spawn(listener.serve(stage.core.scaler(), end.clone()));

    let endpoint = format!("https://localhost:{}", address.port());
    let args = DriverArgs { endpoint, ca_file: Some(ca), ..stage.tcp("https://localhost") };
    let own = authority.driver(directory, ID, 2090);
    assert_eq!(asks(args.clone(), Some(&own)).await, Ok(Code::Ok));
    assert_eq!(asks(args.clone(), None).await, Ok(Code::Unauthenticated));
    let elsewhere = tempfile::tempdir().unwrap();
    let stranger = Authority::new().driver(elsewhere.path(), ID, 2090);
    let told = asks(args, Some(&stranger)).await;
    assert!(!matches!(told, Ok(Code::Ok | Code::Unauthenticated)), "no handshake: {told:?}");

    end.cancel();
    serving.await.unwrap().unwrap();
    stage.core.stop().await;
}
