//! The observed bootstrap of a Machine: the named object of a bootstrap provider, and the Secret with its user data.

use ostler_api::Revision;
use std::{borrow::Cow, collections::BTreeMap, fmt, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use ostler_api::{
    Machine,
    bootstrap::{BootstrapConfigRef, BootstrapText},
    machine::WaitReason,
    names::{self, annotation, label},
};
use serde_json::Value;

use crate::{
    class_facts::SecretView,
    operation::UserData,
    user_data::{MAX_USER_DATA, wants_token},
};

/// How the kinds of templates end. The part before is the kind of the copies.
pub(crate) const SUFFIX: &str = "Template";
/// The most characters of a word that an object of a bootstrap provider may add to our status.
const MAX_WORD: usize = 64;
/// Most characters of a text that such an object may add to our status.
const MAX_TEXT: usize = 1024;

/// The observed bootstrap of a Machine.
#[derive(Debug, Clone, Default)]
pub struct BootstrapView {
    /// The object that `spec.bootstrap.configRef` names.
    pub config: ConfigView,
    /// The Secret that [`data_secret`] names.
    pub secret: DataSecretView,
}

/// The object that `spec.bootstrap.configRef` names.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum ConfigView {
    /// Could not be looked up yet, or need not be.
    #[default]
    Unknown,
    /// The API server does not serve this kind.
    KindMissing,
    /// Objects of this kind have no namespace.
    KindWithoutNamespace,
    /// The kind is not marked as a bootstrap provider's.
    KindUnmarked,
    /// The kind cannot be watched: what the API server said.
    Unreadable(String),
    /// As many kinds as may be are watched already.
    TooManyKinds,
    /// There is no such object.
    Absent,
    /// The object.
    Known(Arc<ConfigFacts>),
}

/// The Secret with the user data of a Machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum DataSecretView {
    /// Could not be looked up yet, or need not be.
    #[default]
    Unknown,
    /// There is no such Secret.
    Missing,
    /// The Secret has no key `value`.
    WithoutValue,
    /// The user data.
    Known {
        /// Resource version of the Secret.
        revision: Revision,
        /// The value of key `value`.
        data: UserData,
    },
}

/// The facts about a bootstrap provider's object for decisions.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ConfigFacts {
    /// Its UID.
    pub uid: String,
    /// Its resource version.
    pub resource_version: String,
    /// Its generation.
    pub generation: i64,
    /// The owners.
    pub owner_references: Vec<OwnerReference>,
    /// Finalizers of the object.
    pub finalizers: Vec<String>,
    /// Whether it is being deleted.
    pub is_deleting: bool,
    /// The name of the template that it was made from.
    pub copy_of: Option<String>,
    /// `spec.template`, of a template.
    pub template: Option<TemplateBody>,
    /// Whether the data are there: `status.ready`, or `status.initialization.dataSecretCreated`.
    pub ready: bool,
    /// `status.dataSecretName`, unless it is empty.
    pub data_secret_name: Option<String>,
    /// `status.bootstrapData`. A too long value is cut after the first byte too many.
    pub data: Option<BootstrapText>,
    /// `status.phase`.
    pub phase: Option<String>,
    /// `status.failureReason`.
    pub failure_reason: Option<String>,
    /// `status.failureMessage`.
    pub failure_message: Option<String>,
}

