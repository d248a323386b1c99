//! The CustomResourceDefinitions, generated from the types.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, JSON, JSONSchemaProps,
    JSONSchemaPropsOrArray, ValidationRule,
};
use kube::CustomResourceExt;

use crate::{
    machine::Machine, machine_class::MachineClass, machine_deployment::MachineDeployment,
    machine_health_check::MachineHealthCheck, machine_pool::MachinePool,
    machine_reserve::MachineReserve, machine_set::MachineSet,
};

/// Every CustomResourceDefinition of ours, in the order in which to apply them.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![
        machine(),
        machine_class(),
        machine_set(),
        machine_deployment(),
        machine_pool(),
        machine_health_check(),
        machine_reserve(),
    ]
}

/// A column of `kubectl get`.
struct Column {
    name: &'static str,
    type_: &'static str,
    path: &'static str,
    /// Shown with `-o wide` only.
    wide: bool,
}

const fn column(name: &'static str, type_: &'static str, path: &'static str) -> Column {
    Column { name, type_, path, wide: false }
}

const fn wide(name: &'static str, type_: &'static str, path: &'static str) -> Column {
    Column { name, type_, path, wide: true }
}

/// Status, Age, Node and ProviderID are upstream's, by name, path and order; the others say where a Machine is and why.
/// Columns only for `-o wide` come after ProviderID.
const MACHINE_COLUMNS: &[Column] = &[
    column("Status", "string", ".status.currentStatus.phase"),
    column("Age", "date", ".metadata.creationTimestamp"),
    column("Node", "string", ".status.nodeName"),
    column("Step", "string", ".status.step"),
    column("Waiting", "string", ".status.waitingFor.reason"),
    wide("ProviderID", "string", ".spec.providerID"),
    wide("Phase", "string", ".status.phase"),
    wide("Bootstrap", "string", ".status.bootstrapPhase"),
    wide("Infrastructure", "string", ".status.infrastructurePhase"),
    wide("Version", "string", ".status.version"),
    wide("Class", "string", ".spec.class.name"),
    // Of a pool alone.
    wide("Pool", "string", r".metadata.labels.cluster\.x-k8s\.io/pool-name"),
    wide("Instance", "string", ".status.instance.id"),
    wide("State", "string", ".status.instance.provisioningState"),
];

const CLASS_COLUMNS: &[Column] = &[
    column("Provider", "string", ".provider"),
    column("Valid", "string", ".status.conditions[?(@.type==\"Valid\")].status"),
    column("Age", "date", ".metadata.creationTimestamp"),
    wide("Secret", "string", ".secretRef.name"),
    wide("Reason", "string", ".status.conditions[?(@.type==\"Valid\")].reason"),
];

const SET_COLUMNS: &[Column] = &[
    column("Desired", "integer", ".spec.replicas"),
    column("Current", "integer", ".status.replicas"),
    column("Ready", "integer", ".status.readyReplicas"),
    column("Age", "date", ".metadata.creationTimestamp"),
];

const DEPLOYMENT_COLUMNS: &[Column] = &[
    column("Ready", "integer", ".status.readyReplicas"),
    column("Desired", "integer", ".spec.replicas"),
    column("Up-to-date", "integer", ".status.updatedReplicas"),
    column("Available", "integer", ".status.availableReplicas"),
    column("Age", "date", ".metadata.creationTimestamp"),
];

const POOL_COLUMNS: &[Column] = &[
    column("Desired", "integer", ".spec.replicas"),
    column("Current", "integer", ".status.replicas"),
    column("Ready", "integer", ".status.readyReplicas"),
    column("Available", "integer", ".status.availableReplicas"),
    column("Up-to-date", "integer", ".status.upToDateReplicas"),
    column("Phase", "string", ".status.phase"),
    column("Age", "date", ".metadata.creationTimestamp"),
    wide("Version", "string", ".spec.template.spec.version"),
    wide("Provider", "string", ".status.provider"),
    wide("ProviderID", "string", ".status.providerID"),
];

