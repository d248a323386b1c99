//! Templates of bootstrap providers. The Machines of a set must not share an object: their template names another template, and
//! each Machine gets a copy of that, of its own name and made before it. A copy is the set's until its Machine is there, which
//! then owns it in place of the set. So whatever a core that died left behind is known by its owner. A pool has one copy
//! (`pool/config.rs`).

use std::{collections::BTreeMap, fmt};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use ostler_api::{
    Machine, MachineSet,
    bootstrap::BootstrapConfigRef,
    machine::{MachineSpec, WaitReason},
    machine_set::SeenTemplate,
    names::{
        self,
        annotation::{CLONED_FROM_GROUP_KIND, CLONED_FROM_NAME, LAST_APPLIED_CONFIGURATION},
    },
};
use serde_json::{Value, json};

use crate::bootstrap::{ConfigKind, ConfigName, ConfigView, RefFault, SUFFIX, lack, named};
use crate::owner::controller;

/// A template that a set names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// The template.
    pub name: ConfigName,
    /// The kind of its copies.
    pub copies: ConfigKind,
}

fn reference(spec: &MachineSpec) -> Option<&BootstrapConfigRef> {
    spec.bootstrap.as_ref()?.config_ref.as_ref()
}

/// The template from which Machines of this spec, in this namespace, get copies; `None`: the spec names
/// no template.
///
/// # Errors
/// The reference names no template: advice for people.
pub fn template_of(
    namespace: Option<&str>,
    spec: &MachineSpec,
) -> Result<Option<Template>, String> {
    let Some(wanted) = reference(spec) else { return Ok(None) };
    let name = named(wanted, namespace.unwrap_or_default())
        .map_err(|fault| format!("spec.template.{}", fault.message))?;
    match wanted.kind.strip_suffix(SUFFIX).filter(|kind| !kind.is_empty()) {
        Some(kind) => {
            let copies = ConfigKind { kind: kind.to_owned(), ..name.kind.clone() };
            Ok(Some(Template { name, copies }))
        }
        None => Err(format!(
            "spec.template.spec.bootstrap.configRef names {wanted}, which is no template: name one of kind {}{SUFFIX}, of \
             which copies are made; or take configRef out, and give the user data in bootstrap.data, in \
             bootstrap.dataSecretName or in the secret of the class",
            wanted.kind
        )),
    }
}

/// Why the template of a set, deployment or pool of this namespace is refused, for people.
pub fn refused(metadata: &ObjectMeta, spec: &MachineSpec) -> Option<String> {
    template_of(metadata.namespace.as_deref(), spec).err()
}

/// The spec of a Machine, with the copy in place of the template.
pub(crate) fn with_copy(mut spec: MachineSpec, machine: &str) -> MachineSpec {
    let named = spec.bootstrap.as_mut().and_then(|bootstrap| bootstrap.config_ref.as_mut());
    if let Some(named) = named
        && let Some(kind) = named.kind.strip_suffix(SUFFIX)
    {
        named.kind = kind.to_owned();
        machine.clone_into(&mut named.name);
    }
    spec
}

/// Whether a Machine may have a copy that a set made: it names an object of its own name.
pub(crate) fn may_have(machine: &Machine) -> bool {
    reference(&machine.spec).is_some_and(|named| named.name == machine.name())
        && controller(&machine.metadata).is_some_and(|owner| owner.kind == names::MACHINE_SET)
}

/// Whether the owner is the set that owns the Machine's copy until the Machine does.
pub(crate) fn is_first_owner(machine: &Machine, owner: &OwnerReference) -> bool {
    let is_set = owner.api_version == names::API_VERSION && owner.kind == names::MACHINE_SET;
    is_set && owner.controller != Some(true) && may_have(machine)
}

/// A copy that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// Its kind.
    pub kind: ConfigKind,
    /// The kind in paths.
    pub plural: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// The template of the copy.
    pub of: Option<String>,
}

