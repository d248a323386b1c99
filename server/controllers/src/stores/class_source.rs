//! Serves classes, secrets and recorded operations to drivers, from the caches.

use std::collections::BTreeSet;

use ostler_api::names::MACHINE_POOL;
use ostler_api::{MachineClass, ProviderName, Revision};
use ostler_lifecycle::class::uses_class;
use ostler_lifecycle::operation::{ClassReference, Target};
use ostler_lifecycle::owner::controller;
use ostler_lifecycle::pool::target_of;
use ostler_lifecycle::snapshot::ClassFacts;
use ostler_sessions::{
    ClassContent, ClassError, ClassSource, KnownTarget, MachineShape, RecordedOperation,
    SecretContent, Targets, Term, async_trait,
};
use serde_json::Value;

use super::{MergedSecret, Stores};
use crate::namespaces::Namespaces;
use crate::watch::ObjectName;

/// Serves the classes of the namespaces that the core serves.
#[derive(Debug, Clone)]
pub struct StoreClassSource {
    stores: Stores,
    namespaces: Namespaces,
    home: String,
}

impl StoreClassSource {
    /// Serves the classes of the namespaces, and each class's secrets in its own namespace. A driver that gives no
    /// namespace gets `home`.
    pub fn new(stores: Stores, namespaces: Namespaces, home: impl Into<String>) -> Self {
        Self { stores, namespaces, home: home.into() }
    }

    fn find(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<std::sync::Arc<MachineClass>, ClassError> {
        if !self.namespaces.contains(namespace) {
            return Err(ClassError::NamespaceDenied);
        }
        if !self.stores.classes.is_synced() || !self.stores.secrets.is_synced() {
            return Err(ClassError::Unavailable("the core is still starting".to_owned()));
        }
        let name = ObjectName::new(namespace, name);
        self.stores.class_or_last_known(&name).ok_or(ClassError::NotFound)
    }

    /// The former version of a class, if the current one differs.
    fn before(&self, class: &ClassReference) -> Option<MachineClass> {
        self.find(&class.namespace, &class.name).ok()?;
        self.stores.class_before(&ObjectName::new(&class.namespace, &class.name), &class.revision)
    }

    fn content(&self, class: &MachineClass) -> ClassContent {
        let facts = ClassFacts::of(class);
        let secret_revision = match self.stores.secret_or_last_known(class) {
            MergedSecret::Merged { revision, .. } => Some(revision),
            MergedSecret::NotReferenced => None,
            MergedSecret::NamespaceDenied(_) | MergedSecret::Missing(_) => {
                Some(Revision::default())
            }
        };
        ClassContent {
            uid: class.metadata.uid.clone().unwrap_or_default().into(),
            revision: facts.revision,
            provider: facts.provider,
            format: String::new(),
            provider_spec_json: facts.provider_spec,
            secret_revision,
            labels: class.metadata.labels.clone().unwrap_or_default(),
            shape: class.spec.node_template.as_ref().map(shape),
        }
    }

    fn recorded_of_pool(&self, uid: &str) -> Option<RecordedOperation> {
        let pool = self.stores.pool_with_intent(uid)?;
        let intent = pool.status.as_ref()?.operation.as_ref()?.intent.clone();
        let namespace = pool.metadata.namespace.clone().unwrap_or_default();
        let name = pool.spec.template.spec.class.name.as_str();
        let class = self.find(&namespace, name).ok()?;
        Some(RecordedOperation {
            kind: intent.operation_kind()?,
            operation_id: intent.id,
            idempotency_key: intent.idempotency_key,
            term: Term(u32::try_from(intent.term).ok()?),
            target: target_of(&pool),
            class: ClassReference {
                namespace,
                name: name.to_owned(),
                revision: intent.class_revision.unwrap_or_default(),
            },
            provider: class.provider().into(),
        })
    }
}

#[async_trait]
impl ClassSource for StoreClassSource {
    fn class(&self, namespace: &str, name: &str) -> Result<ClassContent, ClassError> {
        Ok(self.content(&*self.find(namespace, name)?))
    }

    fn earlier(&self, class: &ClassReference) -> Option<ClassContent> {
        self.before(class).map(|class| self.content(&class))
    }

    async fn secret(&self, class: &ClassReference) -> Result<SecretContent, ClassError> {
        let now = self.find(&class.namespace, &class.name)?;
        match self.stores.secret_or_last_known(self.before(class).as_ref().unwrap_or(&now)) {
            MergedSecret::Merged { revision, data, .. } => Ok(SecretContent { revision, data }),
            MergedSecret::NamespaceDenied(_) => Err(ClassError::NamespaceDenied),
            MergedSecret::NotReferenced | MergedSecret::Missing(_) => Err(ClassError::NotFound),
        }
    }

