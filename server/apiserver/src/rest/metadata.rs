//! The rules of `metadata`, which are the same for all kinds.

use rand::Rng;
use serde_json::{Map, Value};

use super::{
    is,
    stored::{meta_text, meta_texts, metadata, metadata_mut, set_meta},
};
use crate::kinds::{
    BuiltIn, Resource, Rule,
    field::{self, FieldError, FieldErrorKind, child},
    names,
};

/// The limit for all annotations of an object together, in bytes.
const ANNOTATIONS_LIMIT: usize = 256 * 1024;
/// The longest generated name, including its random part.
const GENERATED_LENGTH: usize = 63;
const RANDOM_LENGTH: usize = 5;
/// No vowels and no look-alikes, so that no words come out.
const RANDOM_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Items that a list may have of which each is compared with each, and which Kubernetes shows whole in errors
/// about one: a node could else keep a worker busy for minutes with its own Node. No object has more than a few.
const MOST_LISTED: usize = 1000;

/// The lists of all kinds that are compared so, and those of built-in kinds.
const COMPARED: [&str; 3] =
    ["/metadata/ownerReferences", "/metadata/finalizers", "/metadata/managedFields"];
const COMPARED_BUILT_IN: [&str; 8] = [
    "/spec/taints",
    "/spec/tolerations",
    "/spec/containers",
    "/spec/initContainers",
    "/spec/volumes",
    "/spec/usages",
    "/status/addresses",
    "/status/conditions",
];

/// Refuses an object that has more of something than is compared, before anything compares it.
///
/// # Errors
/// The object has more: the text names the field.
pub(crate) fn check_counts(resource: &Resource, object: &Value) -> Result<(), String> {
    let built_in: &[&str] = if resource.is_custom() { &[] } else { &COMPARED_BUILT_IN };
    for pointer in COMPARED.iter().chain(built_in) {
        let count = object.pointer(pointer).and_then(Value::as_array).map_or(0, Vec::len);
        if count > MOST_LISTED {
            let path = pointer.trim_start_matches('/').replace('/', ".");
            return Err(FieldError::too_many(path, count, MOST_LISTED).to_string());
        }
    }
    Ok(())
}

/// A time as the API shows it: whole seconds.
pub(crate) fn time(at: jiff::Timestamp) -> Value {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into()
}

/// A name made of a prefix and five random characters.
pub(crate) fn generate_name(prefix: &str) -> String {
    let mut kept = prefix.len().min(GENERATED_LENGTH - RANDOM_LENGTH);
    while !prefix.is_char_boundary(kept) {
        kept -= 1;
    }
    let mut name = prefix.get(..kept).unwrap_or_default().to_owned();
    let mut random = rand::rng();
    for _ in 0..RANDOM_LENGTH {
        let at = random.next_u32() as usize % RANDOM_LETTERS.len();
        name.extend(RANDOM_LETTERS.get(at).map(|byte| char::from(*byte)));
    }
    name
}

/// The server's part of a new object's metadata.
pub(crate) struct Birth<'a> {
    /// The namespace of the address.
    pub(crate) namespace: &'a str,
    /// The new uid.
    pub(crate) uid: String,
    /// The time of creation.
    pub(crate) now: jiff::Timestamp,
}

/// Drops what no new object has, before anyone counts as its owner.
pub(crate) fn wipe(object: &mut Value) {
    let Some(metadata) = metadata_mut(object) else { return };
    for name in ["selfLink", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        metadata.remove(name);
    }
}

