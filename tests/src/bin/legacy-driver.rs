//! The driver of the first proposal that the tests use, as a process: `legacy-driver ADDRESS:PORT`. Prints the machines that
//! have an instance, after each change.

use std::io::Write as _;
use std::time::Duration;

use ostler_tests::legacy_driver::{OldCloud, run};
use tonic::transport::Endpoint;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address =
        std::env::args().nth(1).ok_or("give the address of the core's legacy listener")?;
    let endpoint = Endpoint::from_shared(format!("http://{address}"))?;
    let cloud = OldCloud::default();
    tokio::spawn(tell(cloud.clone()));
    run(|| endpoint.connect(), cloud).await;
    Ok(())
}

/// Prints the instances after each change.
async fn tell(cloud: OldCloud) {
    let mut before = None;
    loop {
        let now: Vec<String> = cloud.vms().into_iter().map(|vm| vm.name).collect();
        if before.as_ref() != Some(&now) {
            // A closed stdout is no reason to stop.
            let _closed = writeln!(std::io::stdout(), "instances: {}", now.join(" "));
            before = Some(now);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
