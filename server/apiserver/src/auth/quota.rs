//! Quotas for machines that join and for nodes. Their objects cost memory of the server, and a machine may be in the
//! hands of an attacker.

use std::{collections::HashMap, sync::Arc};

use parking_lot::{Mutex, MutexGuard};
use serde::Deserialize;
use serde_json::Value;

use crate::{
    kinds::{BuiltIn, Resource, access::text, certificate::kubelet, identity::Identity},
    store::{Change, Key, Prefix, Store},
};

use super::restriction::{MIRROR, Write, is_mirror};

/// Kinds with a quota for each user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Sort {
    /// For the client certificate of a node, which is signed here.
    Request,
    /// For another signer. Apart, because they may wait for a day, and a node must be able to renew
    /// its own certificate meanwhile.
    OtherRequest,
    Event,
    MirrorPod,
}

/// How much there may be.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    /// Objects.
    count: usize,
    /// Bytes of all of them.
    bytes: usize,
    /// Bytes of one object.
    object: usize,
}

/// Certificate requests of one user: a machine needs one request to join, and another for each renewal of the certificate. Requests
/// are kept for an hour.
const REQUESTS: Allowance = Allowance { count: 10, bytes: 256 << 10, object: 64 << 10 };
/// Of events, of which the last writer counts: a busy node reports a thousand an hour, which is as
/// long as they are kept.
const EVENTS: Allowance = Allowance { count: 5_000, bytes: 8 << 20, object: 32 << 10 };
/// Of mirror pods: a node runs a handful of pods by itself.
const MIRROR_PODS: Allowance = Allowance { count: 64, bytes: 4 << 20, object: 256 << 10 };
/// Bytes of any other object: its own Node, its Lease, the status of its pods. A large pod of an
/// administrator may be written all the same, as long as it does not grow.
const OBJECT: usize = 256 << 10;
/// All certificate requests there may be for another to come: room for thousands of machines that
/// join within the hour that requests are kept.
const ALL_REQUESTS: Allowance = Allowance { count: 10_000, bytes: 32 << 20, object: 64 << 10 };

impl Sort {
    fn of(write: &Write<'_>) -> Option<Self> {
        let kind = write.resource.built_in()?;
        #[expect(clippy::wildcard_enum_match_arm, reason = "the others are not counted")]
        match kind {
            BuiltIn::CertificateSigningRequest => {
                Some(Self::of_signer(text(write.new, "/spec/signerName")))
            }
            BuiltIn::CoreEvent | BuiltIn::Event => Some(Self::Event),
            BuiltIn::Pod if write.old.is_none() && is_mirror(write.new) => Some(Self::MirrorPod),
            _ => None,
        }
    }

    fn of_signer(name: &str) -> Self {
        if name == kubelet::SIGNER { Self::Request } else { Self::OtherRequest }
    }

    const fn is_request(self) -> bool {
        matches!(self, Self::Request | Self::OtherRequest)
    }