impl ConfigFacts {
    /// Reads an object: `content` is the object without its metadata.
    pub fn of(metadata: &ObjectMeta, content: &Value) -> Self {
        let status = content.get("status").unwrap_or(&Value::Null);
        let text = |key: &str, most| {
            let text = status.get(key)?.as_str().filter(|text| !text.is_empty())?;
            Some(text.chars().take(most).collect::<String>())
        };
        let initialized = status.pointer("/initialization/dataSecretCreated");
        let says = |value: Option<&Value>| value.and_then(Value::as_bool) == Some(true);
        Self {
            uid: metadata.uid.clone().unwrap_or_default(),
            generation: metadata.generation.unwrap_or_default(),
            finalizers: metadata.finalizers.clone().unwrap_or_default(),
            is_deleting: metadata.deletion_timestamp.is_some(),
            copy_of: metadata
                .annotations
                .as_ref()
                .and_then(|all| all.get(annotation::CLONED_FROM_NAME))
                .cloned(),
            template: None,
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
            owner_references: metadata.owner_references.clone().unwrap_or_default(),
            ready: says(status.get("ready")) || says(initialized),
            data_secret_name: text("dataSecretName", 253),
            data: status.get("bootstrapData").and_then(Value::as_str).map(cut),
            phase: text("phase", MAX_WORD),
            failure_reason: text("failureReason", MAX_WORD),
            failure_message: text("failureMessage", MAX_TEXT),
        }
    }
}

/// `spec.template` of a template. The body may hold credentials and is never printed.
#[derive(Clone, PartialEq)]
pub struct TemplateBody(pub Arc<Value>);

impl fmt::Debug for TemplateBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TemplateBody")
    }
}

impl ConfigFacts {
    /// Why the user of this object waits while the object is deleted. `named`: the object.
    pub(crate) fn goes_first(&self, named: &impl fmt::Display) -> String {
        match self.finalizers.join(", ") {
            none if none.is_empty() => format!("{named} is deleted first"),
            names => format!("{named} is deleted first, and is held by its finalizers: {names}"),
        }
    }

    /// As [`Self::of`], with what copies are made from.
    pub fn of_template(metadata: &ObjectMeta, content: &Value) -> Self {
        let body = content.pointer("/spec/template").filter(|body| body.is_object());
        let template = body.map(|body| TemplateBody(Arc::new(body.clone())));
        Self { template, ..Self::of(metadata, content) }
    }
}

/// The text up to the first character that is too many.
fn cut(text: &str) -> BootstrapText {
    let end = text.char_indices().map(|(at, _)| at).find(|at| *at > MAX_USER_DATA);
    BootstrapText::new(text.get(..end.unwrap_or(text.len())).unwrap_or_default().to_owned())
}

/// A kind of bootstrap objects in one namespace: the subject of one watch.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConfigKind {
    /// Namespace.
    pub namespace: String,
    /// API group.
    pub group: String,
    /// Version.
    pub version: String,
    /// Kind.
    pub kind: String,
}

impl ConfigKind {
    /// The key for finding Machines that name an object of this kind.
    pub fn key(&self) -> String {
        format!("{}/{}/{}/{}", self.namespace, self.group, self.version, self.kind)
    }
}

impl fmt::Display for ConfigKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}, kind {}", self.group, self.version, self.kind)
    }
}

/// The group of Cluster API's bootstrap providers: its kinds need no mark.
const PROVIDERS_GROUP: &str = "bootstrap.cluster.x-k8s.io";

/// Whether other objects are made from objects of this kind. Templates hold no bootstrap data.
pub fn is_template(kind: &str) -> bool {
    kind.ends_with(SUFFIX)
}

impl ConfigKind {
    /// Whether the group alone marks the kind as a bootstrap provider's.
    pub fn is_marked_by_group(&self) -> bool {
        self.group == PROVIDERS_GROUP
    }
}

/// Whether the labels of a CustomResourceDefinition mark a kind of a bootstrap provider, by our label or by Cluster
/// API's provider label. A user who may write Machines can write neither label.
pub fn is_marked(labels: Option<&BTreeMap<String, String>>) -> bool {
    let of = |key: &str| labels.and_then(|all| all.get(key)).map(String::as_str);
    of(label::BOOTSTRAP_KIND) == Some("true")
        || of(label::CLUSTER_API_PROVIDER).is_some_and(|it| it.starts_with("bootstrap-"))
}

