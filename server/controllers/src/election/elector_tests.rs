use std::sync::{Arc, Mutex};

use http::{Method, Request, Response, StatusCode};
use kube::client::Body;

use super::*;
use crate::settings::Settings;

/// The Lease endpoint of an API server.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of a test")]
struct LeaseServer {
    lease: Option<Lease>,
    version: u64,
    down: bool,
    /// Another client edits the Lease before each write.
    meddled_with: bool,
    namespace_ends: bool,
    /// The ConfigMap of the cluster id is not there.
    has_no_id: bool,
}

type Shared = Arc<Mutex<LeaseServer>>;

fn client(server: &Shared) -> Client {
    let server = Arc::clone(server);
    let service = tower::service_fn(move |request: Request<Body>| {
        let server = Arc::clone(&server);
        async move {
            let (method, path) = (request.method().clone(), request.uri().path().to_owned());
            let body = request.into_body().collect_bytes().await.unwrap();
            let (code, answer) = server.lock().unwrap().answer(&method, &path, &body);
            let answer = Response::builder().status(code).body(Body::from(answer)).unwrap();
            Ok::<_, Infallible>(answer)
        }
    });
    Client::new(service, "default")
}

impl LeaseServer {
    fn answer(&mut self, method: &Method, path: &str, body: &[u8]) -> (StatusCode, Vec<u8>) {
        if self.down {
            return failure(StatusCode::INTERNAL_SERVER_ERROR);
        }
        let deleted = self.namespace_ends.then_some("2026-01-01T00:00:00Z");
        let other =
            serde_json::json!({ "metadata": { "name": "x", "deletionTimestamp": deleted } });
        if path == "/api/v1/namespaces/default" {
            return (StatusCode::OK, serde_json::to_vec(&other).unwrap());
        }
        if path.ends_with("/configmaps/ostler-cluster-id") {
            let found = (StatusCode::OK, serde_json::to_vec(&other).unwrap());
            return if self.has_no_id { failure(StatusCode::NOT_FOUND) } else { found };
        }
        if self.meddled_with && method == Method::PUT {
            self.edit();
        }
        let sent: Option<Lease> = serde_json::from_slice(body).ok();
        match (method.as_str(), self.lease.clone(), sent) {
            ("GET", Some(lease), _) => (StatusCode::OK, serde_json::to_vec(&lease).unwrap()),
            ("GET" | "PUT", None, _) => failure(StatusCode::NOT_FOUND),
            ("POST", None, Some(mut lease)) => {
                lease.metadata.uid = Some(format!("lease-{}", self.version));
                self.store(lease)
            }
            ("PUT", Some(here), Some(lease))
                if here.metadata.resource_version == lease.metadata.resource_version =>
            {
                self.store(lease)
            }
            _ => failure(StatusCode::CONFLICT),
        }
    }

    fn store(&mut self, mut lease: Lease) -> (StatusCode, Vec<u8>) {
        self.version += 1;
        lease.metadata.resource_version = Some(self.version.to_string());
        let goes = lease.metadata.deletion_timestamp.is_some();
        let held = lease.metadata.finalizers.as_ref().is_some_and(|all| !all.is_empty());
        self.lease = Some(lease.clone()).filter(|_| held || !goes);
        (StatusCode::OK, serde_json::to_vec(&lease).unwrap())
    }

    /// A person's label on the Lease.
    fn edit(&mut self) {
        let mut lease = self.lease.clone().unwrap();
        lease.metadata.labels = Some([("by".to_owned(), "hand".to_owned())].into());
        self.store(lease);
    }

    /// `kubectl delete lease`, of a Lease that a core holds.
    fn delete(&mut self) {
        let mut lease = self.lease.clone().unwrap();
        lease.metadata.finalizers = Some(vec![ostler_api::names::finalizer::CORE.to_owned()]);
        lease.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::UNIX_EPOCH));
        self.store(lease);
    }

    fn holder(&self) -> String {
        self.lease.as_ref().map(holder).unwrap_or_default()
    }
}

fn failure(code: StatusCode) -> (StatusCode, Vec<u8>) {
    let reason = code.canonical_reason().unwrap_or_default().replace(' ', "");
    let status = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "code": code.as_u16(), "reason": reason, "message": "no"
    });
    (code, serde_json::to_vec(&status).unwrap())
}

