//! From a built-in kind to the file that is written for it.

use serde_json::Value;

use super::{
    BuiltIn, Subresource, access::flag, budget, certificate, config, defaults, definition, event,
    lease, namespace, node, pod, service, stored, strategy, workload,
};
use crate::kinds::field::FieldError;

#[expect(clippy::wildcard_enum_match_arm, reason = "the other kinds have nothing of their own")]
impl BuiltIn {
    pub(super) fn default(self, object: &mut Value) {
        match self {
            Self::Pod => pod::default(object),
            Self::Secret => config::default_secret(object),
            Self::Namespace => namespace::default(object),
            Self::Node => node::default(object),
            Self::Service => service::default(object),
            Self::CustomResourceDefinition => definition::default(object),
            _ => stored::default(self, object),
        }
        for template in ["/spec/template/spec", "/spec/jobTemplate/spec/template/spec"] {
            object.pointer_mut(template).into_iter().for_each(pod::complete);
        }
        defaults::fill(self.kind(), object);
    }

    pub(super) fn prepare_create(self, object: &mut Value) {
        defaults::begin(self.kind(), object);
        match self {
            Self::Pod => pod::prepare_create(object),
            Self::Namespace => namespace::prepare_create(object),
            Self::CertificateSigningRequest => certificate::prepare_create(object),
            Self::Node => node::prepare_create(object),
            Self::CustomResourceDefinition => definition::prepare_create(object),
            Self::Job => stored::prepare_job(object),
            _ => {}
        }
    }

    pub(super) fn prepare_update(self, new: &mut Value, old: &Value, part: Option<Subresource>) {
        match self {
            Self::Pod => pod::prepare_update(new, old, part),
            Self::Namespace => namespace::prepare_update(new, old, part),
            Self::CertificateSigningRequest => certificate::prepare_update(new, old, part),
            Self::CustomResourceDefinition => definition::prepare_update(new, part),
            _ => {}
        }
    }

    pub(super) fn validate(self, object: &Value) -> Vec<FieldError> {
        match self {
            Self::Pod => pod::validate(object),
            Self::Node => node::validate(object),
            Self::Secret => config::validate_secret(object),
            Self::ConfigMap => config::validate_config_map(object),
            Self::CoreEvent | Self::Event => event::validate(self, object),
            Self::CertificateSigningRequest => certificate::validate(object),
            Self::Lease => lease::validate(object),
            Self::PodDisruptionBudget => budget::validate(object),
            Self::Service => service::validate(object),
            Self::DaemonSet
            | Self::Deployment
            | Self::ReplicaSet
            | Self::StatefulSet
            | Self::Job => workload::validate(self, object),
            Self::CustomResourceDefinition => definition::validate(object),
            _ => Vec::new(),
        }
    }

    /// Whether an update is checked like a new object, besides what it changes.
    fn is_checked_whole(self, status: bool) -> bool {
        let by_itself = matches!(self, Self::Pod | Self::CoreEvent | Self::Event);
        let spec_only = matches!(
            self,
            Self::DaemonSet
                | Self::Deployment
                | Self::ReplicaSet
                | Self::StatefulSet
                | Self::Job
                | Self::CustomResourceDefinition
        );
        !(by_itself || spec_only && status)
    }

    pub(super) fn validate_update(
        self,
        new: &Value,
        old: &Value,
        part: Option<Subresource>,
    ) -> Vec<FieldError> {
        let status = part == Some(Subresource::Status);
        let mut errors =
            if self.is_checked_whole(status) { self.validate(new) } else { Vec::new() };
        errors.extend(match self {
            Self::Pod if status => pod::validate_status_update(new, old),
            Self::Pod => pod::validate_update(new, old),
            Self::Node => node::validate_update(new, old),
            Self::CertificateSigningRequest => certificate::validate_update(new, old, part),
            Self::Secret => config::validate_secret_update(new, old),
            Self::ConfigMap => config::validate_config_map_update(new, old),
            Self::DaemonSet | Self::Deployment | Self::ReplicaSet | Self::StatefulSet => {
                workload::validate_update(new, old)
            }
            Self::CustomResourceDefinition => definition::validate_update(new, old),
            Self::CoreEvent | Self::Event => event::validate_update(self, new, old),
            _ => Vec::new(),
        });
        errors
    }

    pub(super) fn field_labels(self, object: &Value, mut add: impl FnMut(&str, String)) {
        let mut texts = |names: &[&str]| {
            for name in names {
                let pointer = format!("/{}", name.replace('.', "/"));
                let value = object.pointer(&pointer).map_or_else(String::new, strategy::shown);
                add(name, value);
            }
        };
        match self {
            Self::Pod => {
                texts(pod::FIELD_LABELS);
                add("spec.hostNetwork", flag(object, "/spec/hostNetwork").to_string());
            }
            Self::Node => {
                let unschedulable = flag(object, "/spec/unschedulable");
                add("spec.unschedulable", unschedulable.to_string());
            }
            Self::Namespace => texts(&["status.phase", "name"]),
            Self::CertificateSigningRequest => texts(&["spec.signerName"]),
            Self::Secret => texts(&["type"]),
            Self::Service => texts(&["spec.clusterIP", "spec.type"]),
            Self::ReplicationController => texts(&["status.replicas"]),
            Self::Job => texts(&["status.successful"]),
            Self::ResourceSlice => texts(&["spec.nodeName", "spec.driver"]),
            Self::CoreEvent => {
                texts(event::CORE_FIELD_LABELS);
                add("source", event::source(object));
            }
            Self::Event => texts(event::FIELD_LABELS),
            _ => {}
        }
    }
}