/// Fills in what the server owns in a new object's metadata.
pub(crate) fn fill_new(resource: &Resource, object: &mut Value, birth: Birth<'_>) {
    let Some(metadata) = metadata_mut(object) else { return };
    metadata.remove("resourceVersion");
    tidy(metadata);
    let text = |metadata: &Map<String, Value>, name: &str| {
        metadata.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let prefix = text(metadata, "generateName");
    if text(metadata, "name").is_empty() && !prefix.is_empty() {
        metadata.insert("name".to_owned(), generate_name(&prefix).into());
    }
    if resource.namespaced {
        metadata.insert("namespace".to_owned(), birth.namespace.into());
    } else {
        metadata.remove("namespace");
    }
    metadata.insert("uid".to_owned(), birth.uid.into());
    metadata.insert("creationTimestamp".to_owned(), time(birth.now));
    if resource.has(Rule::Generation) {
        metadata.insert("generation".to_owned(), 1.into());
    }
}

/// Drops fields that say nothing, as they are never shown, and repeated owners.
fn tidy(metadata: &mut Map<String, Value>) {
    metadata.retain(|_, value| match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => true,
    });
    let Some(owners) = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut) else {
        return;
    };
    let mut seen: Vec<Value> = Vec::with_capacity(owners.len());
    owners.retain(|owner| {
        let new = !seen.contains(owner);
        if new {
            seen.push(owner.clone());
        }
        new
    });
}

/// The warning about an owner that is named twice.
pub(crate) fn owner_warning(object: &Value) -> Option<String> {
    let owners = metadata(object)?.get("ownerReferences")?.as_array()?;
    let mut seen: Vec<&str> = Vec::new();
    let mut repeated: Vec<&str> = Vec::new();
    for uid in owners.iter().filter_map(|owner| owner.get("uid")?.as_str()) {
        if !seen.contains(&uid) {
            seen.push(uid);
        } else if !repeated.contains(&uid) {
            repeated.push(uid);
        }
    }
    (!repeated.is_empty()).then(|| {
        let repeated = repeated.join(", ");
        format!(
            ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {repeated}"
        )
    })
}

/// Carries over from the stored object what a client cannot change, before the kind's own rules.
/// Returns nothing: [`validate_update`] finds what a client tried to change nevertheless.
pub(crate) fn carry_over(new: &mut Value, old: &Value) {
    let Some(old_metadata) = metadata(old) else { return };
    let Some(metadata) = metadata_mut(new) else { return };
    metadata.remove("selfLink");
    tidy(metadata);
    let keep = |metadata: &mut Map<String, Value>, name: &str| match old_metadata.get(name) {
        Some(value) => metadata.insert(name.to_owned(), value.clone()),
        None => metadata.remove(name),
    };
    keep(metadata, "generation");
    keep(metadata, "creationTimestamp");
    for name in ["uid", "name", "namespace"] {
        if !metadata.contains_key(name) {
            keep(metadata, name);
        }
    }
    if !metadata.contains_key("deletionGracePeriodSeconds") {
        keep(metadata, "deletionGracePeriodSeconds");
    }
}

/// Nobody takes back or changes a deletion. A manager that tries owns the time of deletion, as in kube-apiserver.
pub(crate) fn keep_deletion(new: &mut Value, old: &Value) {
    if let Some(at) = metadata(old).and_then(|metadata| metadata.get("deletionTimestamp")) {
        set_meta(new, "deletionTimestamp", at.clone());
    }
}

/// Raises the generation if the change is one that the kind counts.
pub(crate) fn raise_generation(resource: &Resource, new: &mut Value, old: &Value) {
    if resource.raises_generation(new, old) {
        let generation = super::stored::meta_number(old, "generation").unwrap_or(0);
        set_meta(new, "generation", generation.saturating_add(1).into());
    }
}

/// The errors of a new object's metadata.
pub(crate) fn validate_new(resource: &Resource, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let rule = resource.names;
    let prefix = meta_text(object, "generateName");
    if !prefix.is_empty() {
        errors.extend(FieldError::invalid_for(
            "metadata.generateName",
            prefix,
            rule.problems(prefix, true),
        ));
    }
    let name = meta_text(object, "name");
    if name.is_empty() {
        let detail = "name or generateName is required";
        errors.push(FieldError::required("metadata.name", detail));
    } else {
        errors.extend(FieldError::invalid_for("metadata.name", name, rule.problems(name, false)));
    }
    errors.extend(validate_maps(object));
    errors
}

