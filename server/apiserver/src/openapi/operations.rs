//! Paths and what can be done at them.

use serde_json::{Map, Value, json};

use super::schemas;
use crate::kinds::{Resource, Subresource};

/// What an operation does with a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    List,
    Create,
    DeleteCollection,
    Get,
    Update,
    Patch,
    Delete,
}

impl Action {
    const fn method(self) -> &'static str {
        match self {
            Self::List | Self::Get => "get",
            Self::Create => "post",
            Self::DeleteCollection | Self::Delete => "delete",
            Self::Update => "put",
            Self::Patch => "patch",
        }
    }

    /// The name in `x-kubernetes-action`.
    const fn name(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Get => "get",
            Self::Create => "post",
            Self::DeleteCollection => "deletecollection",
            Self::Delete => "delete",
            Self::Update => "put",
            Self::Patch => "patch",
        }
    }

    /// The verb of the operation's id.
    const fn verb(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Get => "read",
            Self::Create => "create",
            Self::DeleteCollection => "deletecollection",
            Self::Delete => "delete",
            Self::Update => "replace",
            Self::Patch => "patch",
        }
    }
}

/// One address below a resource.
struct Place<'a> {
    resource: &'a Resource,
    /// The kind that is sent and answered, by the name of its schema.
    schema: String,
    /// Group, version and kind of that.
    kind: (String, String, String),
    /// What the operation ids end in.
    suffix: String,
    namespaced: bool,
}

/// Adds all paths of a resource.
pub(super) fn add_paths(paths: &mut Map<String, Value>, resource: &Resource) {
    let root = format!("/{}", super::address(&resource.group, &resource.version));
    let plural = &resource.plural;
    let collection = if resource.namespaced {
        let everywhere = place(resource, "ForAllNamespaces", false);
        add(paths, &format!("{root}/{plural}"), &everywhere, &[Action::List]);
        format!("{root}/namespaces/{{namespace}}/{plural}")
    } else {
        format!("{root}/{plural}")
    };
    let own = place(resource, "", resource.namespaced);
    let mut actions = vec![Action::List, Action::Create];
    if resource.verbs.contains(&"deletecollection") {
        actions.push(Action::DeleteCollection);
    }
    add(paths, &collection, &own, &actions);
    let one = format!("{collection}/{{name}}");
    let whole = [Action::Get, Action::Update, Action::Patch, Action::Delete];
    add(paths, &one, &own, &whole);
    let all = [
        Subresource::Status,
        Subresource::Scale,
        Subresource::Eviction,
        Subresource::Binding,
        Subresource::Token,
        Subresource::Finalize,
        Subresource::Approval,
    ];
    for part in all.into_iter().filter(|part| resource.subresources.has(*part)) {
        let (place, actions) = part_of(resource, part);
        add(paths, &format!("{one}/{}", part.name()), &place, actions);
    }
}

fn place<'a>(resource: &'a Resource, suffix: &str, namespaced: bool) -> Place<'a> {
    Place {
        resource,
        schema: schemas::name_of(resource),
        kind: (resource.group.clone(), resource.version.clone(), resource.kind.clone()),
        suffix: suffix.to_owned(),
        namespaced,
    }
}

fn part_of(resource: &Resource, part: Subresource) -> (Place<'_>, &'static [Action]) {
    const READ_WRITE: &[Action] = &[Action::Get, Action::Update, Action::Patch];
    let foreign = |schema: &str, group: &str, kind: &str| Place {
        resource,
        schema: schema.to_owned(),
        kind: (group.to_owned(), "v1".to_owned(), kind.to_owned()),
        suffix: kind.to_owned(),
        namespaced: resource.namespaced,
    };
    match part {
        Subresource::Status => (place(resource, "Status", resource.namespaced), READ_WRITE),
        Subresource::Approval => (place(resource, "Approval", resource.namespaced), READ_WRITE),
        Subresource::Finalize => {
            (place(resource, "Finalize", resource.namespaced), &[Action::Update])
        }
        Subresource::Scale => {
            (foreign("io.k8s.api.autoscaling.v1.Scale", "autoscaling", "Scale"), READ_WRITE)
        }
        Subresource::Eviction => {
            (foreign("io.k8s.api.policy.v1.Eviction", "policy", "Eviction"), &[Action::Create])
        }
        Subresource::Binding => {
            (foreign("io.k8s.api.core.v1.Binding", "", "Binding"), &[Action::Create])
        }
        Subresource::Token => {
            let schema = "io.k8s.api.authentication.v1.TokenRequest";
            (foreign(schema, "authentication.k8s.io", "TokenRequest"), &[Action::Create])
        }
    }
}

