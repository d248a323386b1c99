//! Paths and their operations.

use serde_json::{Map, Value, json};

use super::schemas;
use crate::kinds::{Resource, Subresource, access::set, type_name};

/// The action of an operation on a resource.
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
    /// Its method, its name in `x-kubernetes-action`, and the verb of the operation's id.
    const fn texts(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::List => ("get", "list", "list"),
            Self::Get => ("get", "get", "read"),
            Self::Create => ("post", "post", "create"),
            Self::DeleteCollection => ("delete", "deletecollection", "deletecollection"),
            Self::Delete => ("delete", "delete", "delete"),
            Self::Update => ("put", "put", "replace"),
            Self::Patch => ("patch", "patch", "patch"),
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
    /// The suffix of the operation ids.
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
    for part in Subresource::ALL.into_iter().filter(|part| resource.subresources.has(*part)) {
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
    let place = match part.foreign_kind() {
        None => place(resource, &camel(part.name()), resource.namespaced),
        Some((group, kind)) => Place {
            schema: type_name(group, "v1", kind),
            kind: (group.to_owned(), "v1".to_owned(), kind.to_owned()),
            ..place(resource, kind, resource.namespaced)
        },
    };
    let actions: &[Action] = match part.verbs() {
        ["create"] => &[Action::Create],
        ["update"] => &[Action::Update],
        _ => &[Action::Get, Action::Update, Action::Patch],
    };
    (place, actions)
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
        item.insert(action.texts().0.to_owned(), operation(place, *action));
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
    let (group_name, (_, name, verb)) = (camel(&resource.group), action.texts());
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
        "x-kubernetes-action": name,
        "x-kubernetes-group-version-kind": { "group": group, "version": version, "kind": kind },
    });
    if let Some(body) = request_body(place, action) {
        set(&mut operation, "requestBody", body);
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

/// The types of patches; custom kinds do not take the last one.
const PATCHES: [&str; 4] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/apply-patch+yaml",
    "application/strategic-merge-patch+json",
];

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
        Action::Patch => {
            let known = if place.resource.is_custom() { 3 } else { 4 };
            (PATCHES.get(..known).unwrap_or(&PATCHES), reference(schemas::PATCH))
        }
        Action::Delete | Action::DeleteCollection => {
            (&["application/json"], reference(schemas::DELETE_OPTIONS))
        }
        Action::List | Action::Get => return None,
    };
    let required = !matches!(action, Action::Delete | Action::DeleteCollection);
    Some(json!({ "required": required, "content": content(types, &schema) }))
}

fn parameters(action: Action) -> Vec<Value> {
    let names = match action {
        Action::List => {
            "allowWatchBookmarks continue fieldSelector labelSelector limit resourceVersion \
             resourceVersionMatch sendInitialEvents timeoutSeconds watch pretty"
        }
        Action::Create | Action::Update => "dryRun fieldManager fieldValidation pretty",
        Action::Patch => "dryRun fieldManager fieldValidation force pretty",
        Action::Delete => "dryRun gracePeriodSeconds orphanDependents propagationPolicy pretty",
        Action::DeleteCollection => {
            "dryRun fieldSelector gracePeriodSeconds labelSelector propagationPolicy pretty"
        }
        Action::Get => "pretty",
    };
    let parameter = |name| {
        let kind = match name {
            "limit" | "timeoutSeconds" | "gracePeriodSeconds" => "integer",
            "allowWatchBookmarks"
            | "sendInitialEvents"
            | "watch"
            | "force"
            | "orphanDependents" => "boolean",
            _ => "string",
        };
        json!({ "name": name, "in": "query", "schema": { "type": kind, "uniqueItems": true } })
    };
    names.split(' ').map(parameter).collect()
}
