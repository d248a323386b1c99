//! The content of the audit log.

use std::io;
use std::sync::{Arc, Mutex};

use serde_json::Value;

use crate::core::{Core, FOREIGN_TOKEN, create, status};
use crate::driver::{Driver, created};

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Who, verb, object, and outcome.
fn told(line: &str) -> String {
    let line: Value = serde_json::from_str(line).unwrap();
    let fields = &line["fields"];
    let text = |name: &str| fields[name].as_str().unwrap_or("-").to_owned();
    // Sessions have ids that are not known before.
    let object = if text("verb").ends_with("-session") { "-".to_owned() } else { text("object") };
    format!("{} {} {object} {} {}", text("who"), text("verb"), text("outcome"), text("reason"))
}

#[tokio::test(start_paused = true)]
async fn sessions_reads_and_mutations_are_written_down_and_no_secret_is() {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .json()
        .with_env_filter("off,ostler::audit=info")
        .with_writer(move || writer.clone())
        .finish();
    // With this subscriber alone, a place that another test comes by first would count as unheard.
    let _another = tracing::Dispatch::new(tracing_subscriber::registry());
    let listening = tracing::subscriber::set_default(subscriber);

    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    driver.take().await;
    driver.secret("op-1", "").await.unwrap();
    driver.secret("op-2", "").await.unwrap_err();
    assert!(Driver::open(&core, "canary-token").await.is_err());
    let channel = core.connect().await;
    Driver::call(&channel, FOREIGN_TOKEN).await;
    driver.complete("op-1", created("m")).await;
    let finished = core.outcome("uid-1").await;
    assert!(finished.outcome.is_ok());
    // Reads are not written down.
    core.sessions.submit(status("op-3", "uid-3")).unwrap();
    driver.take().await;
    drop(driver);
    core.provider_gone().await;
    drop(listening);

    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let told: Vec<String> = text.lines().map(told).collect();
    assert_eq!(
        told,
        [
            "fake open-session - ok -",
            "core CreateMachine Machine/default/machine-uid-1 sent -",
            "fake get secrets-of-machineclasses/default/small ok -",
            "fake get secrets-of-machineclasses/default/small denied -",
            " connect - refused Invalid",
            "foreign get secrets-of-machineclasses/default/small denied -",
            "core CreateMachine Machine/default/machine-uid-1 OK -",
            "fake close-session - ok STREAM_ENDED",
        ]
    );
    assert!(!text.contains("canary"), "{text}");
}