/// The errors of labels, annotations, finalizers and owners.
pub(crate) fn validate_maps(object: &Value) -> Vec<FieldError> {
    let Some(metadata) = metadata(object) else { return Vec::new() };
    let empty = Map::new();
    let map = |name: &str| metadata.get(name).and_then(Value::as_object).unwrap_or(&empty);
    let mut errors = Vec::new();
    for (key, value) in map("labels") {
        let path = "metadata.labels";
        let wrong = |value: &str, text: &String| FieldError::invalid_text(path, value, text);
        errors.extend(names::qualified(key).iter().map(|text| wrong(key, text)));
        let value = value.as_str().unwrap_or_default();
        errors.extend(names::label_value(value).iter().map(|text| wrong(value, text)));
    }
    let mut size = 0;
    for (key, value) in map("annotations") {
        size += key.len() + value.as_str().map_or(0, str::len);
        // The prefix of an annotation may be written in capitals.
        errors.extend(FieldError::invalid_for(
            "metadata.annotations",
            key,
            names::qualified(&key.to_lowercase()),
        ));
    }
    if size > ANNOTATIONS_LIMIT {
        errors.push(FieldError::too_long("metadata.annotations", ANNOTATIONS_LIMIT));
    }
    for finalizer in meta_texts(object, "finalizers") {
        errors.extend(FieldError::invalid_for(
            "metadata.finalizers",
            finalizer,
            names::qualified(finalizer),
        ));
    }
    errors.extend(validate_finalizers(object));
    errors.extend(validate_owners(metadata.get("ownerReferences")));
    errors
}

/// Foreground deletion and orphaning exclude each other.
fn validate_finalizers(object: &Value) -> Option<FieldError> {
    let finalizers = meta_texts(object, "finalizers");
    let both = finalizers.contains(&"orphan") && finalizers.contains(&"foregroundDeletion");
    both.then(|| {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        let shown = format!("[{}]", finalizers.join(" "));
        FieldError::invalid_text("metadata.finalizers", &shown, detail)
    })
}

/// Finalizers without a domain that everyone knows.
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];

fn is_unqualified(finalizer: &str) -> bool {
    !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(&finalizer)
}

/// Built-in kinds take no finalizers without a domain; definitions do, for theirs has none.
pub(crate) fn standard_finalizers(resource: &Resource, object: &Value) -> Vec<FieldError> {
    if resource.is_custom() || is(resource, BuiltIn::CustomResourceDefinition) {
        return Vec::new();
    }
    let detail = "name is neither a standard finalizer name nor is it fully qualified";
    let finalizers = meta_texts(object, "finalizers").into_iter().enumerate();
    finalizers
        .filter(|(_, finalizer)| is_unqualified(finalizer))
        .map(|(at, finalizer)| {
            let path = field::index("metadata.finalizers", at);
            FieldError::invalid_text(path, finalizer, detail)
        })
        .collect()
}

/// Custom kinds take them, with a warning about each new one.
pub(crate) fn finalizer_warnings(
    resource: &Resource,
    new: &Value,
    old: Option<&Value>,
) -> Vec<String> {
    if !resource.is_custom() {
        return Vec::new();
    }
    let known = old.map(|old| meta_texts(old, "finalizers")).unwrap_or_default();
    let mut added = meta_texts(new, "finalizers");
    added.retain(|finalizer| is_unqualified(finalizer) && !known.contains(finalizer));
    added.sort_unstable();
    added
        .iter()
        .map(|finalizer| {
            let shown = field::quote(finalizer);
            format!(
                "metadata.finalizers: {shown}: prefer a domain-qualified finalizer name including a path (/) to avoid accidental conflicts with other finalizer writers"
            )
        })
        .collect()
}

