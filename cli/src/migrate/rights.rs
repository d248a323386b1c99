//! Whether the rights of `deploy/base` are there. Each is asked of the API server with a SelfSubjectAccessReview, which
//! is created as a request and stored nowhere.

use anyhow::Context as _;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::Client;
use kube::api::{Api, PostParams};
use serde_json::Value;

/// The rights of a deployed core.
const ROLES: [&str; 4] = [
    include_str!("../../../deploy/base/role.yaml"),
    include_str!("../../../deploy/base/cluster-role.yaml"),
    include_str!("../../../deploy/base/tokens.yaml"),
    include_str!("../../../deploy/base/node-events.yaml"),
];
/// Concurrent questions.
const AT_ONCE: usize = 8;

/// The rights that the core needs in this namespace and the account of the kubeconfig lacks, in words.
///
/// # Errors
/// The API server cannot be asked.
pub(super) async fn missing(client: &Client, namespace: &str) -> anyhow::Result<Vec<String>> {
    let reviews = Api::<SelfSubjectAccessReview>::all(client.clone());
    let questions = futures::stream::iter(needed(namespace)?).map(|attributes| {
        let reviews = reviews.clone();
        async move {
            let spec = SelfSubjectAccessReviewSpec {
                resource_attributes: Some(attributes.clone()),
                ..SelfSubjectAccessReviewSpec::default()
            };
            let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
            let answer = reviews.create(&PostParams::default(), &review).await;
            let answer = answer.context("the API server does not say which rights there are")?;
            let allowed = answer.status.is_some_and(|status| status.allowed);
            anyhow::Ok((!allowed).then(|| words(&attributes)))
        }
    });
    let answers: Vec<Option<String>> = questions.buffered(AT_ONCE).try_collect().await?;
    Ok(answers.into_iter().flatten().collect())
}

/// Every right of the core, verb by verb.
fn needed(namespace: &str) -> anyhow::Result<Vec<ResourceAttributes>> {
    let mut all = Vec::new();
    for role in ROLES {
        let documents: Vec<Value> = serde_saphyr::from_multiple(role)?;
        for document in documents {
            let text = |path: &str| document.pointer(path).and_then(Value::as_str);
            let scope = match text("/kind") {
                Some("Role") => Some(text("/metadata/namespace").unwrap_or(namespace)),
                Some("ClusterRole") => None,
                _ => continue,
            };
            let rules = document.get("rules").cloned().unwrap_or_else(|| Value::Array(Vec::new()));
            let rules: Vec<PolicyRule> = serde_json::from_value(rules)?;
            all.extend(rules.iter().flat_map(|rule| rights(rule, scope)));
        }
    }
    Ok(all)
}

fn rights(rule: &PolicyRule, namespace: Option<&str>) -> Vec<ResourceAttributes> {
    let groups = rule.api_groups.iter().flatten();
    let resources = || rule.resources.iter().flatten();
    let names = rule.resource_names.clone().filter(|names| !names.is_empty());
    let names = names.map_or_else(|| vec![None], |names| names.into_iter().map(Some).collect());
    let mut rights = Vec::new();
    for (group, resource) in groups.flat_map(|group| resources().map(move |it| (group, it))) {
        let (resource, subresource) = match resource.split_once('/') {
            Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
            None => (resource.as_str(), None),
        };
        for (verb, name) in
            rule.verbs.iter().flat_map(|verb| names.iter().map(move |it| (verb, it)))
        {
            rights.push(ResourceAttributes {
                group: Some(group.clone()),
                resource: Some(resource.to_owned()),
                subresource: subresource.clone(),
                verb: Some(verb.clone()),
                name: name.clone(),
                namespace: namespace.map(str::to_owned),
                ..ResourceAttributes::default()
            });
        }
    }
    rights
}

/// `patch machines/status.machine.sapcloud.io in default`.
fn words(right: &ResourceAttributes) -> String {
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    let mut words = format!("{} {}", text(&right.verb), text(&right.resource));
    for (before, part) in [("/", &right.subresource), (".", &right.group), (" ", &right.name)] {
        if let Some(part) = part.as_deref().filter(|part| !part.is_empty()) {
            words.push_str(before);
            words.push_str(part);
        }
    }
    match &right.namespace {
        Some(namespace) => format!("{words} in {namespace}"),
        None => format!("{words} everywhere"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_right_of_the_deployment_is_asked_for_where_it_is_needed() {
        let needed: Vec<String> = needed("shoot").unwrap().iter().map(words).collect();
        for right in [
            "patch machines/status.machine.sapcloud.io in shoot",
            "update leases.coordination.k8s.io machine-controller in shoot",
            "create secrets in kube-system",
            "create events.events.k8s.io in default",
            "create pods/eviction everywhere",
            "get namespaces kube-system everywhere",
        ] {
            assert!(needed.iter().any(|it| it == right), "{right}: {needed:#?}");
        }
    }
}
