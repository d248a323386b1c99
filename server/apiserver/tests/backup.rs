//! `GET /backup` as an administrator takes it.

#![expect(clippy::unwrap_used, reason = "tests")]

use axum::body::Body;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use ostler_apiserver::{
    backup::{Decoder, Entry},
    serve::{ApiServer, LocalService, Options},
    store::Prefix,
};
use serde_json::json;
use tower::ServiceExt;

async fn answer(
    service: &LocalService,
    method: &str,
    path: &str,
    body: String,
) -> http::Response<Body> {
    let request = Request::builder().method(method).uri(path);
    let request = request.header("content-type", "application/json").body(Body::from(body));
    service.clone().oneshot(request.unwrap()).await.unwrap()
}

#[tokio::test]
async fn a_backup_has_every_object_at_one_revision_and_is_taken_one_at_a_time() {
    let api = ApiServer::open(Options::memory()).await.unwrap();
    let service = api.local_service();
    let maps = "/api/v1/namespaces/default/configmaps";
    // More than is ever on the way to a reader.
    for number in 0..40 {
        let text = "x".repeat(20_000);
        let map = json!({"metadata": {"name": format!("m-{number}")}, "data": {"text": text}});
        let created = answer(&service, "POST", maps, map.to_string()).await;
        assert_eq!(created.status(), StatusCode::CREATED);
    }
    let begun = answer(&service, "GET", "/backup", String::new()).await;
    assert_eq!(begun.status(), StatusCode::OK);
    let expected = api.context().store.list(&Prefix::all(), None, None);
    // The reader has not read it yet: it is under way.
    let second = answer(&service, "GET", "/backup", String::new()).await;
    assert_eq!(second.status(), StatusCode::TOO_MANY_REQUESTS);
    let gone = answer(&service, "DELETE", &format!("{maps}/m-7"), String::new()).await;
    assert_eq!(gone.status(), StatusCode::OK);
    let bytes = begun.into_body().collect().await.unwrap().to_bytes();
    let (mut decoder, mut found, mut revision) = (Decoder::default(), Vec::new(), 0);
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        match decoder.take(line).unwrap() {
            Entry::Header(header) => revision = header.revision,
            Entry::Object(record) => found.push((record.key, record.revision)),
            Entry::File(file) => assert_eq!(file.path, "", "the server sends no files"),
            Entry::End(totals) => assert_eq!(totals.objects, found.len() as u64),
        }
    }
    decoder.finish().unwrap();
    assert_eq!(revision, expected.revision);
    let expected: Vec<_> =
        expected.records.into_iter().map(|record| (record.key, record.revision)).collect();
    assert_eq!(found, expected, "also what was deleted while it was read");
    let posted = answer(&service, "POST", "/backup", String::new()).await;
    assert_ne!(posted.status(), StatusCode::OK);
    api.close().await;
}
