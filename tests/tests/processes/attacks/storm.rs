//! SIGKILL, again and again, in the middle of writes: what was acknowledged is there.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use crate::attacks::client::{Client, JSON, MERGE, plain, with_body};
use crate::attacks::raw::many;
use crate::attacks::table;
use crate::attacks::up::{Options, Up};

const KILLS: usize = 10;
const WRITERS: usize = 4;
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A writer's value of an object; `None`: deleted.
type Value = Option<usize>;

/// The possible values: the last acknowledged value, and the value on its way.
#[derive(Clone, Debug, Default)]
struct Known {
    acknowledged: Value,
    on_its_way: Option<Value>,
}

type Book = Arc<Mutex<BTreeMap<String, Known>>>;

/// Writes until the server is gone. Every write is noted before it is sent.
async fn write(admin: Client, book: Book, writer: usize, life: usize) -> usize {
    let mut acknowledged = 0;
    let Ok(mut connection) = admin.connect().await else { return 0 };
    for number in 0.. {
        let name = format!("w{writer}-{life}-{}", number / 3);
        let path = format!("{MAPS}/{name}");
        let text = "x".repeat(10 + (number * 7919) % 40_000);
        let data = json!({"data": {"n": number.to_string(), "text": text}});
        let (request, value) = match number % 3 {
            0 => {
                let mut map =
                    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
                map["data"] = data["data"].clone();
                (with_body("POST", MAPS, JSON, map.to_string()), Some(number))
            }
            1 => (with_body("PATCH", &path, MERGE, data.to_string()), Some(number)),
            // Every second one stays.
            _ if number % 2 == 0 => (plain("DELETE", &path), None),
            _ => continue,
        };
        book.lock().unwrap().entry(name.clone()).or_default().on_its_way = Some(value);
        let Ok(answer) = connection.ask(request).await else { return acknowledged };
        assert!(answer.code < 300, "{}: {:?}", answer.code, answer.body);
        let known = Known { acknowledged: value, on_its_way: None };
        book.lock().unwrap().insert(name, known);
        acknowledged += 1;
    }
    acknowledged
}

/// What is there and should not be, and what is not and should.
async fn wrong(admin: &Client, book: &Book) -> Vec<String> {
    let list = admin.get(MAPS).await.unwrap().good().json();
    let mut there: BTreeMap<String, usize> = BTreeMap::new();
    for item in list["items"].as_array().unwrap() {
        let name = item["metadata"]["name"].as_str().unwrap().to_owned();
        if name.starts_with('w') {
            there.insert(name, item["data"]["n"].as_str().unwrap().parse().unwrap());
        }
    }
    let mut wrong = Vec::new();
    for (name, known) in book.lock().unwrap().iter_mut() {
        let seen = there.get(name).copied();
        if seen != known.acknowledged && Some(seen) != known.on_its_way {
            wrong.push(format!("{name}: {seen:?}, not {known:?}"));
        }
        *known = Known { acknowledged: seen, on_its_way: None };
    }
    wrong
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_was_acknowledged_is_lost_by_ten_kills() {
    let mut up = Up::start(Options::api_only()).await;
    let book = Book::default();
    let (mut acknowledged, mut broken) = (0, Vec::new());
    for life in 0..KILLS {
        let admin = Client::admin(&up);
        let writing = tokio::spawn(many(WRITERS, WRITERS, {
            let (admin, book) = (admin.clone(), Arc::clone(&book));
            move |writer| write(admin.clone(), Arc::clone(&book), writer, life)
        }));
        // A different moment in each life.
        sleep(Duration::from_millis(200 + 53 * u64::try_from(life).unwrap())).await;
        up.kill().await;
        acknowledged += writing.await.unwrap().into_iter().sum::<usize>();
        up = up.kill_and_start().await;
        broken.extend(wrong(&Client::admin(&up), &book).await);
    }
    table::verdict(
        "13 SIGKILL in the middle of writes, 10 times",
        "–",
        &format!("{acknowledged} acknowledged writes, lost or wrong: {}", broken.len()),
    );
    assert!(acknowledged > 0 && broken.is_empty(), "{broken:?}");
}
