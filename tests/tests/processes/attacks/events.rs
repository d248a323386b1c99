//! A driver that tells of instances without end, of its own and of others.

use std::time::Duration;

use ostler_proto::v1alpha1::register_request::Frame;
use ostler_proto::v1alpha1::{DriverEvent, InstanceEvent};
use serde_json::{Value, json};

use crate::attacks::client::Client;
use crate::attacks::driver::{HOSTILE, Session};
use crate::attacks::liars::{FAKE, SPACE, class, ground, honest, machine, provider_id, small};
use crate::attacks::others::Attack;
use crate::attacks::up::within;

/// For how long it tells.
const TELLING: Duration = Duration::from_secs(10);
/// What the core takes of a provider at once; the flood is one only beyond it.
const BURST: usize = 500;
const GONE: Duration = Duration::from_secs(30);

/// As long as an event may be, of the kind that is shown at a Machine.
fn notice(provider_id: String) -> Frame {
    Frame::Event(Box::new(DriverEvent {
        kind: InstanceEvent::TerminationNotice.into(),
        provider_id,
        message: "m".repeat(2 << 10),
        ..DriverEvent::default()
    }))
}

async fn get(admin: &Client, name: &str) -> Value {
    admin.get(&format!("{SPACE}/machines/{name}")).await.unwrap().json()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_events_holds_nobody_up_and_touches_no_machine_of_others() {
    let (directory, up, admin) = ground().await;
    class(&admin, "hostile", HOSTILE, json!({})).await;
    class(&admin, "honest", FAKE, small()).await;
    let _driver = honest(&up, directory.path()).await;
    for name in ["named", "deleted"] {
        machine(&admin, name, "honest").await;
        provider_id(&admin, name).await.expect("it is made");
    }
    let id = provider_id(&admin, "named").await.unwrap();
    let mut session = Session::begin(&up, HOSTILE, Vec::new()).await;
    let attack = Attack::begin(&up, "09e events without end, 2 KiB each, 10 s", "driver").await;
    let mut number = 0;
    let flood = session.flood(TELLING, || {
        number += 1;
        let others = format!("a:///{number}");
        notice(if number % 2 == 0 { id.clone() } else { others })
    });
    let work = async {
        machine(&admin, "beside", "honest").await;
        let made = provider_id(&admin, "beside").await;
        let path = format!("{SPACE}/machines/deleted");
        admin.delete(&path).await.unwrap().good();
        let gone = within(GONE, async || {
            admin.get(&path).await.is_ok_and(|answer| answer.code == 404).then_some(())
        });
        (made.is_some(), gone.await.is_some())
    };
    let (sent, (made, gone)) = tokio::join!(flood, work);
    let seen = attack.end(&format!("{sent} events; made {made}, deleted {gone}")).await;
    assert!(sent > BURST, "{sent}");
    assert!(made && gone, "made {made}, deleted {gone}: {}", up.stderr.all());
    assert_eq!(get(&admin, "named").await["status"]["instanceNotice"], Value::Null);
    seen.took_little_memory().left_others_alone();
}
