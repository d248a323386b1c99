//! Around the sessions: health, reflection, metrics, logs, the end.

use std::sync::{Arc, Mutex};

use ostler_proto::v1alpha1::Readiness;
use ostler_sessions::{ClassContent, Sessions, SessionsOptions, StaticTokens, Term};
use prometheus_client::registry::Registry;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use crate::core::{Classes, Core, PROVIDER, TOKEN, class, create, create_with, status};
use crate::driver::{Driver, Heard, created, hello};

async fn health(core: &Core, service: &str) -> Result<ServingStatus, Code> {
    let mut client = HealthClient::new(core.connect().await);
    let request = HealthCheckRequest { service: service.to_owned() };
    let answer = client.check(request).await.map_err(|status| status.code())?;
    Ok(answer.into_inner().status())
}

#[tokio::test(start_paused = true)]
async fn health_needs_no_token_and_tells_of_every_provider() {
    let mut core = Core::start();
    let provider = "driver/fake.ostler.dev";
    assert_eq!(health(&core, "").await, Ok(ServingStatus::Serving));
    let service = "ostler.driver.v1alpha1.DriverService";
    assert_eq!(health(&core, service).await, Ok(ServingStatus::Serving));
    assert_eq!(health(&core, provider).await, Err(Code::NotFound));
    let driver = Driver::ready(&mut core, 1).await;
    assert_eq!(health(&core, provider).await, Ok(ServingStatus::Serving));
    drop(driver);
    core.provider_gone().await;
    assert_eq!(health(&core, provider).await, Ok(ServingStatus::NotServing));
}

#[tokio::test(start_paused = true)]
async fn reflection_needs_no_token_and_lists_the_services() {
    let core = Core::start();
    let mut client = ServerReflectionClient::new(core.connect().await);
    let request = ServerReflectionRequest {
        message_request: Some(MessageRequest::ListServices(String::new())),
        ..ServerReflectionRequest::default()
    };
    let mut answers =
        client.server_reflection_info(tokio_stream::once(request)).await.unwrap().into_inner();
    let answer = answers.message().await.unwrap().unwrap().message_response;
    let Some(MessageResponse::ListServicesResponse(list)) = answer else { panic!("{answer:?}") };
    let names: Vec<_> = list.service.into_iter().map(|service| service.name).collect();
    assert!(names.contains(&"ostler.driver.v1alpha1.DriverService".to_owned()), "{names:?}");
    assert!(names.contains(&"grpc.health.v1.Health".to_owned()), "{names:?}");
}

