//! Patches and objects that attack the server's parser.

use std::time::Duration;

use serde_json::{Value, json};

use crate::attacks::client::{Client, MERGE, PATCH};
use crate::attacks::others::Attack;
use crate::attacks::raw::{drain, push};
use crate::attacks::table;
use crate::attacks::up::{Options, Up, within};

/// A machine is made in a second or two; no test waits this long for one.
const MADE: Duration = Duration::from_secs(20);
const NAMESPACE: &str = "/apis/machine.sapcloud.io/v1alpha1/namespaces/default";
/// How long one answer may take.
const ANSWERED: Duration = Duration::from_mins(2);
/// Bytes of warnings that kube-apiserver puts into one answer.
const WARNINGS: usize = 4096;

/// The outcome of a request in a few words.
pub(crate) fn outcome(
    up: &mut Up,
    answer: &Result<crate::attacks::client::Answer, String>,
) -> String {
    let end = up.ended().map_or_else(|| "alive".to_owned(), |status| format!("process {status}"));
    match answer {
        Ok(answer) => format!("{}, {end}", answer.code),
        Err(error) => format!("{error}, {end}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pointer_of_twenty_thousand_parts_is_refused_and_fells_nobody() {
    let mut up = Up::start(Options::api_only()).await;
    let node = Client::node(&up, "attack", "n1").await;
    let attack = Attack::begin(&up, "01 JSON patch, pointer of 20,000 parts", "node").await;
    let path = "/a".repeat(20_000);
    let patches = [
        json!([{"op": "test", "path": path, "value": 1}]),
        json!([{"op": "add", "path": path, "value": 1}]),
        json!([{"op": "remove", "path": path}]),
        json!([{"op": "copy", "from": path, "path": "/metadata/labels/a"}]),
    ];
    let mut answers = Vec::new();
    for patch in patches {
        answers.push(node.patch("/api/v1/nodes/n1", PATCH, patch.to_string()).await);
    }
    // The kernel takes a moment to tell of an abort.
    up.end(Duration::from_millis(200)).await;
    let seen = attack.end(&outcome(&mut up, &answers[0])).await;
    assert_eq!(up.ended(), None, "the process goes on: {}", up.stderr.all());
    for answer in answers {
        assert!(answer.as_ref().is_ok_and(crate::attacks::client::Answer::refused), "{answer:?}");
    }
    seen.took_little_memory().left_others_alone();
}

fn nested(depth: usize) -> Value {
    (0..depth).fold(json!(1), |inner, _| json!({ "x": inner }))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_class_that_is_too_deep_to_be_read_is_not_written_and_stops_no_core() {
    // A core that is stopped is never ready; that is for the machine below to show.
    let until = Some("takes drivers at");
    let up = Up::start(Options { until, ..Options::default() }).await;
    let admin = Client::admin(&up);
    let examples = ostler_tests::tools::root().join("deploy/examples/fake");
    let read = |file: &str| -> Value {
        serde_saphyr::from_str(&std::fs::read_to_string(examples.join(file)).unwrap()).unwrap()
    };
    let class = read("class.yaml");
    let mut poisoned = class.clone();
    poisoned["metadata"]["name"] = "poison".into();
    admin.post("/api/v1/namespaces/default/secrets", &read("secret.yaml")).await.unwrap().good();
    for class in [class, poisoned] {
        admin.post(&format!("{NAMESPACE}/machineclasses"), &class).await.unwrap().good();
    }
    let deep = format!("/providerSpec/a{}", "/x".repeat(100));
    let patch = json!([{"op": "add", "path": "/providerSpec/a", "value": nested(100)},
        {"op": "add", "path": deep, "value": nested(100)}]);
    let poison = format!("{NAMESPACE}/machineclasses/poison");
    let patched = admin.patch(&poison, PATCH, patch.to_string()).await.unwrap();
    let read_back = admin.get(&poison).await.unwrap().json();
    let list = admin.get(&format!("{NAMESPACE}/machineclasses")).await.unwrap().json();

    let up = up.kill_and_start().await;
    let admin = Client::admin(&up);
    admin
        .post(&format!("{NAMESPACE}/machines"), &read("../machine/fake-1.yaml"))
        .await
        .unwrap()
        .good();
    let machine = format!("{NAMESPACE}/machines/fake-1");
    let made = within(MADE, async || {
        let machine = admin.get(&machine).await.ok()?.json();
        machine["spec"]["providerID"].as_str().map(str::to_owned)
    });
    let made = made.await;
    let whole = read_back["metadata"]["name"] == "poison"
        && list["items"].as_array().unwrap().iter().all(Value::is_object);
    let outcome = format!(
        "{}; {}; {}",
        patched.code,
        if whole { "all readable" } else { "`null` where the class was" },
        if made.is_some() {
            "machines are made after a restart"
        } else {
            "no machine is made after a restart"
        }
    );
    table::verdict("02 object of depth 200 from two adds of 100", "author of a class", &outcome);
    assert!(patched.refused(), "{}", patched.code);
    assert!(whole, "{read_back} {list}");
    assert!(made.is_some(), "the core goes on: {}", up.said());
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_thousand_unknown_fields_are_warned_of_in_four_kilobytes() {
    let mut up = Up::start(Options::api_only()).await;
    let node = Client::node(&up, "attack", "n1").await;
    let attack = Attack::begin(&up, "14a 20,000 unknown fields", "node").await;
    let fields: serde_json::Map<String, Value> =
        (0..20_000).map(|field| (format!("unknown{field}"), json!(1))).collect();
    let body = Value::from(fields).to_string();
    let head = format!(
        "PATCH /api/v1/nodes/n1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\
         Content-Type: {MERGE}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    // Read as it comes: no library takes so many headers.
    let mut wire = node.tls("http/1.1").await.unwrap();
    push(&mut wire, format!("{head}{body}").as_bytes(), ANSWERED).await;
    let answer = drain(&mut wire, 4 << 20, ANSWERED).await.unwrap();
    let answer = String::from_utf8_lossy(&answer).to_lowercase();
    let head = answer.split("\r\n\r\n").next().unwrap();
    let warned: usize =
        head.lines().filter_map(|line| line.strip_prefix("warning: ")).map(str::len).sum();
    let code = head.lines().next().unwrap().to_owned();
    let outcome = format!("{code}, {warned} B of warnings");
    let seen = attack.end(&outcome).await;
    assert_eq!(up.ended(), None);
    assert!(warned <= WARNINGS, "{warned} bytes of warnings");
    seen.took_little_memory().left_others_alone();
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_moves_in_a_long_list_hold_nobody_up() {
    let mut up = Up::start(Options::api_only()).await;
    let node = Client::node(&up, "attack", "n1").await;
    let volumes: Vec<String> = (0..60_000).map(|volume| format!("v{volume}")).collect();
    let status = json!([{"op": "add", "path": "/status/volumesInUse", "value": volumes}]);
    // Refused is fine: then there is nothing to move.
    node.patch("/api/v1/nodes/n1/status", PATCH, status.to_string()).await.unwrap();
    let attack = Attack::begin(&up, "14b 10,000 moves in a list of 60,000", "node").await;
    let one = json!({"op": "move", "from": "/status/volumesInUse/0", "path": "/status/volumesInUse/59999"});
    let moves = Value::from(vec![one; 10_000]).to_string();
    let answer = node.patch("/api/v1/nodes/n1/status", PATCH, moves).await;
    let seen = attack.end(&outcome(&mut up, &answer)).await;
    answer.unwrap();
    seen.took_little_memory().left_others_alone();
}