/// The part of a copy that depends on its user.
#[derive(Debug, Clone)]
pub(crate) struct MadeFor {
    /// Labels in addition to the labels of the template; they win over equal names.
    pub(crate) labels: BTreeMap<String, String>,
    /// Its owner.
    pub(crate) owner: OwnerReference,
}

impl MadeFor {
    /// For Machines of a set.
    pub(crate) fn set(set: &MachineSet) -> Self {
        let labels = set.spec.template.metadata.as_ref().and_then(|it| it.labels.clone());
        let owner = OwnerReference {
            api_version: names::API_VERSION.to_owned(),
            kind: names::MACHINE_SET.to_owned(),
            name: set.name().to_owned(),
            uid: set.uid().to_owned(),
            ..OwnerReference::default()
        };
        Self { labels: labels.unwrap_or_default(), owner }
    }
}

/// A copy that is to be made.
#[derive(Clone, PartialEq)]
pub struct NewCopy {
    /// Its kind.
    pub kind: ConfigKind,
    /// The kind in paths.
    pub plural: String,
    /// Its name.
    pub name: String,
    /// The UID of its owner.
    pub owner: String,
    /// The whole object. It may hold credentials.
    pub object: Value,
    /// Of which template, for people.
    pub of: String,
}

impl fmt::Debug for NewCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NewCopy({self})")
    }
}

impl fmt::Display for NewCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}, the copy of {}", self.kind.kind, self.name, self.of)
    }
}

impl NewCopy {
    /// Whether the object found under the copy's name is the copy, made by a request whose answer
    /// was lost.
    pub fn is(&self, found: &ObjectMeta) -> bool {
        let is_machine = |owner: &OwnerReference| {
            owner.api_version == names::API_VERSION
                && owner.kind == names::MACHINE
                && owner.name == self.name
        };
        let mut owners = found.owner_references.iter().flatten();
        found.deletion_timestamp.is_none()
            && owners.any(|owner| owner.uid == self.owner || is_machine(owner))
    }
}

/// What was observed of the template that a set or pool names, and of its copies.
#[derive(Debug, Clone, PartialEq)]
pub struct CopiesView {
    /// The template's name.
    pub of: Template,
    /// The template.
    pub template: ConfigView,
    /// The kind of the copies: [`ConfigView::Absent`] once it is watched.
    pub kind: ConfigView,
    /// The plural of the kind in paths.
    pub plural: String,
    /// Copies that are the set's, and have no Machine.
    pub left: Vec<Made>,
}

impl CopiesView {
    /// Whether more will be known soon.
    pub(crate) fn is_unknown(&self) -> bool {
        [&self.template, &self.kind].into_iter().any(|view| *view == ConfigView::Unknown)
    }

    /// The template as it is now.
    pub(crate) fn seen(&self) -> Option<SeenTemplate> {
        let ConfigView::Known(facts) = &self.template else { return None };
        Some(SeenTemplate { name: self.of.name.name.clone(), generation: facts.generation })
    }

    /// Names of copies without a Machine that are as new ones would be, so that Machines are made for them: at most so many.
    pub(crate) fn usable(&self, set: &MachineSet, left: &[Made], most: usize) -> Vec<String> {
        let before = set.status.as_ref().and_then(|status| status.bootstrap_template.as_ref());
        let Some(seen) = self.seen().filter(|seen| before == Some(seen)) else { return Vec::new() };
        let usable = left.iter().filter(|copy| copy.of.as_ref() == Some(&seen.name));
        usable.take(most).map(|copy| copy.name.clone()).collect()
    }