const CHECK_COLUMNS: &[Column] = &[
    column("MaxUnhealthy", "string", ".spec.maxUnhealthy"),
    column("ExpectedMachines", "integer", ".status.expectedMachines"),
    column("CurrentHealthy", "integer", ".status.currentHealthy"),
    column(
        "RemediationAllowed",
        "string",
        ".status.conditions[?(@.type==\"RemediationAllowed\")].status",
    ),
    column("Age", "date", ".metadata.creationTimestamp"),
    wide("UnhealthyRange", "string", ".spec.unhealthyRange"),
    wide("NodeStartupTimeout", "string", ".spec.nodeStartupTimeout"),
    wide("Cluster", "string", ".spec.clusterName"),
];

const RESERVE_COLUMNS: &[Column] = &[
    column("Target", "string", ".spec.targetRef.name"),
    column("Desired", "string", ".spec.replicas"),
    column("Ready", "integer", ".status.readyReplicas"),
    column("Given", "integer", ".status.given"),
    column("Age", "date", ".metadata.creationTimestamp"),
    wide("Kind", "string", ".spec.targetRef.kind"),
    wide("Current", "integer", ".status.replicas"),
    wide("Up-to-date", "integer", ".status.updatedReplicas"),
];

fn machine() -> CustomResourceDefinition {
    let mut crd = Machine::crd();
    set_columns(&mut crd, MACHINE_COLUMNS);
    each_schema(&mut crd, |root| {
        if let Some(spec) = property(root, "spec") {
            mark_node_template(spec);
        }
    });
    crd
}

/// Marks the Node template in the spec of a Machine as the types of core/v1 are marked, which upstream's definition is
/// generated from.
fn mark_node_template(machine: &mut JSONSchemaProps) {
    let Some(template) = property(machine, "nodeTemplate") else { return };
    if let Some(metadata) = property(template, "metadata") {
        metadata.nullable = Some(true);
    }
    let Some(node) = property(template, "spec") else { return };
    for (list, type_) in [("taints", "atomic"), ("podCIDRs", "set")] {
        if let Some(list) = property(node, list) {
            list.x_kubernetes_list_type = Some(type_.to_owned());
        }
    }
}

fn machine_set() -> CustomResourceDefinition {
    let mut crd = MachineSet::crd();
    set_columns(&mut crd, SET_COLUMNS);
    each_schema(&mut crd, scaled);
    crd
}

fn machine_deployment() -> CustomResourceDefinition {
    let mut crd = MachineDeployment::crd();
    set_columns(&mut crd, DEPLOYMENT_COLUMNS);
    each_schema(&mut crd, |root| {
        scaled(root);
        if let Some(spec) = property(root, "spec") {
            spec.required = Some(vec!["template".to_owned()]);
            let rules = spec.x_kubernetes_validations.get_or_insert_default();
            rules.extend(STRATEGY_RULES.into_iter().chain(FIELDS_STAY).map(rule));
        }
    });
    crd
}

fn machine_pool() -> CustomResourceDefinition {
    let mut crd = MachinePool::crd();
    set_columns(&mut crd, POOL_COLUMNS);
    each_schema(&mut crd, |root| {
        let Some(spec) = property(root, "spec") else { return };
        spec.required = Some(vec!["template".to_owned()]);
        spec.x_kubernetes_validations = Some(POOL_RULES.map(rule).to_vec());
        if let Some(replicas) = property(spec, "replicas") {
            replicas.minimum = Some(0.0);
        }
        limit(spec, "clusterName", 1, 63);
        if let Some(domains) = property(spec, "failureDomains") {
            domains.max_items = Some(100);
        }
        if let Some(strategy) = property(spec, "strategy") {
            strategy.x_kubernetes_validations = Some(POOL_STRATEGY_RULES.map(rule).to_vec());
        }
        let Some(template) = property(spec, "template") else { return };
        if let Some(metadata) = property(template, "metadata") {
            metadata.nullable = Some(true);
        }
        if let Some(machine) = property(template, "spec") {
            mark_node_template(machine);
        }
    });
    crd
}

const POOL_RULES: [(&str, &str); 2] = [FLEET_RULES[1], CLUSTER_NAME_STAYS];

const CLUSTER_NAME_STAYS: (&str, &str) = (
    "has(self.clusterName) == has(oldSelf.clusterName) \
     && (!has(self.clusterName) || self.clusterName == oldSelf.clusterName)",
    "clusterName never changes",
);

