use serde_json::{Value, json};

use super::{Found, answer};
use crate::kinds::Registry;

fn document(path: &str, accept: Option<&str>) -> Value {
    match answer(&Registry::built_in(), path, accept) {
        Found::Document(document) => serde_json::from_slice(&document.bytes).unwrap(),
        other @ (Found::UnknownVersion | Found::Nothing) => panic!("{path}: {other:?}"),
    }
}

#[test]
fn a_group_lists_its_resources_and_subresources() {
    let list = document("/apis/policy/v1", None);
    let verbs =
        json!(["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]);
    assert_eq!(
        list,
        json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "policy/v1", "resources": [
            {"name": "poddisruptionbudgets", "singularName": "poddisruptionbudget", "namespaced": true,
             "kind": "PodDisruptionBudget", "verbs": verbs, "shortNames": ["pdb"]},
            {"name": "poddisruptionbudgets/status", "singularName": "", "namespaced": true,
             "kind": "PodDisruptionBudget", "verbs": ["get", "patch", "update"]},
        ]})
    );
}

#[test]
fn the_core_list_has_no_api_version_and_names_foreign_kinds() {
    let list = document("/api/v1", None);
    assert_eq!(list.get("apiVersion"), None);
    let resources = list["resources"].as_array().unwrap();
    let eviction = resources.iter().find(|one| one["name"] == "pods/eviction").unwrap();
    assert_eq!(eviction["group"], "policy");
    assert_eq!(eviction["kind"], "Eviction");
}

#[test]
fn the_aggregated_form_is_served_to_those_who_ask_first_for_it() {
    let v2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let beta = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
    let cases = [
        (format!("{v2},{beta},application/json"), "APIGroupDiscoveryList"),
        (beta.to_owned(), "APIGroupDiscoveryList"),
        (
            "application/json;g=apidiscovery.k8s.io;v=v9;as=APIGroupDiscoveryList,application/json"
                .to_owned(),
            "APIGroupList",
        ),
        ("application/json".to_owned(), "APIGroupList"),
    ];
    for (accept, kind) in cases {
        assert_eq!(document("/apis", Some(&accept))["kind"], kind, "{accept}");
    }
}

#[test]
fn unknown_groups_and_unknown_versions_are_told_apart() {
    let registry = Registry::built_in();
    assert_eq!(answer(&registry, "/apis/nope.example.org", None), Found::Nothing);
    assert_eq!(answer(&registry, "/apis/policy/v9", None), Found::UnknownVersion);
    assert_eq!(answer(&registry, "/api/v7", None), Found::UnknownVersion);
    assert_eq!(answer(&registry, "/apis/nope/v1", None), Found::Nothing);
}

#[test]
fn versions_are_ordered_by_maturity_then_number() {
    let mut versions = ["v1alpha1", "foo", "v2", "v1beta2", "v10", "v1"];
    versions.sort_by_key(|version| std::cmp::Reverse(super::version_rank(version)));
    assert_eq!(versions, ["v10", "v2", "v1", "v1beta2", "v1alpha1", "foo"]);
}
