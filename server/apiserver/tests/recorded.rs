//! Recorded conversations with kube-apiserver 1.36: this server gives the same answers.
//!
//! The files of `recorded/` have them: each step is a request and what is compared of its answer. Of versions it
//! matters which are equal, of times whether they are there; `uid` and `creationTimestamp` are left out.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeMap;

use axum::body::Body;
use http::Request;
use http_body_util::BodyExt;
use ostler_apiserver::{
    clock::tokio_clock,
    serve::{ApiServer, Options},
};
use serde_json::{Value, json};
use tower::ServiceExt;

/// Replaces what differs by run. Versions are numbered as they come.
fn normalize(object: &mut Value, versions: &mut BTreeMap<String, usize>, managers: bool) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    metadata.remove("uid");
    metadata.remove("creationTimestamp");
    if let Some(version) = metadata.get_mut("resourceVersion") {
        let number = versions.len();
        let number = *versions.entry(version.as_str().unwrap().to_owned()).or_insert(number);
        *version = json!(number);
    }
    if !managers {
        metadata.remove("managedFields");
    }
    let entries = metadata.get_mut("managedFields").and_then(Value::as_array_mut);
    for entry in entries.into_iter().flatten() {
        if let Some(time) = entry.get_mut("time") {
            *time = json!("<time>");
        }
    }
    if let Some(Value::Array(entries)) = metadata.get_mut("managedFields") {
        entries.sort_by_key(|entry| {
            let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
            (text("manager"), text("operation"), text("subresource"))
        });
    }
}

struct Player {
    api: ApiServer,
    captured: BTreeMap<String, String>,
    /// The versions of the record and of this run, in the order in which they came.
    versions: (BTreeMap<String, usize>, BTreeMap<String, usize>),
}

impl Player {
    async fn send(&self, step: &Value) -> (u16, Vec<String>, Value) {
        let query: Vec<String> = step["query"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, value)| format!("{name}={}", value.as_str().unwrap()))
            .collect();
        let uri = format!("{}?{}", step["path"].as_str().unwrap(), query.join("&"));
        let media_type = step["type"].as_str().unwrap_or("application/json");
        let agent = step["agent"].as_str().unwrap_or("fidelity/1.0");
        let mut body = match (&step["text"], &step["body"]) {
            (Value::String(text), _) => text.clone(),
            (_, Value::Null) => String::new(),
            (_, body) => body.to_string(),
        };
        for (name, value) in &self.captured {
            body = body.replace(&format!("${{{name}}}"), value);
        }
        let request = Request::builder().method(step["method"].as_str().unwrap()).uri(uri);
        let request = request.header("content-type", media_type).header("user-agent", agent);
        let answer = self.api.local_service().oneshot(request.body(Body::from(body)).unwrap());
        let answer = answer.await.unwrap();
        let warnings = answer.headers().get_all("warning").iter();
        let warnings = warnings.map(|it| it.to_str().unwrap().to_owned()).collect();
        let code = answer.status().as_u16();
        let text = answer.into_body().collect().await.unwrap().to_bytes();
        (code, warnings, serde_json::from_slice(&text).unwrap_or_default())
    }

    /// Does a step, and tells what is different.
    async fn step(&mut self, step: &Value, managers: bool) -> Vec<String> {
        let (code, warnings, mut answer) = self.send(step).await;
        let mut wrong = Vec::new();
        let mut compare = |what: &str, wanted: Value, found: Value| {
            if wanted != found {
                wrong.push(format!("{what}:\n  wanted {wanted}\n  found  {found}"));
            }
        };
        compare("code", step["code"].clone(), json!(code));
        if let Some(wanted) = step.get("warning") {
            compare("warning", wanted.clone(), json!(warnings));
        }
        if let Some(wanted) = step.get("message") {
            compare("message", wanted.clone(), answer["message"].clone());
        }
        if let Some(wanted) = step.get("fields") {
            let causes = answer["details"]["causes"].as_array().cloned().unwrap_or_default();
            let mut fields: Vec<_> = causes.iter().map(|it| it["field"].to_string()).collect();
            let mut wanted: Vec<_> =
                wanted.as_array().unwrap().iter().map(Value::to_string).collect();
            fields.sort();
            wanted.sort();
            compare("causes", json!(wanted), json!(fields));
        }
        for (name, wanted) in step["part"].as_object().into_iter().flatten() {
            compare(name, wanted.clone(), answer[name].clone());
        }
        for (name, path) in step["capture"].as_object().into_iter().flatten() {
            let pointer = format!("/{}", path.as_str().unwrap().replace('.', "/"));
            let value = answer.pointer(&pointer).and_then(Value::as_str).unwrap_or_default();
            self.captured.insert(name.clone(), value.to_owned());
        }
        if let Some(wanted) = step.get("object") {
            let mut wanted = wanted.clone();
            normalize(&mut wanted, &mut self.versions.0, managers);
            normalize(&mut answer, &mut self.versions.1, managers);
            if step["timeless"] == true {
                let entries = answer["metadata"]["managedFields"].as_array_mut().unwrap();
                for entry in entries {
                    entry.as_object_mut().unwrap().remove("time");
                }
            }
            compare("object", wanted, answer);
        }
        wrong
    }
}

#[tokio::test(start_paused = true)]
async fn applies_are_answered_as_they_were_recorded() {
    play(include_str!("recorded/apply.json")).await;
}

#[tokio::test(start_paused = true)]
async fn rules_of_definitions_are_enforced_as_they_were_recorded() {
    play(include_str!("recorded/cel.json")).await;
}

async fn play(recorded: &str) {
    let scenarios: Value = serde_json::from_str(recorded).unwrap();
    let mut wrong = Vec::new();
    for scenario in scenarios.as_array().unwrap() {
        let clock = tokio_clock("2026-01-01T00:00:00Z".parse().unwrap());
        let options = Options { clock, ..Options::memory() };
        let api = ApiServer::open(options).await.unwrap();
        let mut player =
            Player { api, captured: BTreeMap::new(), versions: (BTreeMap::new(), BTreeMap::new()) };
        for step in scenario["steps"].as_array().unwrap() {
            let found = player.step(step, scenario["managers"] == true).await;
            // definitions are established by a controller, on a paused clock
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            for what in found {
                wrong.push(format!("{}, {}: {what}", scenario["name"], step["name"]));
            }
        }
    }
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
}
