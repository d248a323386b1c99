use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::*;

/// An API server that can be switched off: then it fails, or does not answer at all.
#[derive(Debug, Default)]
struct Server {
    down: AtomicBool,
    mute: AtomicBool,
    asked: AtomicUsize,
}

impl Server {
    async fn answer(&self) -> Result<Response<Body>, std::io::Error> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if self.mute.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        if self.down.load(Ordering::Relaxed) {
            return Err(std::io::Error::other("down"));
        }
        let status = serde_json::json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "code": 404, "reason": "NotFound", "message": "no"
        });
        let body = Body::from(serde_json::to_vec(&status)?);
        Ok(Response::builder().status(404).body(body).unwrap())
    }
}

struct Run {
    server: Arc<Server>,
    api_health: Arc<ApiHealth>,
    transitions: mpsc::UnboundedReceiver<ApiTransition>,
    start: Instant,
}

impl Run {
    fn start() -> Self {
        let server = Arc::new(Server::default());
        let start = Instant::now();
        let clock: Clock = Arc::new(move || Timestamp::UNIX_EPOCH + start.elapsed());
        let mut registry = Registry::default();
        let api_health = Arc::new(ApiHealth::new(ApiCheck::default(), clock, &mut registry));
        let asked = Arc::clone(&server);
        let service = tower::service_fn(move |_: Request<Body>| {
            let server = Arc::clone(&asked);
            async move { server.answer().await }
        });
        let client = Client::new(service, "default");
        let probes = Probes {
            control: Some(Api::namespaced(client.clone(), "default")),
            targets: vec![Api::all(client)],
        };
        let (sender, transitions) = mpsc::unbounded_channel();
        let before = Some(Timestamp::UNIX_EPOCH);
        tokio::spawn(Arc::clone(&api_health).run(probes, before, move |transition| {
            sender.send(transition).unwrap();
        }));
        Self { server, api_health, transitions, start }
    }

    fn down(&self, down: bool) {
        self.server.down.store(down, Ordering::Relaxed);
    }

    async fn until(&self, second: u64) {
        tokio::time::sleep_until(self.start + Duration::from_secs(second)).await;
    }

    fn view(&self) -> ApiView {
        self.api_health.view(Timestamp::UNIX_EPOCH + self.start.elapsed())
    }
}

#[tokio::test(start_paused = true)]
async fn a_reported_outage_is_checked_immediately_and_announced_when_it_lasts() {
    let mut run = Run::start();
    run.until(300).await;
    run.down(true);
    run.api_health.check_again();
    run.until(303).await;
    assert!(run.view().down_since.is_some());
    assert!(!run.view().frozen);
    assert_eq!(run.transitions.recv().await, Some(ApiTransition::Frozen));
    assert!(run.start.elapsed().as_secs() <= 332, "{:?}", run.start.elapsed());
    run.until(900).await;
    run.down(false);
    assert_eq!(run.transitions.recv().await, Some(ApiTransition::Back));
    assert!(run.start.elapsed().as_secs() <= 902);
    assert!(run.view().frozen, "nodes had no time to report yet");
    assert_eq!(run.transitions.recv().await, Some(ApiTransition::Unfrozen));
    assert!(run.start.elapsed().as_secs() <= 915, "{:?}", run.start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_is_down_as_well() {
    let mut run = Run::start();
    run.until(100).await;
    run.server.mute.store(true, Ordering::Relaxed);
    assert_eq!(run.transitions.recv().await, Some(ApiTransition::Frozen));
    let waited = run.start.elapsed().as_secs();
    assert!(waited <= 100 + 62 + 30, "{waited}");
}

#[tokio::test(start_paused = true)]
async fn requests_for_checks_are_rate_limited() {
    let run = Run::start();
    run.until(100).await;
    let before = run.server.asked.load(Ordering::Relaxed);
    for tenth in 0..600 {
        run.api_health.check_again();
        tokio::time::sleep_until(run.start + Duration::from_millis(100_000 + tenth * 100)).await;
    }
    let asked = run.server.asked.load(Ordering::Relaxed) - before;
    assert!(asked <= 2 * 31, "{asked} in a minute");
}

#[tokio::test(start_paused = true)]
async fn what_came_instead_of_an_answer_is_said_until_there_is_one() {
    let run = Run::start();
    let cause = || run.view().cause.unwrap_or_default().to_string();
    run.until(100).await;
    assert_eq!(cause(), "");
    run.down(true);
    run.until(200).await;
    assert!(cause().ends_with("down"), "{}", cause());
    assert!(run.view().describe().starts_with("an API server does not answer ("));
    run.down(false);
    run.until(210).await;
    assert_eq!(cause(), "");
    run.server.mute.store(true, Ordering::Relaxed);
    run.until(310).await;
    assert_eq!(cause(), "no answer within 30s");
}
