//! What a driver tells of instances without being asked.

use ostler_api::hint::HintKind;
use ostler_proto::v1alpha1::{DriverCapability, DriverEvent, Hello, InstanceEvent, Readiness};
use ostler_sessions::SessionEvent;
use prometheus_client::registry::Registry;

use crate::core::{Core, PROVIDER, create};
use crate::driver::{Driver, Said, hello};

fn telling(n: u8) -> Hello {
    let mut hello = hello(n);
    hello.capabilities.push(DriverCapability::Events.into());
    hello
}

fn gone(provider_id: &str) -> Said {
    let event = DriverEvent {
        kind: InstanceEvent::Gone.into(),
        provider_id: provider_id.to_owned(),
        ..DriverEvent::default()
    };
    Said::Event(event.into())
}

/// The driver with its session, ready.
async fn dial(core: &Core, hello: Hello) -> Driver {
    let (mut driver, _) = Driver::dial(core, hello).await;
    driver.state(Readiness::Ready, 4).await;
    driver.handled().await;
    driver
}

/// The dropped events of a reason.
fn dropped(registry: &Registry, reason: &str) -> u64 {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
    let line = text.lines().find(|line| {
        line.starts_with("ostler_driver_events_dropped_total") && line.contains(reason)
    });
    line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
}

fn registry(core: &Core) -> Registry {
    let mut registry = Registry::default();
    core.sessions.register_metrics(&mut registry);
    registry
}

#[tokio::test(start_paused = true)]
async fn an_event_of_the_active_driver_is_passed_on() {
    let mut core = Core::start();
    let mut driver = dial(&core, telling(1)).await;
    driver.say(gone("fake:///1")).await;
    let event = core.event(|event| matches!(event, SessionEvent::Hint { .. })).await;
    let SessionEvent::Hint { provider, hint } = event else { panic!() };
    assert_eq!((provider.as_str(), hint.kind), (PROVIDER, HintKind::Gone));
    assert_eq!(hint.provider_id, "fake:///1");
}

#[tokio::test(start_paused = true)]
async fn who_did_not_say_that_it_tells_events_and_who_stands_by_is_not_heard() {
    let core = Core::start();
    let registry = registry(&core);
    let mut silent = dial(&core, hello(1)).await;
    silent.say(gone("fake:///1")).await;
    let mut standby = dial(&core, telling(2)).await;
    standby.say(gone("fake:///1")).await;
    silent.handled().await;
    standby.handled().await;
    assert_eq!(dropped(&registry, "NOT_DECLARED"), 1);
    assert_eq!(dropped(&registry, "STANDBY"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_events_is_cut_and_the_session_works_on() {
    let core = Core::start();
    let registry = registry(&core);
    let mut events = core.sessions.subscribe();
    let mut driver = dial(&core, telling(1)).await;
    for number in 0..3000 {
        driver.say(gone(&format!("fake:///{number}"))).await;
    }
    core.sessions.submit(create("op", "uid")).unwrap();
    assert_eq!(driver.take().await.operation_id, "op");
    let mut heard = 0;
    while let Ok(event) = events.try_recv() {
        heard += u64::from(matches!(event, SessionEvent::Hint { .. }));
    }
    // No time passes: the burst, and nothing more.
    assert_eq!(heard, 500);
    assert_eq!(dropped(&registry, "PROVIDER_RATE"), 2500);
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_comes_back_has_no_second_burst_of_events() {
    let core = Core::start();
    let registry = registry(&core);
    for _ in 0..3 {
        let mut driver = dial(&core, telling(1)).await;
        for number in 0..500 {
            driver.say(gone(&format!("fake:///{number}"))).await;
        }
        driver.handled().await;
        driver.leave();
        assert_eq!(driver.item().await.unwrap(), None);
    }
    assert_eq!(dropped(&registry, "PROVIDER_RATE"), 1000);
}