/// The objection to following a reference to such an object; `None`: the object is known.
pub(crate) fn lack(
    view: &ConfigView,
    kind: &ConfigKind,
    wanted: &impl fmt::Display,
) -> Option<(WaitReason, String)> {
    Some(match view {
        ConfigView::Known(_) => return None,
        ConfigView::Unknown => (WaitReason::NotObserved, format!("{wanted} has not been read yet")),
        ConfigView::KindMissing => {
            (WaitReason::BootstrapKindMissing, format!("the API server does not serve {kind}"))
        }
        ConfigView::KindWithoutNamespace => (
            WaitReason::BootstrapConfigInvalid,
            format!("{kind} has no namespace, so no machine can own {wanted}"),
        ),
        ConfigView::KindUnmarked => (
            WaitReason::BootstrapKindUnmarked,
            format!(
                "{kind} is not known to be of a bootstrap provider, so {wanted} is neither read nor made to go with this \
                 machine; if it is one, label its CustomResourceDefinition {}: \"true\"",
                label::BOOTSTRAP_KIND
            ),
        ),
        ConfigView::Unreadable(why) => {
            (WaitReason::BootstrapKindUnreadable, format!("{kind} cannot be watched: {why}"))
        }
        ConfigView::TooManyKinds => (
            WaitReason::BootstrapKindUnreadable,
            format!("{kind} is not watched: there are too many kinds of bootstrap objects"),
        ),
        ConfigView::Absent => {
            (WaitReason::BootstrapConfigMissing, format!("{wanted} does not exist"))
        }
    })
}

/// An object of a bootstrap provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigName {
    /// Kind and namespace of the object.
    pub kind: ConfigKind,
    /// Its name.
    pub name: String,
}

impl fmt::Display for ConfigName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.kind, self.name)
    }
}

impl ConfigName {
    /// The key for finding Machines that name the object.
    pub fn key(&self) -> String {
        format!("{}/{}", self.kind.key(), self.name)
    }
}

/// Why a configRef cannot be followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefFault {
    /// The wait reason of the Machine.
    pub reason: WaitReason,
    /// For people.
    pub message: String,
}

/// The bootstrap object of a Machine; `None`: the Machine names none.
///
/// # Errors
/// The reference may not be followed.
pub fn config_of(machine: &Machine) -> Result<Option<ConfigName>, RefFault> {
    let bootstrap = machine.spec.bootstrap.as_ref();
    let Some(wanted) = bootstrap.and_then(|bootstrap| bootstrap.config_ref.as_ref()) else {
        return Ok(None);
    };
    let namespace = machine.namespace();
    let found = named(wanted, namespace)?;
    // A template has no data, and would be deleted with this single Machine.
    if is_template(&wanted.kind) {
        let kind = &wanted.kind;
        return invalid(&format!("kind is {kind}: name an object that was made from it"));
    }
    Ok(Some(found))
}

fn invalid<T>(message: &str) -> Result<T, RefFault> {
    let message = format!("spec.bootstrap.configRef.{message}");
    Err(RefFault { reason: WaitReason::BootstrapConfigInvalid, message })
}

/// The referenced object, in the given namespace.
pub(crate) fn named(wanted: &BootstrapConfigRef, namespace: &str) -> Result<ConfigName, RefFault> {
    if let Some(other) = wanted.namespace.as_deref().filter(|other| *other != namespace) {
        let message = format!("spec.bootstrap.configRef.namespace is {other:?}, not {namespace:?}");
        return Err(RefFault { reason: WaitReason::BootstrapNamespaceDenied, message });
    }
    let (group, version) = group_and_version(wanted)?;
    let (namespace, kind) = (namespace.to_owned(), wanted.kind.clone());
    let kind = ConfigKind { namespace, group, version, kind };
    Ok(ConfigName { kind, name: wanted.name.clone() })
}