fn add(paths: &mut Map<String, Value>, path: &str, place: &Place<'_>, actions: &[Action]) {
    let mut item = Map::new();
    let in_path =
        ["namespace", "name"].into_iter().filter(|name| path.contains(&format!("{{{name}}}")));
    let shared: Vec<Value> = in_path
        .map(|name| {
            json!({ "name": name, "in": "path", "required": true,
                    "schema": { "type": "string", "uniqueItems": true } })
        })
        .collect();
    item.insert("parameters".to_owned(), Value::Array(shared));
    for action in actions {
        item.insert(action.method().to_owned(), operation(place, *action));
    }
    paths.insert(path.to_owned(), Value::Object(item));
}

fn operation(place: &Place<'_>, action: Action) -> Value {
    let resource = place.resource;
    let (group, version, kind) = &place.kind;
    let answered = match action {
        Action::List => schemas::list_name_of(resource),
        Action::Delete | Action::DeleteCollection => schemas::STATUS.to_owned(),
        Action::Create | Action::Get | Action::Update | Action::Patch => place.schema.clone(),
    };
    let scope = if place.namespaced { "Namespaced" } else { "" };
    let (group_name, verb) = (camel(&resource.group), action.verb());
    let id = format!(
        "{verb}{group_name}{}{scope}{}{}",
        camel(&resource.version),
        resource.kind,
        place.suffix
    );
    let mut operation = json!({
        "tags": [format!("{group_name}_{}", resource.version)],
        "description": format!("{verb} {kind}"),
        "operationId": id,
        "parameters": parameters(action),
        "responses": { "200": {
            "description": "OK",
            "content": { "application/json": { "schema": reference(&answered) } },
        } },
        "x-kubernetes-action": action.name(),
        "x-kubernetes-group-version-kind": { "group": group, "version": version, "kind": kind },
    });
    if let (Some(body), Some(fields)) = (request_body(place, action), operation.as_object_mut()) {
        fields.insert("requestBody".to_owned(), body);
    }
    operation
}

/// `apps` → `Apps`, `coordination.k8s.io` → `Coordination`, the core group → `Core`.
fn camel(name: &str) -> String {
    let first = match name {
        "" => "core",
        name => name.split('.').next().unwrap_or(name),
    };
    let mut letters = first.chars();
    letters
        .next()
        .map_or_else(String::new, |c| c.to_ascii_uppercase().to_string() + letters.as_str())
}

fn reference(schema: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}

fn request_body(place: &Place<'_>, action: Action) -> Option<Value> {
    let content = |types: &[&str], schema: &Value| {
        let content: Map<String, Value> =
            types.iter().map(|one| ((*one).to_owned(), json!({ "schema": schema }))).collect();
        Value::Object(content)
    };
    let (types, schema): (&[&str], Value) = match action {
        Action::Create | Action::Update => {
            (&["application/json", "application/yaml"], reference(&place.schema))
        }
        Action::Patch if place.resource.is_custom() => (
            &["application/json-patch+json", "application/merge-patch+json"],
            reference(schemas::PATCH),
        ),
        Action::Patch => (
            &[
                "application/json-patch+json",
                "application/merge-patch+json",
                "application/strategic-merge-patch+json",
            ],
            reference(schemas::PATCH),
        ),
        Action::Delete | Action::DeleteCollection => {
            (&["application/json"], reference(schemas::DELETE_OPTIONS))
        }
        Action::List | Action::Get => return None,
    };
    let required = !matches!(action, Action::Delete | Action::DeleteCollection);
    Some(json!({ "required": required, "content": content(types, &schema) }))
}

fn parameters(action: Action) -> Vec<Value> {
    let names: &[(&str, &str)] = match action {
        Action::List => &[
            ("allowWatchBookmarks", "boolean"),
            ("continue", "string"),
            ("fieldSelector", "string"),
            ("labelSelector", "string"),
            ("limit", "integer"),
            ("resourceVersion", "string"),
            ("resourceVersionMatch", "string"),
            ("sendInitialEvents", "boolean"),
            ("timeoutSeconds", "integer"),
            ("watch", "boolean"),
        ],
        Action::Create | Action::Update => {
            &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string")]
        }
        Action::Patch => &[
            ("dryRun", "string"),
            ("fieldManager", "string"),
            ("fieldValidation", "string"),
            ("force", "boolean"),
        ],
        Action::Delete => &[
            ("dryRun", "string"),
            ("gracePeriodSeconds", "integer"),
            ("orphanDependents", "boolean"),
            ("propagationPolicy", "string"),
        ],
        Action::DeleteCollection => &[
            ("dryRun", "string"),
            ("fieldSelector", "string"),
            ("gracePeriodSeconds", "integer"),
            ("labelSelector", "string"),
            ("propagationPolicy", "string"),
        ],
        Action::Get => &[],
    };
    let parameter = |(name, kind): &(&str, &str)| json!({ "name": name, "in": "query", "schema": { "type": kind, "uniqueItems": true } });
    names.iter().map(parameter).chain([parameter(&("pretty", "string"))]).collect()
}