    const fn allowance(self) -> Allowance {
        match self {
            Self::Request | Self::OtherRequest => REQUESTS,
            Self::Event => EVENTS,
            Self::MirrorPod => MIRROR_PODS,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Request => "certificate signing requests of nodes",
            Self::OtherRequest => "certificate signing requests for other signers",
            Self::Event => "events",
            Self::MirrorPod => "mirror pods",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Usage {
    count: usize,
    bytes: usize,
}

impl Usage {
    fn add(&mut self, bytes: usize) {
        self.count += 1;
        self.bytes += bytes;
    }

    fn remove(&mut self, bytes: usize) {
        self.count = self.count.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    fn is_nothing(self) -> bool {
        self.count == 0
    }
}

type Owner = (Arc<str>, Sort);

/// Stored objects by owner: an index over the store, which takes in the changes since its last use. Has an entry for
/// each counted object.
#[derive(Debug, Default)]
struct Ledger {
    reached: Option<u64>,
    objects: HashMap<Key, (Owner, usize)>,
    used: HashMap<Owner, Usage>,
    /// Writes under way.
    reserved: HashMap<Owner, Usage>,
    requests: Usage,
    /// The last writer of an event. Known only for events of this process: the content of an event proves no writer.
    writers: HashMap<Key, Arc<str>>,
}

/// Judges writes by the stored objects of their users. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Quota {
    store: Store,
    ledger: Arc<Mutex<Ledger>>,
}

/// Room for one write, until it is dropped: the write is in the store by then, or was refused.
#[derive(Debug)]
pub(crate) struct Reservation {
    ledger: Arc<Mutex<Ledger>>,
    owner: Owner,
    bytes: usize,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut ledger = self.ledger.lock();
        take(&mut ledger.reserved, &self.owner, self.bytes);
    }
}

fn take(usage: &mut HashMap<Owner, Usage>, owner: &Owner, bytes: usize) {
    if let Some(one) = usage.get_mut(owner) {
        one.remove(bytes);
        if one.is_nothing() {
            usage.remove(owner);
        }
    }
}

impl Quota {
    pub(crate) fn new(store: Store) -> Self {
        Self { store, ledger: Arc::default() }
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        let mut ledger = self.ledger.lock();
        ledger.catch_up(&self.store);
        ledger
    }

    /// Whether `identity` may store this much more. Administrators may.
    ///
    /// # Errors
    /// It may not: the text says why.
    pub(crate) fn admit(
        &self,
        identity: &Identity,
        write: Write<'_>,
    ) -> Result<Option<Reservation>, String> {
        if identity.is_master() {
            return Ok(None);
        }
        let sort = Sort::of(&write);
        let bytes = size(write.new);
        let most = sort.map_or(OBJECT, |sort| sort.allowance().object);
        if bytes > most && write.old.is_none_or(|old| size(old) < bytes) {
            let user = &identity.username;
            return Err(format!("the object has {bytes} bytes, and {user} may write {most}"));
        }
        let Some(sort) = sort else { return Ok(None) };
        let mut ledger = self.ledger();
        if sort.is_request() && write.old.is_none() {
            check(ledger.requests, bytes, ALL_REQUESTS, sort, "there are")?;
        }
        let owner = (Arc::from(identity.username.as_str()), sort);
        let mut used = ledger.used.get(&owner).copied().unwrap_or_default();
        if let Some(reserved) = ledger.reserved.get(&owner) {
            used.count += reserved.count;
            used.bytes += reserved.bytes;
        }
        let key = write.old.map(|old| key(write.resource, old));
        if let Some((held, before)) = key.as_ref().and_then(|key| ledger.objects.get(key))
            && *held == owner
        {
            used.remove(*before);
        }
        check(used, bytes, sort.allowance(), sort, &format!("{} has", identity.username))?;
        if let Some(key) = key.filter(|_| sort == Sort::Event) {
            ledger.claim(&self.store, &key, &owner.0);
        }
        ledger.reserved.entry(owner.clone()).or_default().add(bytes);
        Ok(Some(Reservation { ledger: Arc::clone(&self.ledger), owner, bytes }))
    }

    /// Notes whose a new object is.
    pub(crate) fn stored(&self, identity: &Identity, resource: &Resource, object: &Value) {
        let events = [BuiltIn::CoreEvent, BuiltIn::Event];
        let is_event = resource.built_in().is_some_and(|kind| events.contains(&kind));
        if is_event && !identity.is_master() {
            let writer = Arc::from(identity.username.as_str());
            self.ledger().claim(&self.store, &key(resource, object), &writer);
        }
    }
}

fn size(object: &Value) -> usize {
    serde_json::to_vec(object).map_or(usize::MAX, |text| text.len())
}

fn key(resource: &Resource, object: &Value) -> Key {
    let (storage, namespace) = (&resource.storage, text(object, "/metadata/namespace"));
    Key::new(&storage.group, &storage.plural, namespace, text(object, "/metadata/name"))
}

fn check(
    used: Usage,
    more: usize,
    allowed: Allowance,
    sort: Sort,
    who: &str,
) -> Result<(), String> {
    if used.count < allowed.count && used.bytes.saturating_add(more) <= allowed.bytes {
        return Ok(());
    }
    let (Usage { count, bytes }, name) = (used, sort.name());
    let Allowance { count: most, bytes: room, .. } = allowed;
    Err(format!(
        "exceeded quota: {who} {count} {name} of {bytes} bytes, and {most} of {room} bytes are \
         allowed; old ones go by themselves within hours, or delete some"
    ))
}

impl Ledger {
    fn catch_up(&mut self, store: &Store) {
        let recent = self.reached.and_then(|reached| store.recent(&Prefix::all(), reached));
        let Some((events, reached)) = recent else {
            let writers = std::mem::take(&mut self.writers);
            let reserved = std::mem::take(&mut self.reserved);
            let there = |key: &Key| store.get(key).is_some();
            let writers = writers.into_iter().filter(|(key, _)| there(key)).collect();
            *self = Self { reserved, writers, ..Self::default() };
            let mut least = u64::MAX;
            for (group, plural) in COUNTED {
                let page = store.list(&Prefix::resource(group, plural), None, None);
                least = least.min(page.revision);
                for record in &page.records {
                    self.put(&record.key, &record.value);
                }
            }
            // what changed while the others were listed is looked at again
            self.reached = Some(least);
            return;
        };
        for event in events.iter().filter(|event| is_counted(&event.key)) {
            match &event.change {
                Change::Put(value) => self.put(&event.key, value),
                Change::Delete(_) => {
                    self.remove(&event.key);
                    self.writers.remove(&event.key);
                }
            }
        }
        self.reached = Some(reached);
    }

    fn put(&mut self, key: &Key, value: &[u8]) {
        self.remove(key);
        if let Some(owner) = self.owner(key, value) {
            if owner.1.is_request() {
                self.requests.add(value.len());
            }
            self.used.entry(owner.clone()).or_default().add(value.len());
            self.objects.insert(key.clone(), (owner, value.len()));
        }
    }

    fn remove(&mut self, key: &Key) {
        let Some((owner, bytes)) = self.objects.remove(key) else { return };
        if owner.1.is_request() {
            self.requests.remove(bytes);
        }
        take(&mut self.used, &owner, bytes);
    }

    fn claim(&mut self, store: &Store, key: &Key, writer: &Arc<str>) {
        self.writers.insert(key.clone(), Arc::clone(writer));
        match store.get(key) {
            Some(record) => self.put(key, &record.value),
            None => drop(self.writers.remove(key)),
        }
    }

    fn owner(&self, key: &Key, value: &[u8]) -> Option<Owner> {
        match key.resource() {
            "events" => Some((Arc::clone(self.writers.get(key)?), Sort::Event)),
            "pods" => {
                let may_be = value.windows(MIRROR.len()).any(|part| part == MIRROR.as_bytes());
                let pod = may_be.then(|| serde_json::from_slice::<Value>(value).ok())??;
                let node = pod.pointer("/spec/nodeName")?.as_str()?;
                let user = format!("{}{node}", kubelet::NODE_PREFIX);
                is_mirror(&pod).then(|| (user.into(), Sort::MirrorPod))
            }
            _ => {
                let request: Request = serde_json::from_slice(value).ok()?;
                Some((request.spec.username.into(), Sort::of_signer(&request.spec.signer_name)))
            }
        }
    }
}

/// The objects that are counted, by group and plural.
const COUNTED: [(&str, &str); 3] =
    [("certificates.k8s.io", "certificatesigningrequests"), ("", "events"), ("", "pods")];

fn is_counted(key: &Key) -> bool {
    COUNTED.contains(&(key.group(), key.resource()))
}

/// Of a request only this is read.
#[derive(Deserialize)]
struct Request {
    spec: Spec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    username: String,
    #[serde(default)]
    signer_name: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::store::{Expect, StoreOptions};

    struct World {
        store: Store,
        quota: Quota,
    }

    async fn world() -> World {
        let store = Store::open(StoreOptions::memory()).await.unwrap();
        World { quota: Quota::new(store.clone()), store }
    }

    fn token(id: &str) -> Identity {
        Identity::user(&format!("system:bootstrap:{id}"), vec!["system:bootstrappers".to_owned()])
    }

    fn node(name: &str) -> Identity {
        Identity::user(&format!("system:node:{name}"), vec!["system:nodes".to_owned()])
    }

    impl World {
        fn admit(
            &self,
            who: &Identity,
            kind: BuiltIn,
            new: &Value,
        ) -> Result<Option<Reservation>, String> {
            self.quota.admit(who, Write { resource: &kind.resource(), part: None, old: None, new })
        }

        /// As a request does it: admit, write, tell.
        async fn create(&self, who: &Identity, kind: BuiltIn, new: &Value) -> Result<(), String> {
            let held = self.admit(who, kind, new)?;
            let resource = kind.resource();
            let (key, text) = (key(&resource, new), new.to_string());
            self.store.write(key, Expect::Absent, Change::Put(text.into())).await.unwrap();
            self.quota.stored(who, &resource, new);
            drop(held);
            Ok(())
        }

        async fn delete(&self, kind: BuiltIn, object: &Value) {
            let key = key(&kind.resource(), object);
            let record = self.store.get(&key).unwrap();
            let expect = Expect::Revision(record.revision);
            self.store.write(key, expect, Change::Delete(record.value)).await.unwrap();
        }
    }

    fn request(name: &str, who: &Identity) -> Value {
        json!({"metadata": {"name": name},
            "spec": {"username": who.username, "signerName": kubelet::SIGNER}})
    }

    fn event(name: &str, message: &str) -> Value {
        json!({"metadata": {"name": name, "namespace": "default"}, "message": message})
    }

    const CSR: BuiltIn = BuiltIn::CertificateSigningRequest;

    #[tokio::test]
    async fn each_token_has_a_few_requests_and_gets_room_when_they_go() {
        let world = world().await;
        let (one, two) = (token("aaaaaa"), token("bbbbbb"));
        for number in 0..10 {
            world.create(&one, CSR, &request(&format!("r{number}"), &one)).await.unwrap();
        }
        let refused = world.create(&one, CSR, &request("more", &one)).await.unwrap_err();
        assert!(refused.contains("system:bootstrap:aaaaaa has 10 certificate"), "{refused}");
        world.create(&two, CSR, &request("other", &two)).await.unwrap();
        let mut serving = request("serving", &one);
        serving["spec"]["signerName"] = json!("kubernetes.io/kubelet-serving");
        world.create(&one, CSR, &serving).await.unwrap();
        world.create(&Identity::admin(), CSR, &request("admin", &one)).await.unwrap();
        world.delete(CSR, &request("r3", &one)).await;
        world.delete(CSR, &request("admin", &one)).await;
        world.create(&one, CSR, &request("more", &one)).await.unwrap();
        // a new process counts what is stored, too
        let again = World { quota: Quota::new(world.store.clone()), store: world.store.clone() };
        assert!(again.admit(&one, CSR, &request("yet", &one)).is_err());
    }

    #[tokio::test]
    async fn requests_that_come_at_once_do_not_all_find_the_same_room() {
        let world = world().await;
        let one = token("aaaaaa");
        let held: Vec<_> =
            (0..60).map(|at| world.admit(&one, CSR, &request(&format!("r{at}"), &one))).collect();
        assert_eq!(held.iter().filter(|one| one.is_ok()).count(), 10);
        drop(held);
        assert!(world.admit(&one, CSR, &request("r", &one)).is_ok(), "what failed takes no room");
        assert!(world.quota.ledger().reserved.is_empty());
    }

    #[tokio::test]
    async fn all_tokens_together_have_a_bound() {
        let world = world().await;
        world.quota.ledger().requests = Usage { count: ALL_REQUESTS.count, bytes: 0 };
        let refused = world.admit(&token("x"), CSR, &request("r", &token("x"))).unwrap_err();
        assert!(refused.contains("there are 10000"), "{refused}");
        assert!(world.admit(&Identity::admin(), CSR, &request("r", &token("x"))).is_ok());
    }

    #[tokio::test]
    async fn events_count_for_whoever_wrote_them_last() {
        let world = world().await;
        let (one, two) = (node("n1"), node("n2"));
        let kind = BuiltIn::CoreEvent;
        let long = "x".repeat(30 << 10);
        let most = EVENTS.bytes / (30 << 10);
        for number in 0..most {
            let sent = event(&format!("e{number}"), &long);
            if world.create(&one, kind, &sent).await.is_err() {
                assert!(number > most - 3, "{number} of {most}");
                break;
            }
        }
        let refused = world.admit(&one, kind, &event("more", &long)).unwrap_err();
        assert!(refused.contains("exceeded quota: system:node:n1 has"), "{refused}");
        assert!(world.admit(&two, kind, &event("more", &long)).is_ok());
        // n2 changes an event of n1, which is n2's from now on
        let old = event("e0", &long);
        let resource = kind.resource();
        let write = Write { resource: &resource, part: None, old: Some(&old), new: &old };
        drop(world.quota.admit(&two, write).unwrap());
        assert!(world.admit(&one, kind, &event("more", &long)).is_ok());
        let owner = (Arc::from("system:node:n2"), Sort::Event);
        assert_eq!(world.quota.ledger().used[&owner].count, 1);
    }

    #[tokio::test]
    async fn one_object_is_not_large_unless_it_was_before() {
        let world = world().await;
        let one = node("n1");
        let text = |length: usize| "x".repeat(length);
        let lease = BuiltIn::Lease.resource();
        for (kind, length) in
            [(CSR, 65 << 10), (BuiltIn::CoreEvent, 33 << 10), (BuiltIn::Node, 257 << 10)]
        {
            let large = event("e", &text(length));
            let refused = world.admit(&one, kind, &large).unwrap_err();
            assert!(refused.contains("the object has"), "{refused}");
            assert!(world.admit(&Identity::admin(), kind, &large).is_ok());
        }
        let (large, larger) = (event("e", &text(300 << 10)), event("e", &text(301 << 10)));
        let write = |old, new| Write { resource: &lease, part: None, old: Some(old), new };
        assert!(world.quota.admit(&one, write(&large, &large)).is_ok());
        assert!(world.quota.admit(&one, write(&large, &larger)).is_err());
    }

    #[tokio::test]
    async fn a_node_has_a_few_mirror_pods() {
        let world = world().await;
        let pod = |number: usize, node: &str| {
            json!({"metadata": {"name": format!("{node}-{number}"), "namespace": "default",
                "annotations": {"kubernetes.io/config.mirror": "x"}}, "spec": {"nodeName": node}})
        };
        for number in 0..MIRROR_PODS.count {
            world.create(&node("n1"), BuiltIn::Pod, &pod(number, "n1")).await.unwrap();
        }
        assert!(world.admit(&node("n1"), BuiltIn::Pod, &pod(99, "n1")).is_err());
        assert!(world.admit(&node("n2"), BuiltIn::Pod, &pod(99, "n2")).is_ok());
    }
}