#[tokio::test(start_paused = true)]
async fn a_core_that_stops_tells_its_drivers_and_takes_no_new_ones() {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    let (mut idle, _) = Driver::dial(&core, hello(2)).await;
    let before = tokio::time::Instant::now();
    let reading = tokio::spawn(async move {
        for driver in [&mut driver, &mut idle] {
            assert!(matches!(driver.hear().await, Heard::Draining(_)));
            let (error, status) = driver.closed().await;
            assert_eq!((error.reason.as_str(), error.retry), ("CORE_STOPPING", true));
            assert_eq!(status.code(), Code::Unavailable);
        }
    });
    core.stop().await;
    reading.await.unwrap();
    assert!(before.elapsed().as_secs() <= 5);
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_does_not_go_holds_the_core_up_for_a_bounded_time() {
    let mut core = Core::start();
    let driver = Driver::ready(&mut core, 1).await;
    let before = tokio::time::Instant::now();
    core.stop().await;
    assert!(before.elapsed().as_secs() <= 5);
    drop(driver);
}

#[tokio::test(start_paused = true)]
async fn a_core_stops_in_time_though_its_streams_are_full_and_nobody_reads() {
    let mut core = Core::start();
    let _driver = Driver::ready(&mut core, 1).await;
    for number in 0..4 {
        let id = number.to_string();
        core.sessions.submit(create_with(&id, &id, vec![0; 200 << 10])).unwrap();
    }
    let before = tokio::time::Instant::now();
    core.stop().await;
    assert!(before.elapsed().as_secs() <= 5);
}

#[tokio::test]
async fn a_tcp_listener_serves_and_stops() {
    let tokens = StaticTokens::new();
    let classes = Arc::new(Classes::default());
    let sessions = Sessions::new(SessionsOptions::default(), classes, Arc::new(tokens));
    sessions.lead(Term(3));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let served = tokio::spawn(async move {
        let shutdown = async {
            let _ = stopped.await;
        };
        sessions.serve_tcp(listener, shutdown).await
    });
    let endpoint = tonic::transport::Endpoint::from_shared(endpoint).unwrap();
    let mut client = HealthClient::new(endpoint.connect().await.unwrap());
    let answer = client.check(HealthCheckRequest::default()).await.unwrap();
    assert_eq!(answer.into_inner().status(), ServingStatus::Serving);
    drop(client);
    stop.send(()).unwrap();
    served.await.unwrap().unwrap();
}

fn scraped(registry: &Registry) -> String {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
    text
}

/// Who is alerted by 0 hears nothing of a series that is gone.
#[tokio::test(start_paused = true)]
async fn a_provider_that_a_class_names_is_not_ready_until_its_driver_comes_and_once_it_went() {
    let aliases = [("Fake".into(), PROVIDER.into())].into();
    let mut core = Core::with(SessionsOptions { aliases, ..SessionsOptions::default() });
    core.classes.put("alias", ClassContent { provider: "Fake".into(), ..class("7", "1") });
    let mut registry = Registry::default();
    core.sessions.register_metrics(&mut registry);
    let ready = || {
        let text = scraped(&registry);
        let lines = text.lines().filter(|line| line.starts_with("ostler_driver_ready{"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let series =
        |value: u8| vec![format!("ostler_driver_ready{{provider=\"{PROVIDER}\"}} {value}.0")];
    assert_eq!(ready(), series(0), "no driver was ever there");
    let driver = Driver::ready(&mut core, 1).await;
    assert_eq!(ready(), series(1));
    drop(driver);
    core.provider_gone().await;
    assert_eq!(ready(), series(0));
    core.sessions.stop();
    assert_eq!(ready(), Vec::<String>::new(), "another core leads");
}

#[tokio::test(start_paused = true)]
async fn metrics_tell_of_sessions_and_operations() {
    let mut core = Core::start();
    let mut registry = Registry::default();
    core.sessions.register_metrics(&mut registry);
    let mut driver = Driver::ready_with(&mut core, 1, 1).await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    core.sessions.submit(status("op-2", "uid-2")).unwrap();
    driver.take().await;
    driver.complete("op-1", created("m")).await;
    core.outcome("uid-1").await;
    core.sessions.submit(create("op-3", "uid-3")).unwrap();
    let text = scraped(&registry);
    let provider = "provider=\"fake.ostler.dev\"";
    for line in [
        format!("ostler_driver_ready{{{provider}}} 1"),
        format!("ostler_driver_sessions{{{provider}}} 1"),
        format!("ostler_driver_in_flight{{{provider}}} 1"),
        format!("ostler_driver_queued{{{provider}}} 1"),
        format!(
            "ostler_driver_operations_total{{{provider},kind=\"CreateMachine\",code=\"OK\"}} 1"
        ),
    ] {
        assert!(text.contains(&line), "{line} is not in\n{text}");
    }
}

/// Where log lines go.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn no_secret_user_data_or_token_is_ever_logged_or_shown() {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter("off,ostler_sessions=trace")
        .with_writer(move || writer.clone())
        .finish();
    // For all tests of this process: their logs are checked as well.
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let shown = {
        let mut core = Core::start();
        let mut driver = Driver::ready(&mut core, 1).await;
        let dispatch = create("op-1", "uid-1");
        let shown = format!("{dispatch:?}");
        core.sessions.submit(dispatch).unwrap();
        driver.take().await;
        driver.secret("op-1", "").await.unwrap();
        driver.secret("op-2", "").await.unwrap_err();
        assert!(Driver::open(&core, "canary-token").await.is_err());
        drop(driver);
        let finished = core.outcome("uid-1").await;
        let Err(failure) = &finished.outcome else { panic!("a result") };
        core.classes.put_secret("small", "1", "canary-secret");
        let secrets = format!("{:?}", core.classes.secrets);
        let (mut driver, _) = Driver::dial(&core, hello(2)).await;
        driver.state(Readiness::Draining, 0).await;
        format!("{shown}{secrets}{failure:?}{:?}", core.sessions)
    };
    let logged = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    assert!(logged.contains("driver registered") && logged.contains("secret refused"), "{logged}");
    for text in [shown, logged] {
        assert!(!text.contains("canary") && !text.contains(TOKEN), "{text}");
    }
}