fn machine_health_check() -> CustomResourceDefinition {
    let mut crd = MachineHealthCheck::crd();
    set_columns(&mut crd, CHECK_COLUMNS);
    each_schema(&mut crd, |root| {
        root.required = Some(vec!["spec".to_owned()]);
        let Some(spec) = property(root, "spec") else { return };
        spec.required = Some(vec!["selector".to_owned()]);
        spec.x_kubernetes_validations = Some(CHECK_RULES.map(rule).to_vec());
        limit(spec, "clusterName", 1, 63);
        limit_numbers(spec, "maxUnhealthy", "unhealthyRange");
        limit_conditions(spec, "unhealthyConditions");
        if let Some(checks) = property(spec, "checks") {
            limit_conditions(checks, "unhealthyNodeConditions");
            at_least_zero(checks, "nodeStartupTimeoutSeconds");
        }
        let remediation = property(spec, "remediation");
        if let Some(trigger) = remediation.and_then(|it| property(it, "triggerIf")) {
            limit_numbers(trigger, "unhealthyLessThanOrEqualTo", "unhealthyInRange");
        }
    });
    crd
}

fn machine_reserve() -> CustomResourceDefinition {
    let mut crd = MachineReserve::crd();
    set_columns(&mut crd, RESERVE_COLUMNS);
    each_schema(&mut crd, |root| {
        root.required = Some(vec!["spec".to_owned()]);
        // The name is a label of the reserve's Machines.
        root.x_kubernetes_validations = Some(vec![rule(RESERVE_NAME)]);
        let Some(spec) = property(root, "spec") else { return };
        spec.required = Some(vec!["targetRef".to_owned(), "replicas".to_owned()]);
        limit(spec, "replicas", 1, 32);
        at_least_zero(spec, "replicas");
        if let Some(replicas) = property(spec, "replicas") {
            replicas.pattern = Some("^[0-9]+%$".to_owned());
        }
        if let Some(effect) = property(spec, "taintEffect") {
            effect.enum_ = Some(["NoSchedule", "NoExecute"].map(|it| JSON(it.into())).to_vec());
        }
        let Some(target) = property(spec, "targetRef") else { return };
        target.required = Some(vec!["kind".to_owned(), "name".to_owned()]);
        limit(target, "name", 1, 253);
        if let Some(kind) = property(target, "kind") {
            let kinds = ["MachineDeployment", "MachineSet"];
            kind.enum_ = Some(kinds.map(|it| JSON(it.into())).to_vec());
        }
    });
    crd
}

const RESERVE_NAME: (&str, &str) = (
    "size(self.metadata.name) <= 63",
    "metadata.name has more than 63 letters: its machines carry it as a label",
);

/// How many Machines may be unhealthy.
fn limit_numbers(schema: &mut JSONSchemaProps, most: &str, range: &str) {
    for (field, pattern) in [(most, "^[0-9]+%?$"), (range, r"^\[[0-9]+-[0-9]+\]$")] {
        limit(schema, field, 1, 32);
        if let Some(field) = property(schema, field) {
            field.pattern = Some(pattern.to_owned());
        }
    }
    at_least_zero(schema, most);
}

fn at_least_zero(schema: &mut JSONSchemaProps, field: &str) {
    if let Some(field) = property(schema, field) {
        field.minimum = Some(0.0);
    }
}

/// Conditions of a Node.
fn limit_conditions(schema: &mut JSONSchemaProps, field: &str) {
    let Some(conditions) = property(schema, field) else { return };
    conditions.max_items = Some(100);
    if let Some(JSONSchemaPropsOrArray::Schema(one)) = &mut conditions.items {
        limit(one, "type", 1, 316);
        at_least_zero(one, "timeoutSeconds");
        if let Some(status) = property(one, "status") {
            let values = ["True", "False", "Unknown"];
            status.enum_ = Some(values.map(|value| JSON(value.into())).to_vec());
        }
    }
}

/// Limits the length of a text.
fn limit(schema: &mut JSONSchemaProps, field: &str, least: i64, most: i64) {
    if let Some(field) = property(schema, field) {
        (field.min_length, field.max_length) = (Some(least), Some(most));
    }
}

