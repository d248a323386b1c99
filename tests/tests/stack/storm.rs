//! Many drivers at the same time, with the waits between their attempts that real ones make. On a
//! paused clock.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use ostler_api::operation::ClassReference;
use ostler_driver_sdk::{
    Connection, Connector, CreateMachine, DeleteMachine, Deletion, Driver, DriverError, DriverInfo,
    GetMachineStatus, Instance, ListMachines, Options, run_with,
};
use ostler_sessions::{
    ClassContent, ClassError, ClassSource, Principal, Providers, SecretContent, SessionEvent,
    Sessions, SessionsOptions, StaticTokens, Term,
};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;

/// A driver of a provider of its own, which is never asked anything.
struct Idle(String);

impl Driver for Idle {
    fn info(&self) -> DriverInfo {
        DriverInfo::new(self.0.as_str())
    }

    async fn create_machine(&self, _: CreateMachine) -> Result<Instance, DriverError> {
        Err(DriverError::internal("not asked"))
    }

    async fn delete_machine(&self, _: DeleteMachine) -> Result<Deletion, DriverError> {
        Err(DriverError::internal("not asked"))
    }

    async fn get_machine_status(&self, _: GetMachineStatus) -> Result<Instance, DriverError> {
        Err(DriverError::internal("not asked"))
    }

    async fn list_machines(&self, _: ListMachines) -> Result<Vec<Instance>, DriverError> {
        Err(DriverError::internal("not asked"))
    }
}

struct NoClasses;

#[ostler_sessions::async_trait]
impl ClassSource for NoClasses {
    fn class(&self, _: &str, _: &str) -> Result<ClassContent, ClassError> {
        Err(ClassError::NotFound)
    }

    async fn secret(&self, _: &ClassReference) -> Result<SecretContent, ClassError> {
        Err(ClassError::NotFound)
    }
}

const DRIVERS: usize = 1000;

#[tokio::test(start_paused = true)]
async fn a_thousand_drivers_that_dial_at_once_are_all_served_soon() {
    let name = |number: usize| format!("p{number}.example.com");
    let tokens = (0..DRIVERS).fold(StaticTokens::new(), |tokens, number| {
        let providers = Providers::named([name(number)]);
        tokens.with(&format!("token-{number}"), Principal::new(name(number), providers))
    });
    let options = SessionsOptions::default();
    let sessions = Sessions::new(options, Arc::new(NoClasses), Arc::new(tokens));
    sessions.lead(Term(1));
    let mut events = sessions.subscribe();
    let (door, incoming) = mpsc::channel(DRIVERS);
    let serving = sessions.clone();
    tokio::spawn(async move {
        let incoming = ReceiverStream::new(incoming).map(Ok::<_, std::io::Error>);
        serving.serve(incoming, std::future::pending()).await.unwrap();
    });
    let before = Instant::now();
    for number in 0..DRIVERS {
        let door = door.clone();
        let connector = Connector::new(move || {
            let door = door.clone();
            async move {
                let (ours, theirs) = tokio::io::duplex(1 << 14);
                door.send(theirs).await.unwrap();
                let ours = Mutex::new(Some(TokioIo::new(ours)));
                let pipe = tower::service_fn(move |_| {
                    let pipe = ours.lock().unwrap().take();
                    async move { pipe.ok_or_else(|| std::io::Error::other("used up")) }
                });
                let endpoint = Endpoint::from_static("http://core");
                let channel = endpoint.connect_with_connector(pipe).await.unwrap();
                Connection::new(channel).with_token(&format!("token-{number}"))
            }
        });
        tokio::spawn(run_with(Idle(name(number)), Options::new(connector)));
    }
    let mut ready = 0;
    let all = async {
        while ready < DRIVERS {
            if let SessionEvent::ProviderReady { .. } = events.recv().await.unwrap() {
                ready += 1;
            }
        }
    };
    timeout(Duration::from_mins(1), all).await.unwrap();
    let took = before.elapsed();
    assert!(took <= Duration::from_secs(15), "{took:?}");
    assert_eq!(sessions.providers().iter().filter(|provider| provider.ready).count(), DRIVERS);
}