    fn confidential(&self, namespace: &str, name: &str) -> Vec<Vec<u8>> {
        let Ok(class) = self.find(namespace, name) else { return Vec::new() };
        let earlier = self.stores.earlier(&ObjectName::new(namespace, name)).into_values();
        let other = earlier.filter(|it| it.secret_refs() != class.secret_refs());
        let values = |class: &MachineClass| match self.stores.secret_or_last_known(class) {
            MergedSecret::Merged { data, user_data, .. } => {
                data.into_values().chain(user_data).collect()
            }
            MergedSecret::NamespaceDenied(_)
            | MergedSecret::NotReferenced
            | MergedSecret::Missing(_) => Vec::new(),
        };
        let now: Vec<_> = values(&class);
        now.into_iter().chain(other.flat_map(|class| values(&class))).collect()
    }

    fn providers(&self) -> BTreeSet<ProviderName> {
        let classes = self.stores.classes.all();
        let named = classes.iter().map(|class| class.provider()).filter(|it| !it.is_empty());
        named.map(Into::into).collect()
    }

    fn recorded(&self, target_uid: &str) -> Option<RecordedOperation> {
        let Some(machine) = self.stores.machine_with_intent(target_uid) else {
            return self.recorded_of_pool(target_uid);
        };
        let intent = machine.intent()?;
        let namespace = machine.metadata.namespace.clone().unwrap_or_default();
        let name = machine.spec.class.name.as_str();
        let class =
            self.find(&namespace, name).ok().filter(|_| uses_class(&machine, &namespace, name))?;
        Some(RecordedOperation {
            kind: intent.operation_kind()?,
            operation_id: intent.id,
            idempotency_key: intent.idempotency_key,
            term: Term(u32::try_from(intent.term).ok()?),
            target: Target::of_machine(&machine),
            class: ClassReference {
                namespace,
                name: name.to_owned(),
                revision: intent.class_revision.unwrap_or_default(),
            },
            provider: class.provider().into(),
        })
    }
}

impl Targets for StoreClassSource {
    fn namespace(&self) -> &str {
        &self.home
    }