const CHECK_RULES: [(&str, &str); 5] = [
    (
        "(has(self.selector.matchLabels) && size(self.selector.matchLabels) > 0) \
         || (has(self.selector.matchExpressions) && size(self.selector.matchExpressions) > 0)",
        "selector is empty and would select every machine: give matchLabels or matchExpressions",
    ),
    (
        "!has(self.remediationTemplate)",
        "remediationTemplate is not supported: remove it; the set or the pool of a machine replaces it",
    ),
    (
        "!has(self.remediation) || !has(self.remediation.templateRef)",
        "remediation.templateRef is not supported: remove it; the set or the pool of a machine replaces it",
    ),
    (
        "!has(self.checks) || !has(self.checks.unhealthyMachineConditions)",
        "checks.unhealthyMachineConditions is not supported: remove it, and name conditions of the node in \
         checks.unhealthyNodeConditions",
    ),
    CLUSTER_NAME_STAYS,
];

/// A percentage that is rounded down to 0 is no zero: it depends on the replicas.
const POOL_STRATEGY_RULES: [(&str, &str); 2] = [
    (
        "!has(self.type) || self.type in ['RollingUpdate', 'InPlaceUpdate', 'OnDelete']",
        "type must be RollingUpdate, InPlaceUpdate or OnDelete",
    ),
    (
        "!has(self.rollingUpdate) || !has(self.rollingUpdate.maxSurge) \
         || !(string(self.rollingUpdate.maxSurge) in ['0', '0%']) \
         || (has(self.rollingUpdate.maxUnavailable) \
         && !(string(self.rollingUpdate.maxUnavailable) in ['0', '0%']))",
        "maxSurge and maxUnavailable are both 0: nothing could ever be replaced",
    ),
];

/// Rules against values that neither upstream nor we act on, as far as a definition can express them cheaply. An API
/// server that knows no rules stores the object, and its condition says the same.
const FLEET_RULES: [(&str, &str); 2] = [
    ("has(self.selector)", "selector is missing"),
    (
        "has(self.template) && has(self.template.spec) && has(self.template.spec.class) \
         && has(self.template.spec.class.kind) && self.template.spec.class.kind != '' \
         && has(self.template.spec.class.name) && self.template.spec.class.name != ''",
        "template.spec.class needs kind and name",
    ),
];

const STRATEGY_RULES: [(&str, &str); 3] = [
    (
        "has(self.strategy) && has(self.strategy.type) \
         && self.strategy.type in ['RollingUpdate', 'Recreate', 'InPlaceUpdate']",
        "strategy.type must be RollingUpdate, Recreate or InPlaceUpdate",
    ),
    (
        "!has(self.strategy) || !has(self.strategy.type) || self.strategy.type != 'RollingUpdate' \
         || (has(self.strategy.rollingUpdate) && has(self.strategy.rollingUpdate.maxSurge) \
         && has(self.strategy.rollingUpdate.maxUnavailable))",
        "strategy.rollingUpdate needs maxSurge and maxUnavailable",
    ),
    (
        "!has(self.strategy) || !has(self.strategy.type) || self.strategy.type != 'InPlaceUpdate' \
         || (has(self.strategy.inPlaceUpdate) && has(self.strategy.inPlaceUpdate.maxSurge) \
         && has(self.strategy.inPlaceUpdate.maxUnavailable) \
         && has(self.strategy.inPlaceUpdate.orchestrationType) \
         && self.strategy.inPlaceUpdate.orchestrationType in ['Auto', 'Manual'])",
        "strategy.inPlaceUpdate needs maxSurge, maxUnavailable and an orchestrationType of Auto or Manual",
    ),
];

/// Clients that know machine-controller-manager's fields alone write deployments whole: Gardener's cluster-autoscaler
/// at each scale. Without these two rules such a write would change the template, and all Machines would be replaced.
const FIELDS_STAY: [(&str, &str); 2] = [
    (
        "!has(oldSelf.template) || !has(oldSelf.template.spec) || !has(oldSelf.template.spec.version) \
         || oldSelf.template.spec.version == '' || has(self.template.spec.version)",
        "template.spec.version would be lost: the client does not know this field; set it to \"\" to remove it",
    ),
    (
        "!has(oldSelf.template) || !has(oldSelf.template.spec) || !has(oldSelf.template.spec.bootstrap) \
         || !(has(oldSelf.template.spec.bootstrap.configRef) \
         || has(oldSelf.template.spec.bootstrap.dataSecretName) \
         || has(oldSelf.template.spec.bootstrap.data)) || has(self.template.spec.bootstrap)",
        "template.spec.bootstrap would be lost: the client does not know this field; set it to {} to remove it",
    ),
];

