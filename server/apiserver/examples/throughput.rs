//! How fast objects are written, read and listed, in process, in memory and on the disk:
//!
//! ```text
//! cargo run --release -p ostler-apiserver --example throughput
//! ```

use std::{error::Error, time::Instant};

use axum::body::Body;
use http::Request;
use http_body_util::BodyExt;
use ostler_apiserver::serving::{ApiServer, LocalService, Options};
use tokio::task::JoinSet;
use tower::ServiceExt;

/// Objects that are written.
const OBJECTS: usize = 10_000;
/// Requests in flight.
const TASKS: usize = 64;
/// Text in each object: about the size of a machine.
const TEXT: usize = 1_500;

const COLLECTION: &str = "/api/v1/namespaces/default/configmaps";

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
#[expect(clippy::print_stdout, reason = "the numbers are what the example is run for")]
async fn main() -> Result<(), Failure> {
    let directory = std::env::temp_dir().join(format!("throughput-{}", std::process::id()));
    for (name, options) in [("memory", Options::memory()), ("disk", Options::directory(&directory))]
    {
        let api = ApiServer::open(options).await?;
        let service = api.local_service();
        let begun = Instant::now();
        write(&service).await?;
        let writes = rate(begun);
        let begun = Instant::now();
        let bytes = send(&service, "GET", COLLECTION.to_owned(), String::new()).await?;
        let listed = begun.elapsed();
        println!(
            "{name}: {writes:.0} creates/s, a list of {OBJECTS} ({bytes} bytes) in {listed:?}"
        );
        api.close().await;
    }
    std::fs::remove_dir_all(directory)?;
    Ok(())
}

async fn write(service: &LocalService) -> Result<(), Failure> {
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let service = service.clone();
        tasks.spawn(async move {
            let text = "x".repeat(TEXT);
            for index in (task..OBJECTS).step_by(TASKS) {
                let object = format!(
                    r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"m{index}"}},"data":{{"text":"{text}"}}}}"#
                );
                send(&service, "POST", COLLECTION.to_owned(), object).await?;
            }
            Ok::<(), Failure>(())
        });
    }
    tasks.join_all().await.into_iter().collect()
}

/// Sends a request and returns the length of its answer.
async fn send(
    service: &LocalService,
    method: &str,
    path: String,
    body: String,
) -> Result<usize, Failure> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json")
        .body(Body::from(body))?;
    let response = service.clone().oneshot(request).await?;
    if !response.status().is_success() {
        return Err(format!("{method}: {}", response.status()).into());
    }
    Ok(response.into_body().collect().await?.to_bytes().len())
}

#[expect(clippy::cast_precision_loss, reason = "a few thousand objects")]
fn rate(begun: Instant) -> f64 {
    OBJECTS as f64 / begun.elapsed().as_secs_f64()
}