/// Only kinds of others' CustomResourceDefinitions: the core makes the Machine their owner, so they are deleted with
/// it. The core must not be led to own an object of Kubernetes, or a class or a deployment.
fn group_and_version(wanted: &BootstrapConfigRef) -> Result<(String, String), RefFault> {
    if wanted.kind.is_empty() || wanted.name.is_empty() {
        return invalid("kind and .name must not be empty");
    }
    let Some((group, version)) = wanted.api_version.split_once('/') else {
        return invalid(&format!("apiVersion is {:?}, not group/version", wanted.api_version));
    };
    if !group.contains('.') || group.ends_with(".k8s.io") || version.is_empty() {
        return invalid(&format!("apiVersion {:?} is of no custom resource", wanted.api_version));
    }
    if [names::GROUP, names::OWN_GROUP].contains(&group) {
        return invalid(&format!(
            "apiVersion {:?} is of no bootstrap provider",
            wanted.api_version
        ));
    }
    Ok((group.to_owned(), version.to_owned()))
}

/// The Secret that the user data of a Machine are to be read from; `None`: from none.
pub fn data_secret(machine: &Machine) -> Option<&str> {
    let bootstrap = machine.spec.bootstrap.as_ref()?;
    let name = bootstrap.data_secret_name.as_deref().filter(|name| !name.is_empty())?;
    bootstrap.data.is_none().then_some(name)
}

/// The user data of a Machine, its placeholders not replaced; `None`: there are none yet or at all.
pub fn template<'a>(
    machine: &Machine,
    of_class: &'a SecretView,
    view: &'a BootstrapView,
) -> Option<Cow<'a, UserData>> {
    let Some(bootstrap) = &machine.spec.bootstrap else {
        let SecretView::Known(secret) = of_class else { return None };
        return secret.user_data.as_ref().map(Cow::Borrowed);
    };
    if let Some(text) = &bootstrap.data {
        let data = UserData::new(text.expose().as_bytes().to_vec());
        return (!data.is_empty()).then_some(Cow::Owned(data));
    }
    let DataSecretView::Known { data, .. } = &view.secret else { return None };
    data_secret(machine).map(|_| Cow::Borrowed(data))
}