fn rule((rule, message): (&str, &str)) -> ValidationRule {
    ValidationRule {
        rule: rule.to_owned(),
        message: Some(message.to_owned()),
        ..ValidationRule::default()
    }
}

/// Never negative.
const COUNTS: [&str; 5] = [
    "replicas",
    "minReadySeconds",
    "revisionHistoryLimit",
    "progressDeadlineSeconds",
    "autoPreserveFailedMachineMax",
];

/// The common limits of sets and deployments. `replicas` has no default: an absent number must be visible, since a
/// client that leaves it out may mean 0, or leave the number to an autoscaler.
fn scaled(root: &mut JSONSchemaProps) {
    let Some(spec) = property(root, "spec") else { return };
    for number in COUNTS {
        if let Some(number) = property(spec, number) {
            number.minimum = Some(0.0);
        }
    }
    spec.x_kubernetes_validations = Some(FLEET_RULES.map(rule).to_vec());
    if let Some(selector) = property(spec, "selector") {
        selector.x_kubernetes_map_type = Some("atomic".to_owned());
    }
    let Some(template) = property(spec, "template") else { return };
    if let Some(metadata) = property(template, "metadata") {
        metadata.nullable = Some(true);
    }
    if let Some(machine) = property(template, "spec") {
        mark_node_template(machine);
    }
}

fn machine_class() -> CustomResourceDefinition {
    let mut crd = MachineClass::crd();
    set_columns(&mut crd, CLASS_COLUMNS);
    each_schema(&mut crd, |root| {
        root.required = Some(vec!["providerSpec".to_owned()]);
        for reference in ["secretRef", "credentialsSecretRef"] {
            if let Some(reference) = property(root, reference) {
                reference.x_kubernetes_map_type = Some("atomic".to_owned());
            }
        }
    });
    crd
}

fn set_columns(crd: &mut CustomResourceDefinition, columns: &[Column]) {
    let definition = |column: &Column| CustomResourceColumnDefinition {
        name: column.name.to_owned(),
        type_: column.type_.to_owned(),
        json_path: column.path.to_owned(),
        priority: column.wide.then_some(1),
        ..CustomResourceColumnDefinition::default()
    };
    for version in &mut crd.spec.versions {
        version.additional_printer_columns = Some(columns.iter().map(definition).collect());
    }
}

/// Applies `change` to the schema of every version, as [`prepare`] leaves it.
fn each_schema(crd: &mut CustomResourceDefinition, change: impl Fn(&mut JSONSchemaProps)) {
    for version in &mut crd.spec.versions {
        let schema = version.schema.as_mut().and_then(|all| all.open_api_v3_schema.as_mut());
        if let Some(root) = schema {
            prepare(root);
            change(root);
        }
    }
}

/// Removes the defaults that the decoder needs and the API must not have: upstream defaults nothing. A count or percentage is read as 32 bits, and an object with a larger one could not be read.
fn prepare(schema: &mut JSONSchemaProps) {
    schema.default = None;
    if schema.x_kubernetes_int_or_string == Some(true) {
        schema.minimum = schema.minimum.or_else(|| Some(i32::MIN.into()));
        schema.maximum = schema.maximum.or_else(|| Some(i32::MAX.into()));
    }
    for property in schema.properties.iter_mut().flat_map(BTreeMap::values_mut) {
        prepare(property);
    }
    if let Some(items) = &mut schema.items {
        match items {
            JSONSchemaPropsOrArray::Schema(one) => prepare(one),
            JSONSchemaPropsOrArray::Schemas(all) => all.iter_mut().for_each(prepare),
        }
    }
}

fn property<'a>(schema: &'a mut JSONSchemaProps, name: &str) -> Option<&'a mut JSONSchemaProps> {
    schema.properties.as_mut()?.get_mut(name)
}
