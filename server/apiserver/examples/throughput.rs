//! Measures the server in process and in memory, without a network:
//!
//! ```text
//! cargo run --release -p ostler-apiserver --example throughput -- [OBJECTS]
//! ```
//!
//! Prints one line for each kind of request.

use std::{error::Error, time::Instant};

use axum::body::Body;
use futures::{StreamExt, TryStreamExt, stream};
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use ostler_apiserver::serve::{ApiServer, LocalService, Options};
use serde_json::{Value, json};
use tower::ServiceExt;

/// Requests in flight.
const CONCURRENCY: usize = 16;
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
const PODS: &str = "/api/v1/namespaces/default/pods";

type Failure = Box<dyn Error + Send + Sync>;

async fn send(
    service: LocalService,
    method: &'static str,
    path: String,
    body: Value,
) -> Result<usize, Failure> {
    let media_type = match method {
        "PATCH" if path.contains("fieldManager") => "application/apply-patch+yaml",
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
    let request = Request::builder().method(method).uri(&path).header("content-type", media_type);
    let response = service.oneshot(request.body(body)?).await?;
    let code = response.status();
    let text = response.into_body().collect().await?.to_bytes();
    match code {
        StatusCode::OK | StatusCode::CREATED => Ok(text.len()),
        _ => Err(format!("{method} {path}: {code} {}", String::from_utf8_lossy(&text)).into()),
    }
}

/// Sends `count` requests and prints how many a second were answered.
#[expect(clippy::print_stdout, reason = "the numbers are what the example is run for")]
#[expect(clippy::cast_precision_loss, reason = "a rate is shown to three digits")]
async fn measure(
    service: &LocalService,
    name: &str,
    count: usize,
    request: impl Fn(usize) -> (&'static str, String, Value),
) -> Result<(), Failure> {
    let begun = Instant::now();
    let bytes: usize = stream::iter(0..count)
        .map(|at| {
            let (method, path, body) = request(at);
            let sending = send(service.clone(), method, path, body);
            async move { tokio::spawn(sending).await? }
        })
        .buffer_unordered(CONCURRENCY)
        .try_fold(0, |sum, length| async move { Ok::<_, Failure>(sum + length) })
        .await?;
    let seconds = begun.elapsed().as_secs_f64();
    println!("{name:<28} {:>9.0}/s  {:>7} KiB answered", count as f64 / seconds, bytes / 1024);
    Ok(())
}

fn lease(at: usize) -> Value {
    json!({"metadata": {"name": format!("l{at}")},
        "spec": {"holderIdentity": "x", "leaseDurationSeconds": 15}})
}

fn pod(at: usize) -> Value {
    json!({"metadata": {"name": format!("p{at}"), "labels": {"app": format!("a{}", at % 100)}},
        "spec": {"nodeName": format!("n{}", at % 100), "containers": [{"name": "c", "image": "i"}]}})
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let count: usize = std::env::args().nth(1).map_or(Ok(10_000), |count| count.parse())?;
    let api = ApiServer::open(Options::memory()).await?;
    let service = api.local_service();
    let one = |collection: &str, letter: &str, at: usize| format!("{collection}/{letter}{at}");
    measure(&service, "create lease", count, |at| ("POST", LEASES.to_owned(), lease(at))).await?;
    measure(&service, "create pod", count, |at| ("POST", PODS.to_owned(), pod(at))).await?;
    measure(&service, "get pod", count, |at| ("GET", one(PODS, "p", at), Value::Null)).await?;
    measure(&service, "patch pod label", count, |at| {
        ("PATCH", one(PODS, "p", at), json!({"metadata": {"labels": {"x": at.to_string()}}}))
    })
    .await?;
    for owner in ["new", "same"] {
        let changed = usize::from(owner == "same");
        let name = format!("apply pod label, {owner} owner");
        measure(&service, &name, count, |at| {
            let labels = json!({"x": (at + changed).to_string()});
            let config = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": labels}});
            let path = format!("{}?fieldManager=applier&force=true", one(PODS, "p", at));
            ("PATCH", path, config)
        })
        .await?;
    }
    measure(&service, "patch pod status", count, |at| {
        let path = format!("{}/status", one(PODS, "p", at));
        ("PATCH", path, json!({"status": {"phase": "Running"}}))
    })
    .await?;
    measure(&service, "list pods, all", 5, |_| ("GET", PODS.to_owned(), Value::Null)).await?;
    measure(&service, "list pods of a node", 20, |at| {
        ("GET", format!("{PODS}?fieldSelector=spec.nodeName%3Dn{at}"), Value::Null)
    })
    .await?;
    measure(&service, "delete lease", count, |at| ("DELETE", one(LEASES, "l", at), Value::Null))
        .await?;
    api.close().await;
    Ok(())
}