/// Whether the user data of a Machine may ask for a bootstrap token. Not knowing them is a reason
/// to look.
pub fn may_want_token(machine: &Machine, of_class: &SecretView, view: &BootstrapView) -> bool {
    if let Some(template) = template(machine, of_class, view) {
        return wants_token(&template);
    }
    if machine.spec.bootstrap.is_some() {
        return data_secret(machine).is_some();
    }
    match of_class {
        SecretView::Known(_) | SecretView::NotReferenced => false,
        SecretView::Unknown
        | SecretView::Missing(_)
        | SecretView::NamespaceDenied(_)
        | SecretView::LastKnown(..) => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn machine(bootstrap: &Value) -> Machine {
        serde_json::from_value(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": { "name": "m", "namespace": "default", "uid": "u" },
            "spec": { "class": { "kind": "MachineClass", "name": "c" }, "bootstrap": bootstrap }
        }))
        .unwrap()
    }

    fn config(api_version: &str, namespace: Value) -> Result<Option<ConfigName>, WaitReason> {
        let mut config = json!({ "apiVersion": api_version, "kind": "Config", "name": "c" });
        if !namespace.is_null() {
            config["namespace"] = namespace;
        }
        config_of(&machine(&json!({ "configRef": config }))).map_err(|fault| fault.reason)
    }

    #[test]
    fn a_config_is_a_custom_resource_in_the_namespace_of_its_machine() {
        let found = config("bootstrap.cluster.x-k8s.io/v1beta1", Value::Null).unwrap().unwrap();
        assert_eq!(found.kind.namespace, "default");
        assert_eq!(found.kind.group, "bootstrap.cluster.x-k8s.io");
        assert_eq!(found.kind.version, "v1beta1");
        assert_eq!(config("a.example/v1", json!("default")).unwrap().unwrap().name, "c");
        let denied = Err(WaitReason::BootstrapNamespaceDenied);
        assert_eq!(config("a.example/v1", json!("other")), denied);
        for built_in in
            ["v1", "apps/v1", "batch/v1", "rbac.authorization.k8s.io/v1", "a.example/", ""]
        {
            let refused = Err(WaitReason::BootstrapConfigInvalid);
            assert_eq!(config(built_in, Value::Null), refused, "{built_in:?}");
        }
        let nameless = machine(&json!({ "configRef": { "apiVersion": "a.b/v1", "kind": "K" } }));
        assert!(config_of(&nameless).is_err());
        assert_eq!(config_of(&machine(&json!({}))), Ok(None));
    }

    #[test]
    fn a_kind_is_of_a_bootstrap_provider_only_if_its_definition_or_its_group_says_so() {
        for (key, value, marked) in [
            ("ostler.dev/bootstrap-kind", "true", true),
            ("ostler.dev/bootstrap-kind", "false", false),
            ("cluster.x-k8s.io/provider", "bootstrap-kubeadm", true),
            ("cluster.x-k8s.io/provider", "infrastructure-aws", false),
            ("cluster.x-k8s.io/v1beta1", "v1beta1", false),
        ] {
            let labels = [(key.to_owned(), value.to_owned())].into();
            assert_eq!(is_marked(Some(&labels)), marked, "{key}={value}");
        }
        assert!(!is_marked(None));
        for (group, marked) in
            [("bootstrap.cluster.x-k8s.io", true), ("cluster.x-k8s.io", false), ("a.b", false)]
        {
            let found = config(&format!("{group}/v1"), Value::Null).unwrap().unwrap();
            assert_eq!(found.kind.is_marked_by_group(), marked, "{group}");
        }
    }

    #[test]
    fn both_forms_of_the_contract_are_read() {
        let read = |status: Value| {
            ConfigFacts::of(&ObjectMeta::default(), &json!({ "spec": {}, "status": status }))
        };
        assert!(!read(Value::Null).ready);
        assert!(!read(json!({ "ready": "true" })).ready);
        assert!(!read(json!({ "dataSecretName": "s" })).ready);
        let old = read(json!({ "ready": true, "bootstrapData": "" }));
        assert!(old.ready && old.data == Some(BootstrapText::default()));
        let new = read(json!({
            "initialization": { "dataSecretCreated": true }, "dataSecretName": "s"
        }));
        assert!(new.ready && new.data_secret_name.as_deref() == Some("s"));
        assert_eq!(read(json!({ "ready": true, "dataSecretName": "" })).data_secret_name, None);
        let failed = read(json!({ "failureReason": "Bad", "failureMessage": "x".repeat(5000) }));
        assert_eq!(failed.failure_reason.as_deref(), Some("Bad"));
        assert_eq!(failed.failure_message.map(|text| text.len()), Some(MAX_TEXT));
    }

    #[test]
    fn bootstrap_data_are_kept_only_up_to_the_first_byte_too_many() {
        let long = "ä".repeat(MAX_USER_DATA);
        let status = json!({ "status": { "bootstrapData": long } });
        let facts = ConfigFacts::of(&ObjectMeta::default(), &status);
        let kept = facts.data.unwrap().expose().len();
        assert!(kept > MAX_USER_DATA && kept <= MAX_USER_DATA + 4, "{kept}");
    }

    #[test]
    fn inline_data_win_and_only_known_data_are_no_reason_to_look_for_a_token() {
        let both = machine(&json!({ "data": "<<MACHINE_NAME>>", "dataSecretName": "s" }));
        assert_eq!(data_secret(&both), None);
        let nothing = BootstrapView::default();
        let of_class = SecretView::Unknown;
        assert!(!may_want_token(&both, &of_class, &nothing));
        let token = machine(&json!({ "data": "<<BOOTSTRAP_TOKEN>>" }));
        assert!(may_want_token(&token, &of_class, &nothing));
        let secret = machine(&json!({ "dataSecretName": "s" }));
        assert_eq!(data_secret(&secret), Some("s"));
        assert!(may_want_token(&secret, &of_class, &nothing));
        let none = machine(&json!({ "data": "" }));
        assert!(!may_want_token(&none, &of_class, &nothing));
        assert!(template(&none, &of_class, &nothing).is_none());
    }
}