    /// The copy of this name. `Err`: why none can be made.
    pub(crate) fn copy(&self, made_for: MadeFor, name: &str) -> Result<NewCopy, RefFault> {
        let wanted = &self.of.name;
        let refuse = |reason, why: String| RefFault {
            reason,
            message: format!("spec.template.spec.bootstrap.configRef names {wanted}: {why}"),
        };
        if let Some((reason, why)) = lack(&self.template, &wanted.kind, wanted) {
            return Err(refuse(reason, why));
        }
        if self.kind != ConfigView::Absent
            && let Some((reason, why)) = lack(&self.kind, &self.of.copies, wanted)
        {
            return Err(refuse(reason, format!("no copy of it can be made: {why}")));
        }
        let body =
            if let ConfigView::Known(facts) = &self.template { &facts.template } else { &None };
        let Some(body) = body else {
            let why = "it has no spec.template".to_owned();
            return Err(refuse(WaitReason::BootstrapConfigInvalid, why));
        };
        Ok(NewCopy {
            kind: self.of.copies.clone(),
            plural: self.plural.clone(),
            name: name.to_owned(),
            owner: made_for.owner.uid.clone(),
            object: object(made_for, name, &self.of, &body.0),
            of: wanted.to_string(),
        })
    }
}

fn object(made_for: MadeFor, name: &str, of: &Template, body: &Value) -> Value {
    let texts = |path: &str| {
        let all = body.pointer(path).and_then(Value::as_object).into_iter().flatten();
        let texts = all.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
        texts.collect::<BTreeMap<_, _>>()
    };
    let mut labels = texts("/metadata/labels");
    labels.extend(made_for.labels);
    let mut annotations = texts("/metadata/annotations");
    annotations.remove(LAST_APPLIED_CONFIGURATION);
    let ConfigKind { group, version, kind, namespace } = &of.name.kind;
    annotations.insert(CLONED_FROM_NAME.to_owned(), of.name.name.clone());
    annotations.insert(CLONED_FROM_GROUP_KIND.to_owned(), format!("{kind}.{group}"));
    let mut object = json!({
        "apiVersion": format!("{group}/{version}"),
        "kind": of.copies.kind,
        "metadata": {
            "name": name, "namespace": namespace, "labels": labels, "annotations": annotations,
            "ownerReferences": [made_for.owner]
        }
    });
    if let (Some(spec), Some(fields)) = (body.get("spec"), object.as_object_mut()) {
        fields.insert("spec".to_owned(), spec.clone());
    }
    object
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ostler_api::machine_set::MachineSetSpec;

    use super::*;
    use crate::bootstrap::ConfigFacts;

    fn set(config: &Value) -> MachineSet {
        let mut set = MachineSet::new("s", MachineSetSpec::default());
        set.metadata.namespace = Some("default".to_owned());
        set.metadata.uid = Some("u".to_owned());
        let template = json!({
            "metadata": { "labels": { "app": "web", "both": "machine" } },
            "spec": { "class": {}, "bootstrap": { "configRef": config } }
        });
        set.spec.template = serde_json::from_value(template).unwrap();
        set
    }

    fn named(kind: &str) -> Value {
        json!({ "apiVersion": "bootstrap.example.com/v1", "kind": kind, "name": "workers" })
    }

    fn view(set: &MachineSet, template: ConfigView, kind: ConfigView) -> CopiesView {
        let of = template_of(Some("default"), &set.spec.template.spec).unwrap().unwrap();
        CopiesView { of, template, kind, plural: "recipes".to_owned(), left: Vec::new() }
    }

    fn known(content: &Value) -> ConfigView {
        ConfigView::Known(Arc::new(ConfigFacts::of_template(&ObjectMeta::default(), content)))
    }

    #[test]
    fn only_a_template_of_the_same_namespace_is_named_in_a_set() {
        let of = |config: Value| template_of(Some("default"), &set(&config).spec.template.spec);
        let found = of(named("RecipeTemplate")).unwrap().unwrap();
        assert_eq!(
            (found.name.kind.kind, found.copies.kind),
            ("RecipeTemplate".into(), "Recipe".into())
        );
        let refused = of(named("Recipe")).unwrap_err();
        assert!(
            refused.contains("Recipe workers") && refused.contains("RecipeTemplate"),
            "{refused}"
        );
        assert!(of(named("Template")).is_err(), "nothing is left of it");
        let mut other = named("RecipeTemplate");
        other["namespace"] = json!("other");
        let refused = of(other).unwrap_err();
        assert!(
            refused.starts_with("spec.template.spec.bootstrap.configRef.namespace"),
            "{refused}"
        );
        assert_eq!(template_of(Some("default"), &MachineSpec::default()), Ok(None));
    }

    #[test]
    fn a_copy_has_the_labels_of_both_and_says_what_it_was_made_from() {
        let set = set(&named("RecipeTemplate"));
        let body = json!({ "spec": { "template": {
            "metadata": {
                "labels": { "both": "template", "own": "yes" },
                "annotations": { "note": "x", LAST_APPLIED_CONFIGURATION: "{}" }
            },
            "spec": { "greeting": "hello" }
        } } });
        let copy = view(&set, known(&body), ConfigView::Absent)
            .copy(MadeFor::set(&set), "s-abcde")
            .unwrap();
        assert!(!format!("{copy:?}").contains("hello"), "it may hold credentials");
        let expected = json!({
            "apiVersion": "bootstrap.example.com/v1", "kind": "Recipe",
            "metadata": {
                "name": "s-abcde", "namespace": "default",
                "labels": { "app": "web", "both": "machine", "own": "yes" },
                "annotations": {
                    "note": "x", CLONED_FROM_NAME: "workers",
                    CLONED_FROM_GROUP_KIND: "RecipeTemplate.bootstrap.example.com"
                },
                "ownerReferences": [{
                    "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet", "name": "s", "uid": "u"
                }]
            },
            "spec": { "greeting": "hello" }
        });
        assert_eq!(copy.object, expected);
        let spec = with_copy(set.spec.template.spec.clone(), "s-abcde");
        let named = spec.bootstrap.unwrap().config_ref.unwrap();
        assert_eq!((named.kind.as_str(), named.name.as_str()), ("Recipe", "s-abcde"));
    }

    #[test]
    fn a_copy_that_is_there_is_the_one_if_the_set_or_its_machine_owns_it() {
        let set = set(&named("RecipeTemplate"));
        let body = json!({ "spec": { "template": {} } });
        let copy = view(&set, known(&body), ConfigView::Absent)
            .copy(MadeFor::set(&set), "s-abcde")
            .unwrap();
        let found = |kind: &str, name: &str, uid: &str, deleted: bool| {
            let at = deleted.then_some("2026-01-01T00:00:00Z");
            serde_json::from_value::<ObjectMeta>(
                json!({ "deletionTimestamp": at, "ownerReferences": [{
                "apiVersion": names::API_VERSION, "kind": kind, "name": name, "uid": uid
            }] }),
            )
            .unwrap()
        };
        assert!(copy.is(&found("MachineSet", "s", "u", false)));
        assert!(copy.is(&found("Machine", "s-abcde", "m", false)));
        assert!(!copy.is(&found("MachineSet", "s", "another", false)));
        assert!(!copy.is(&found("Machine", "other", "m", false)));
        assert!(!copy.is(&found("MachineSet", "s", "u", true)), "it goes");
        assert!(!copy.is(&ObjectMeta::default()));
    }

    #[test]
    fn what_is_missing_is_said_with_the_reference() {
        let set = set(&named("RecipeTemplate"));
        let good = || known(&json!({ "spec": { "template": {} } }));
        let unreadable = || ConfigView::Unreadable("forbidden".to_owned());
        for (template, kind, says) in [
            (ConfigView::Absent, ConfigView::Absent, "does not exist"),
            (ConfigView::KindMissing, ConfigView::Absent, "does not serve"),
            (unreadable(), ConfigView::Absent, "forbidden"),
            (known(&json!({ "spec": {} })), ConfigView::Absent, "no spec.template"),
            (good(), ConfigView::KindMissing, "kind Recipe"),
            (good(), ConfigView::KindUnmarked, "label its CustomResourceDefinition"),
            (good(), unreadable(), "forbidden"),
        ] {
            let why =
                view(&set, template, kind).copy(MadeFor::set(&set), "s-abcde").unwrap_err().message;
            assert!(why.contains("RecipeTemplate workers") && why.contains(says), "{why}");
        }
    }
}