fn validate_owners(owners: Option<&Value>) -> Vec<FieldError> {
    const PATH: &str = "metadata.ownerReferences";
    let mut errors = Vec::new();
    let items = owners.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut controller: Option<&Value> = None;
    let mut several = false;
    for owner in items {
        let text = |name: &str| owner.get(name).and_then(Value::as_str).unwrap_or_default();
        let version = text("apiVersion");
        let parts: Vec<&str> = version.split('/').collect();
        if version.is_empty() || parts.len() > 2 || parts.last() == Some(&"") {
            let path = child(PATH, "apiVersion");
            errors.push(FieldError::invalid_text(path, version, "version must not be empty"));
        }
        for name in ["kind", "name", "uid"] {
            if text(name).is_empty() {
                let path = child(PATH, name);
                errors.push(FieldError::invalid_text(path, "", "must not be empty"));
            }
        }
        if text("kind") == "Event" && matches!(version, "v1" | "events.k8s.io/v1") {
            let group = version.strip_suffix("/v1").unwrap_or_default();
            let why = format!("{group}/v1, Kind=Event is disallowed from being an owner");
            errors.push(FieldError::invalid_shown(PATH, &shown_owner(owner), &why));
        }
        if owner.get("controller").and_then(Value::as_bool) == Some(true) {
            // Reported once: the error shows all controllers.
            if let Some(first) = controller
                && !std::mem::replace(&mut several, true)
            {
                errors.push(two_controllers(items, first, owner));
            }
            controller = Some(owner);
        }
    }
    errors
}

/// An owner as Kubernetes prints it: its fields in the order of the type.
fn shown_owner(owner: &Value) -> String {
    const ORDER: [&str; 6] =
        ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];
    let fields: Vec<String> = ORDER
        .iter()
        .filter_map(|name| owner.get(name).map(|value| format!("\"{name}\":{value}")))
        .collect();
    format!("{{{}}}", fields.join(","))
}

fn two_controllers(all: &[Value], first: &Value, second: &Value) -> FieldError {
    let named = |owner: &Value| {
        let text = |name: &str| owner.get(name).and_then(Value::as_str).unwrap_or_default();
        format!("{}/{}", text("kind"), text("name"))
    };
    let detail = format!(
        "Only one reference can have Controller set to true. Found \"true\" in references for {} and {}",
        named(first),
        named(second)
    );
    let shown: Vec<String> = all.iter().map(shown_owner).collect();
    let shown = format!("[{}]", shown.join(","));
    FieldError::invalid_shown("metadata.ownerReferences", &shown, &detail)
}

/// The errors of a change of the metadata.
pub(crate) fn validate_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if metadata(old).is_some_and(|metadata| metadata.contains_key("deletionTimestamp")) {
        errors.extend(no_new_finalizers(new, old));
    }
    for name in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        let value = |object| metadata(object).and_then(|metadata| metadata.get(name));
        if value(new) != value(old) {
            let shown = value(new).cloned().unwrap_or_default();
            let path = child("metadata", name);
            errors.push(FieldError::invalid(path, &shown, "field is immutable"));
        }
    }
    errors.extend(validate_maps(new));
    errors
}