    fn find(&self, kind: &str, namespace: &str, name: &str) -> Option<KnownTarget> {
        let key = ObjectName::new(namespace, name);
        let mut pool = String::new();
        let (uid, id, class) = match kind {
            "Machine" => {
                let machine = self.stores.machines.get(&key)?;
                let id = machine.provider_id().cloned();
                let owner = controller(&machine.metadata).filter(|it| it.kind == MACHINE_POOL);
                pool = owner.map(|it| it.name.clone()).unwrap_or_default();
                (machine.uid().to_owned(), id, machine.spec.class.name.clone())
            }
            "MachinePool" => {
                let pool = self.stores.pools.get(&key)?;
                let id = pool.status.as_ref().and_then(|status| status.provider_id.clone());
                (pool.uid().to_owned(), id, pool.spec.template.spec.class.name.clone())
            }
            _ => return None,
        };
        let namespace = namespace.to_owned();
        let class = ClassReference { namespace, name: class, revision: Revision::default() };
        Some(KnownTarget { uid, provider_id: id.unwrap_or_default().into(), pool, class })
    }
}

fn shape(template: &Value) -> MachineShape {
    let text = |key: &str| template.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let quantity = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let capacity = template.get("capacity").and_then(Value::as_object);
    MachineShape {
        capacity: capacity
            .into_iter()
            .flatten()
            .map(|(key, value)| (key.clone(), quantity(value)))
            .collect(),
        instance_type: text("instanceType"),
        region: text("region"),
        zone: text("zone"),
        architecture: text("architecture"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::ByteString;
    use k8s_openapi::api::core::v1::Secret;
    use kube::runtime::watcher::Event;
    use ostler_api::OperationId;
    use ostler_lifecycle::last_known::LastKnown;
    use serde_json::json;

    use super::*;

    fn named(class: &str) -> ClassReference {
        let (namespace, name) = ("default".to_owned(), class.to_owned());
        ClassReference { namespace, name, revision: Revision::default() }
    }

    fn secret(name: &str, version: &str, data: &Value) -> Secret {
        serde_json::from_value(json!({
            "metadata": { "name": name, "namespace": "default", "resourceVersion": version },
            "data": data
        }))
        .unwrap()
    }

    fn class(refs: &Value) -> MachineClass {
        let mut class = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass",
            "metadata": { "name": "c", "namespace": "default", "resourceVersion": "1" },
            "provider": "fake.ostler.dev", "providerSpec": { "b": 1, "a": [true] }
        });
        class.as_object_mut().unwrap().extend(refs.as_object().unwrap().clone());
        serde_json::from_value(class).unwrap()
    }

    fn source(refs: &Value) -> StoreClassSource {
        let stores = Stores::default();
        stores.classes.apply(Event::Init);
        stores.classes.apply(Event::InitApply(class(refs)));
        stores.classes.apply(Event::InitDone);
        stores.secrets.apply(Event::Init);
        // "one" = b25l, "two" = dHdv
        let first = secret("s", "3", &json!({ "userData": "b25l", "key": "b25l", "both": "b25l" }));
        stores.secrets.apply(Event::InitApply(first));
        stores.secrets.apply(Event::InitApply(secret("t", "5", &json!({ "both": "dHdv" }))));
        stores.secrets.apply(Event::InitDone);
        StoreClassSource::new(stores, Namespaces::one("default"), "default")
    }

    #[tokio::test]
    async fn the_secret_of_a_class_is_merged_and_has_no_user_data() {
        let refs = json!({ "secretRef": { "name": "s" }, "credentialsSecretRef": { "name": "t" } });
        let source = source(&refs);
        let secret = source.secret(&named("c")).await.unwrap();
        assert_eq!(secret.revision, "3.5");
        assert_eq!(
            source.class("default", "c").unwrap().secret_revision.as_ref().map(Revision::as_str),
            Some("3.5")
        );
        let expected = [("both", "two"), ("key", "one")];
        let expected = expected.map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec()));
        assert_eq!(secret.data, expected.into());
        let confidential = source.confidential("default", "c");
        assert_eq!(confidential, [&b"two"[..], b"one", b"one"], "with the user data");
    }

    #[tokio::test]
    async fn a_secret_or_class_of_another_namespace_is_refused() {
        let refs = json!({ "secretRef": { "name": "s", "namespace": "kube-system" } });
        let source = source(&refs);
        assert_eq!(source.secret(&named("c")).await, Err(ClassError::NamespaceDenied));
        assert_eq!(source.class("other", "c"), Err(ClassError::NamespaceDenied));
    }

    #[tokio::test]
    async fn a_missing_class_or_secret_is_not_found() {
        let source = source(&json!({ "secretRef": { "name": "nowhere" } }));
        assert_eq!(source.secret(&named("c")).await, Err(ClassError::NotFound));
        assert_eq!(source.class("default", "d"), Err(ClassError::NotFound));
    }

    #[test]
    fn every_provider_that_a_class_names_is_told_once() {
        let source = source(&json!({}));
        for (name, provider) in [("d", json!("fake.ostler.dev")), ("e", json!(null))] {
            let mut class = json!(class(&json!({ "provider": provider })));
            class["metadata"]["name"] = json!(name);
            source.stores.classes.apply(Event::Apply(serde_json::from_value(class).unwrap()));
        }
        assert_eq!(source.providers(), ["fake.ostler.dev".into()].into(), "none of one without");
    }

    #[test]
    fn the_shape_of_a_class_is_served_as_text() {
        let template = json!({
            "capacity": { "cpu": 4, "memory": "8Gi" }, "instanceType": "large", "region": "r",
            "zone": "z"
        });
        let shape = source(&json!({ "nodeTemplate": template })).class("default", "c").unwrap();
        let shape = shape.shape.unwrap();
        assert_eq!(shape.capacity["cpu"], "4");
        assert_eq!(shape.capacity["memory"], "8Gi");
        assert_eq!((shape.instance_type.as_str(), shape.architecture.as_str()), ("large", ""));
    }

    #[test]
    fn the_provider_spec_is_served_in_its_canonical_form() {
        let class = source(&json!({})).class("default", "c").unwrap();
        assert_eq!(class.provider_spec_json, r#"{"a":[true],"b":1}"#);
        assert_eq!(class.secret_revision, None);
    }

    #[tokio::test]
    async fn an_earlier_class_is_served_with_its_secret_unless_another_provider_has_the_class_now()
    {
        let old = class(&json!({ "secretRef": { "name": "t" }, "providerSpec": { "zone": "a" } }));
        let revision = ClassFacts::of(&old).revision;
        let source = source(&json!({ "secretRef": { "name": "s" } }));
        let kept = LastKnown {
            class: class(&json!({ "secretRef": { "name": "s" } })),
            secret_revision: None,
            secret: BTreeMap::new(),
            earlier: [(revision.clone(), old)].into(),
        };
        let name = ostler_lifecycle::last_known::secret_name("c");
        let mut copy = secret(&name, "9", &json!({}));
        let data = kept.encode().unwrap().into_iter();
        copy.data = Some(data.map(|(key, value)| (key, ByteString(value))).collect());
        copy.type_ = Some(ostler_lifecycle::last_known::TYPE.to_owned());
        source.stores.secrets.apply(Event::Apply(copy));

        let then = ClassReference { revision, ..named("c") };
        let content = source.earlier(&then).unwrap();
        assert_eq!(
            (content.revision, &*content.provider_spec_json),
            (then.revision.clone(), r#"{"zone":"a"}"#)
        );
        assert_eq!(source.secret(&then).await.unwrap().revision, "5");
        assert_eq!(source.secret(&named("c")).await.unwrap().revision, "3");

        let moved = json!({ "secretRef": { "name": "s" }, "provider": "another.example.com" });
        let mut moved = class(&moved);
        moved.metadata.resource_version = Some("2".to_owned());
        source.stores.classes.apply(Event::Apply(moved));
        assert_eq!(source.earlier(&then), None);
        assert_eq!(source.secret(&then).await.unwrap().revision, "3", "of the class of now");
    }

    fn intending(version: &str, operation: &str, class: &str) -> ostler_api::Machine {
        serde_json::from_value(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": {
                "name": "m", "namespace": "default", "uid": "u", "resourceVersion": version
            },
            "spec": { "class": { "kind": "MachineClass", "name": class } },
            "status": { "operation": {
                "id": operation, "kind": "CreateMachine", "idempotencyKey": "u:c", "term": 4,
                "classRevision": "r1", "attempt": 1
            } }
        }))
        .unwrap()
    }

    #[test]
    fn the_record_of_a_machine_is_its_intent_its_class_and_its_provider() {
        let source = source(&json!({}));
        assert_eq!(source.recorded("u"), None);
        source.stores.machines.apply(Event::Apply(intending("7", "op-1", "c")));
        let recorded = source.recorded("u").unwrap();
        assert_eq!(
            (recorded.operation_id.as_str(), recorded.idempotency_key.as_str()),
            ("op-1", "u:c")
        );
        assert_eq!(recorded.kind, ostler_api::driver::OperationKind::CreateMachine);
        assert_eq!(recorded.term, Term(4));
        assert_eq!(recorded.provider, "fake.ostler.dev");
        assert_eq!((recorded.class.name.as_str(), recorded.class.revision.as_str()), ("c", "r1"));
        assert_eq!((recorded.target.name.as_str(), recorded.target.uid.as_str()), ("m", "u"));
        assert_eq!(source.recorded("another"), None);
    }

    #[test]
    fn nothing_is_known_of_a_machine_without_a_class_or_an_intent() {
        let source = source(&json!({}));
        source.stores.machines.apply(Event::Apply(intending("7", "op-1", "gone")));
        assert_eq!(source.recorded("u"), None);
        let mut idle = intending("8", "op-1", "c");
        idle.status = None;
        source.stores.machines.apply(Event::Apply(idle));
        assert_eq!(source.recorded("u"), None);
    }

    #[test]
    fn the_last_record_of_the_previous_core_counts_while_the_cache_lags() {
        let source = source(&json!({}));
        let operation = || source.recorded("u").map(|recorded| recorded.operation_id);
        source.stores.inherited.keep([intending("9", "op-2", "c")]);
        assert_eq!(
            operation().as_ref().map(OperationId::as_str),
            Some("op-2"),
            "the cache does not know it yet"
        );
        source.stores.machines.apply(Event::Apply(intending("7", "op-1", "c")));
        assert_eq!(
            operation().as_ref().map(OperationId::as_str),
            Some("op-2"),
            "the cache is older"
        );
        source.stores.machines.apply(Event::Apply(intending("11", "op-3", "c")));
        assert_eq!(
            operation().as_ref().map(OperationId::as_str),
            Some("op-3"),
            "the cache is newer"
        );
    }

    #[test]
    fn the_last_record_of_a_pool_counts_too() {
        let source = source(&json!({}));
        let pool = |revision: &str, operation: &str| -> ostler_api::MachinePool {
            serde_json::from_value(json!({
                "metadata": {
                    "name": "p", "namespace": "default", "uid": "p", "resourceVersion": revision
                },
                "spec": { "template": { "spec": { "class": { "kind": "MachineClass", "name": "c" } } } },
                "status": { "operation": {
                    "id": operation, "kind": "UpdatePool", "idempotencyKey": "p:pu", "term": 4
                } }
            }))
            .unwrap()
        };
        let operation = || source.recorded("p").map(|recorded| recorded.operation_id.to_string());
        source.stores.inherited.keep_pools([pool("9", "op-2")]);
        assert_eq!(operation().as_deref(), Some("op-2"), "the cache does not know it yet");
        source.stores.pools.apply(Event::Apply(pool("7", "op-1")));
        assert_eq!(operation().as_deref(), Some("op-2"), "the cache is older");
        source.stores.pools.apply(Event::Apply(pool("11", "op-3")));
        assert_eq!(operation().as_deref(), Some("op-3"), "the cache is newer");
    }

    #[tokio::test]
    async fn nothing_is_served_before_the_caches_are_complete() {
        let source =
            StoreClassSource::new(Stores::default(), Namespaces::one("default"), "default");
        assert!(matches!(source.class("default", "c"), Err(ClassError::Unavailable(_))));
    }
}