fn elector(server: &Shared, identity: &str) -> Elector {
    let start = Instant::now();
    let clock: Clock =
        Arc::new(move || Timestamp::from_second(1_600_000_000).unwrap() + start.elapsed());
    let need = watch::Sender::default().subscribe();
    let home = Arc::new(Settings::default().home_namespace(client(server)));
    Elector::new(client(server), ElectionSettings::new("default", identity), clock, need, home)
}

async fn leader(server: &Shared, identity: &str) -> Leadership {
    elector(server, identity)
        .acquire(Observed::default(), &CancellationToken::new())
        .await
        .unwrap()
        .unwrap()
}

/// Leads until the leadership ends. An hour on a paused clock is more than any end takes.
async fn end_of(leadership: Leadership) -> Result<(), ElectionError> {
    let stop = CancellationToken::new();
    let ended = timeout(Duration::from_hours(1), leadership.hold(&stop, |_| {}, || true)).await;
    ended.expect("leadership ends")
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_is_taken_over_as_a_later_term() {
    let server = Shared::default();
    let first = leader(&server, "a").await;
    let term = first.term();
    let stop = CancellationToken::new();
    stop.cancel();
    first.hold(&stop, |_| {}, || true).await.unwrap();
    assert_eq!(server.lock().unwrap().holder(), "");
    let before = Instant::now();
    let second = leader(&server, "b").await;
    assert_eq!(before.elapsed(), Duration::ZERO);
    assert!(second.term() > term);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_others_edited_since_its_last_renewal_is_released_unless_it_was_taken() {
    for taken_by in [None, Some("b")] {
        let server = Shared::default();
        let first = leader(&server, "a").await;
        {
            let mut server = server.lock().unwrap();
            server.edit();
            let mut lease = server.lease.clone().unwrap();
            if let Some(other) = taken_by {
                lease.spec.as_mut().unwrap().holder_identity = Some(other.to_owned());
            }
            server.store(lease);
        }
        let stop = CancellationToken::new();
        stop.cancel();
        first.hold(&stop, |_| {}, || true).await.unwrap();
        assert_eq!(server.lock().unwrap().holder(), taken_by.unwrap_or_default());
        let lease = server.lock().unwrap().lease.clone().unwrap();
        assert_eq!(lease.metadata.labels, Some([("by".to_owned(), "hand".to_owned())].into()));
    }
}

#[tokio::test(start_paused = true)]
async fn the_lease_of_a_dead_holder_is_taken_when_it_has_expired() {
    let server = Shared::default();
    let dead = leader(&server, "a").await;
    let before = Instant::now();
    let second = leader(&server, "b").await;
    let waited = before.elapsed().as_secs();
    assert!((15..=17).contains(&waited), "{waited}");
    assert!(second.term() > dead.term());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_observed_to_expire_before_it_may_be_taken_is_taken_at_once() {
    let server = Shared::default();
    let dead = leader(&server, "a").await;
    let mut observed = Observed::default();
    let next = elector(&server, "b");
    let watched = timeout(Duration::from_secs(15), next.observe(&mut observed)).await;
    assert!(watched.is_err(), "it does not end by itself");
    let before = Instant::now();
    let second = next.acquire(observed, &CancellationToken::new()).await.unwrap().unwrap();
    assert_eq!(before.elapsed(), Duration::ZERO);
    assert!(second.term() > dead.term());
}

#[tokio::test(start_paused = true)]
async fn a_candidate_that_must_not_wait_takes_a_held_lease_and_its_holder_ends() {
    let server = Shared::default();
    let first = leader(&server, "a").await;
    let term = first.term();
    let mut impatient = elector(&server, "b");
    impatient.settings.take_immediately = true;
    let before = Instant::now();
    let second =
        impatient.acquire(Observed::default(), &CancellationToken::new()).await.unwrap().unwrap();
    assert_eq!(before.elapsed(), Duration::ZERO);
    assert!(second.term() > term, "drivers can distinguish them");
    let ended = end_of(first).await;
    let why = ended.unwrap_err().to_string();
    assert_eq!(
        why,
        "another core, \"b\", took the lease \"machine-controller\" from this one at 2020-09-13T12:26:40Z, as \
         --leader-elect=false lets it; this one ends. Run one core, or all of them with --leader-elect=true"
    );
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_renewed_is_not_taken() {
    let server = Shared::default();
    let stop = CancellationToken::new();
    let first = leader(&server, "a").await;
    let hold = tokio::spawn({
        let stop = stop.clone();
        async move { first.hold(&stop, |_| {}, || true).await }
    });
    let patience = timeout(Duration::from_mins(2), leader(&server, "b")).await;
    assert!(patience.is_err());
    assert_eq!(server.lock().unwrap().holder(), "a");
    stop.cancel();
    hold.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_ends_before_another_may_take_over() {
    let server = Shared::default();
    let first = leader(&server, "a").await;
    let before = Instant::now();
    server.lock().unwrap().down = true;
    let ended = end_of(first).await;
    assert!(matches!(ended, Err(ElectionError::Lost { .. })), "{ended:?}");
    assert!(before.elapsed() < Duration::from_secs(15), "{:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_lease_was_taken_ends_immediately() {
    let server = Shared::default();
    let first = leader(&server, "a").await;
    {
        let mut server = server.lock().unwrap();
        let mut lease = server.lease.clone().unwrap();
        lease.spec.as_mut().unwrap().holder_identity = Some("b".to_owned());
        server.store(lease);
    }
    let ended = end_of(first).await;
    assert!(matches!(ended, Err(ElectionError::Taken { holder, .. }) if holder == "b"));
}

/// Leads in the background; until when the Lease is ours, and how it ends.
fn led(leadership: Leadership) -> (Arc<Mutex<Instant>>, CancellationToken, Ending) {
    let until = Arc::new(Mutex::new(Instant::now()));
    let stop = CancellationToken::new();
    let (told, end) = (Arc::clone(&until), stop.clone());
    let hold = async move {
        let hold = leadership.hold(&end, |until| *told.lock().unwrap() = until, || true);
        timeout(Duration::from_hours(1), hold).await.expect("leadership ends")
    };
    (until, stop, tokio::spawn(hold))
}

type Ending = tokio::task::JoinHandle<Result<(), ElectionError>>;

#[tokio::test(start_paused = true)]
async fn a_leader_that_was_taken_out_of_its_lease_or_whose_lease_was_deleted_goes_on_in_its_term() {
    let emptied = |lease: Option<Lease>| {
        let mut lease = lease.unwrap();
        lease.spec.as_mut().unwrap().holder_identity = Some(String::new());
        Some(lease)
    };
    for edit in [emptied, |_| None] {
        let server = Shared::default();
        let first = leader(&server, "a").await;
        let term = first.term();
        let (until, stop, end) = led(first);
        sleep(Duration::from_secs(1)).await;
        {
            let mut server = server.lock().unwrap();
            match edit(server.lease.take()) {
                Some(lease) => drop(server.store(lease)),
                None => server.version += 1,
            }
        }
        sleep(Duration::from_mins(1)).await;
        let now = server.lock().unwrap().lease.clone().unwrap();
        assert_eq!((holder(&now).as_str(), record::term_of(&now)), ("a", term));
        assert!(*until.lock().unwrap() > Instant::now());
        stop.cancel();
        end.await.unwrap().unwrap();
    }
}

/// Another process takes the Lease, as if expired.
fn take(server: &Shared, by: &str) {
    let mut server = server.lock().unwrap();
    let mut lease = server.lease.clone().unwrap();
    let spec = lease.spec.as_mut().unwrap();
    spec.holder_identity = Some(by.to_owned());
    spec.lease_transitions = spec.lease_transitions.map(|it| it + 1);
    server.store(lease);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_deleted_and_made_by_another_core_is_its_own() {
    let server = Shared::default();
    let first = leader(&server, "a").await;
    let term = first.term();
    let candidate = elector(&server, "b");
    sleep(Duration::from_secs(2)).await;
    server.lock().unwrap().lease = None;
    let second =
        candidate.acquire(Observed::default(), &CancellationToken::new()).await.unwrap().unwrap();
    assert!(second.term() > term);
    let ended = end_of(first).await;
    assert!(matches!(ended, Err(ElectionError::Taken { holder, .. }) if holder == "b"));
    assert_eq!(server.lock().unwrap().holder(), "b");
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_stood_still_goes_on_if_nobody_took_its_lease_and_sends_nothing_before_it_knows()
 {
    let server = Shared::default();
    let first = leader(&server, "a").await;
    let term = first.term();
    let (until, stop, end) = led(first);
    sleep(Duration::from_secs(3)).await;
    for stopped in [12, 15, 600] {
        server.lock().unwrap().down = true;
        tokio::time::advance(Duration::from_secs(stopped)).await;
        assert!(*until.lock().unwrap() < Instant::now(), "others may have had the lease");
        server.lock().unwrap().down = false;
        sleep(Duration::from_secs(3)).await;
        assert!(*until.lock().unwrap() > Instant::now(), "no other process had it");
        assert!(!end.is_finished());
    }
    let now = server.lock().unwrap().lease.clone().unwrap();
    assert_eq!((holder(&now).as_str(), record::term_of(&now)), ("a", term));
    stop.cancel();
    end.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_stood_still_until_another_took_its_lease_says_so_and_ends() {
    let server = Shared::default();
    let (until, _stop, end) = led(leader(&server, "a").await);
    sleep(Duration::from_secs(3)).await;
    take(&server, "b");
    tokio::time::advance(Duration::from_secs(20)).await;
    let error = end.await.unwrap().unwrap_err();
    assert!(*until.lock().unwrap() < Instant::now());
    let said = error.to_string();
    assert!(
        said.contains("\"b\", took the lease") && said.contains("stood still for 20s"),
        "{said}"
    );
    assert!(!said.contains("--leader-elect"), "{said}");
    assert_eq!(server.lock().unwrap().holder(), "b");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_lost_says_whether_the_api_server_or_this_process_was_the_cause() {
    let server = Shared::default();
    let (_until, _stop, end) = led(leader(&server, "a").await);
    server.lock().unwrap().down = true;
    let said = end.await.unwrap().unwrap_err().to_string();
    assert!(said.contains("not renewed for 10s, the API server said: "), "{said}");
    assert!(!said.contains("stood still"), "{said}");

    let server = Shared::default();
    let (_until, _stop, end) = led(leader(&server, "a").await);
    sleep(Duration::from_secs(1)).await;
    server.lock().unwrap().down = true;
    tokio::time::advance(Duration::from_secs(30)).await;
    let said = end.await.unwrap().unwrap_err().to_string();
    assert!(said.contains("API server said") && said.contains("stood still for 30s"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_lease_others_edit_between_its_renewals_renews_it_and_keeps_it() {
    let server = Shared::default();
    let first = leader(&server, "a").await;
    let edits = tokio::spawn({
        let server = Arc::clone(&server);
        async move {
            loop {
                server.lock().unwrap().edit();
                sleep(Duration::from_secs(1)).await;
            }
        }
    });
    let hold =
        tokio::spawn(async move { first.hold(&CancellationToken::new(), |_| {}, || true).await });
    let patience = timeout(Duration::from_mins(2), leader(&server, "b")).await;
    assert!(patience.is_err(), "the renewals are in the lease");
    assert!(!hold.is_finished());
    edits.abort();
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_an_edit_forestalls_at_every_renewal_ends_before_another_may_take_over() {
    let server = Shared::default();
    let first = leader(&server, "a").await;
    let before = Instant::now();
    server.lock().unwrap().meddled_with = true;
    let ended = end_of(first).await;
    assert!(matches!(ended, Err(ElectionError::Lost { .. })), "{ended:?}");
    assert!(before.elapsed() < Duration::from_secs(15), "{:?}", before.elapsed());
}

/// The API server has this Lease again.
fn restore(server: &Shared, backup: Option<Lease>) {
    let mut server = server.lock().unwrap();
    (server.lease, server.version) = (backup, 1);
}

#[tokio::test(start_paused = true)]
async fn a_leader_ends_if_the_api_was_restored_although_the_lease_is_its_own_or_was_not_there_yet()
{
    for has_lease in [true, false] {
        let server = Shared::default();
        let first = leader(&server, "a").await;
        let backup = server.lock().unwrap().lease.clone().filter(|_| has_lease);
        let ended = tokio::spawn(end_of(first));
        sleep(Duration::from_secs(5)).await;
        restore(&server, backup);
        let ended = ended.await.unwrap();
        assert!(matches!(ended, Err(ElectionError::Restored { .. })), "{ended:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_candidate_that_saw_what_a_restored_api_does_not_have_does_not_lead() {
    for has_lease in [true, false] {
        let server = Shared::default();
        let _dead = leader(&server, "a").await;
        let backup = server.lock().unwrap().lease.clone().filter(|_| has_lease);
        server.lock().unwrap().version = 7;
        server.lock().unwrap().edit();
        let next = elector(&server, "b");
        let ended = tokio::spawn(async move {
            next.acquire(Observed::default(), &CancellationToken::new()).await
        });
        sleep(Duration::from_secs(5)).await;
        restore(&server, backup);
        let ended = ended.await.unwrap().map(|_| ());
        assert!(matches!(ended, Err(ElectionError::Restored { .. })), "{ended:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_held_lease_that_a_user_deletes_goes_and_is_made_again_in_its_term_by_its_leader() {
    let server = Shared::default();
    let first = leader(&server, "a").await;
    let (term, uid) = (first.term(), first.lease_uid());
    let (until, stop, end) = led(first);
    sleep(Duration::from_secs(1)).await;
    server.lock().unwrap().delete();
    sleep(Duration::from_secs(5)).await;
    let now = server.lock().unwrap().lease.clone().unwrap();
    assert_eq!((holder(&now).as_str(), record::term_of(&now)), ("a", term));
    assert_eq!(now.metadata.deletion_timestamp, None);
    assert_ne!(now.metadata.uid, Some(uid), "it is another one");
    assert!(*until.lock().unwrap() > Instant::now());
    stop.cancel();
    end.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_held_lease_whose_namespace_ends_is_renewed_to_the_end() {
    let server = Shared::default();
    let first = leader(&server, "a").await;
    let (until, stop, end) = led(first);
    {
        let mut server = server.lock().unwrap();
        server.namespace_ends = true;
        server.delete();
    }
    sleep(Duration::from_mins(5)).await;
    assert!(server.lock().unwrap().lease.clone().unwrap().metadata.deletion_timestamp.is_some());
    assert!(*until.lock().unwrap() > Instant::now());
    stop.cancel();
    end.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_held_lease_that_a_user_deletes_after_its_leader_died_is_taken_at_once_as_another_one() {
    for ends in [false, true] {
        let server = Shared::default();
        let dead = leader(&server, "a").await;
        {
            let mut server = server.lock().unwrap();
            server.namespace_ends = ends;
            server.delete();
        }
        let before = Instant::now();
        let second = leader(&server, "b").await;
        assert_eq!(
            before.elapsed().is_zero(),
            !ends,
            "one that goes with its namespace is not free"
        );
        assert!(second.term() > dead.term());
        assert_eq!(second.lease_uid() == dead.lease_uid(), ends);
        assert_eq!(second.predecessor(), Predecessor::MayAct);
    }
}

#[tokio::test(start_paused = true)]
async fn a_candidate_makes_no_lease_where_the_cluster_id_is_not() {
    for has_lease in [false, true] {
        let server = Shared::default();
        if has_lease {
            let _dead = leader(&server, "a").await;
            server.lock().unwrap().delete();
        }
        server.lock().unwrap().has_no_id = true;
        let next = elector(&server, "b");
        let ended = next.acquire(Observed::default(), &CancellationToken::new()).await.map(|_| ());
        assert!(matches!(ended, Err(ElectionError::Moved { .. })), "{ended:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_api_server_said_is_its_message_and_not_all_of_its_answer() {
    let server = Shared::default();
    let (_until, _stop, end) = led(leader(&server, "a").await);
    server.lock().unwrap().down = true;
    let said = end.await.unwrap().unwrap_err().to_string();
    assert!(said.ends_with("the API server said: no"), "{said}");
}