fn no_new_finalizers(new: &Value, old: &Value) -> Option<FieldError> {
    let known = meta_texts(old, "finalizers");
    let mut added: Vec<&str> = meta_texts(new, "finalizers");
    added.retain(|finalizer| !known.contains(finalizer));
    if added.is_empty() {
        return None;
    }
    let shown: Vec<String> = added.iter().map(|finalizer| field::quote(finalizer)).collect();
    let body = format!(
        "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
        shown.join(", ")
    );
    Some(FieldError::verbatim(FieldErrorKind::Forbidden, "metadata.finalizers", &body))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_generated_name_keeps_its_prefix_and_stays_short() {
        let name = generate_name("gen-");
        assert!(name.starts_with("gen-") && name.len() == 9, "{name}");
        assert_eq!(generate_name(&"a".repeat(70)).len(), 63);
    }

    #[test]
    fn a_new_object_gets_what_the_server_owns_and_loses_what_it_may_not_set() {
        let map = BuiltIn::Pod.resource();
        let mut object = json!({"metadata": {"name": "a", "uid": "mine", "selfLink": "/x",
            "deletionTimestamp": "2001-01-01T00:00:00Z", "labels": {}, "generation": 7}});
        let now = jiff::Timestamp::UNIX_EPOCH;
        wipe(&mut object);
        fill_new(&map, &mut object, Birth { namespace: "ns", uid: "u".to_owned(), now });
        assert_eq!(
            object,
            json!({"metadata": {"name": "a", "namespace": "ns", "uid": "u", "generation": 1,
                "creationTimestamp": "1970-01-01T00:00:00Z"}})
        );
    }

    #[test]
    fn an_update_keeps_what_a_client_leaves_out_and_refuses_what_it_changes() {
        let old = json!({"metadata": {"name": "a", "uid": "u", "generation": 3,
            "creationTimestamp": "t", "deletionTimestamp": "d", "finalizers": ["x/f"]}});
        let mut new = json!({"metadata": {"name": "a", "generation": 9, "finalizers": ["x/f"]}});
        carry_over(&mut new, &old);
        keep_deletion(&mut new, &old);
        assert_eq!(new, old);
        assert_eq!(validate_update(&new, &old), []);
        let mut new = json!({"metadata": {"name": "a", "uid": "v", "finalizers": ["x/g"]}});
        carry_over(&mut new, &old);
        keep_deletion(&mut new, &old);
        let texts: Vec<String> =
            validate_update(&new, &old).iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"x/g\"}",
                "metadata.uid: Invalid value: \"v\": field is immutable",
            ]
        );
    }

    #[test]
    fn a_finalizer_without_a_domain_is_refused_or_warned_of() {
        let object = json!({"metadata": {"name": "a", "finalizers": ["orphan", "mine", "x.io/f"]}});
        let errors = standard_finalizers(&BuiltIn::Secret.resource(), &object);
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "metadata.finalizers[1]: Invalid value: \"mine\": name is neither a standard finalizer name nor is it fully qualified"
            ]
        );
        let definition = BuiltIn::CustomResourceDefinition.resource();
        assert_eq!(standard_finalizers(&definition, &object), []);
    }

    #[test]
    fn more_owners_or_finalizers_than_are_looked_at_are_refused() {
        let owner = json!({"apiVersion": "v1", "kind": "K", "name": "a", "uid": "u"});
        let object = |count| json!({"metadata": {"ownerReferences": vec![owner.clone(); count]}});
        let node = BuiltIn::Node.resource();
        assert_eq!(check_counts(&node, &object(MOST_LISTED)), Ok(()));
        let text = check_counts(&node, &object(MOST_LISTED + 1)).unwrap_err();
        assert!(text.starts_with("metadata.ownerReferences: Too many: 1001"), "{text}");
        let finalizers = json!({"metadata": {"finalizers": vec!["a/b"; MOST_LISTED + 1]}});
        assert!(check_counts(&node, &finalizers).is_err());
        let addresses = json!({"status": {"addresses": vec![json!({}); MOST_LISTED + 1]}});
        assert!(check_counts(&node, &addresses).is_err());
    }

    #[test]
    fn owners_must_be_whole_and_one_of_them_the_controller() {
        let object = |owners: Value| json!({"metadata": {"name": "a", "ownerReferences": owners}});
        let secret = BuiltIn::Secret.resource();
        let count = |owners| validate_new(&secret, &object(owners)).len();
        let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "u"});
        assert_eq!(count(json!([owner])), 0);
        assert_eq!(count(json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "a"}])), 1);
        assert_eq!(
            count(json!([{"apiVersion": "a/b/c", "kind": "K", "name": "a", "uid": "u"}])),
            1
        );
        let both = json!([
            {"apiVersion": "v1", "kind": "K", "name": "a", "uid": "u", "controller": true},
            {"apiVersion": "v1", "kind": "K", "name": "b", "uid": "v", "controller": true}]);
        assert_eq!(count(both), 1);
        let event = json!([{"apiVersion": "v1", "kind": "Event", "name": "a", "uid": "u"}]);
        assert_eq!(count(event), 1);
    }
}
