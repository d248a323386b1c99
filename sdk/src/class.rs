//! A machine class at one revision.

use std::collections::BTreeMap;

use ostler_proto::v1alpha1 as proto;
use serde::de::DeserializeOwned;

use crate::error::DriverError;

/// A machine class at one revision.
#[derive(Debug, Clone, PartialEq)]
pub struct Class {
    /// Namespace of the class.
    pub namespace: String,
    /// Name of the class.
    pub name: String,
    /// UID of the class: one that was made again under the same name has another.
    pub uid: String,
    /// Opaque; compare for equality only.
    pub revision: String,
    /// The name that drivers use for the provider of the class.
    pub provider: String,
    /// Exactly the bytes of the provider spec, JSON.
    pub provider_spec_json: String,
    /// Their digest, lower-case hex.
    pub provider_spec_sha256: String,
    /// Labels of the class.
    pub labels: BTreeMap<String, String>,
    /// The shape of the nodes, if the class gives one.
    pub shape: Option<Shape>,
    pub(crate) secret: Option<proto::ObjectRevision>,
}

/// The shape of a class's nodes (`MachineClass.nodeTemplate`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shape {
    /// Resource name to Kubernetes quantity.
    pub capacity: BTreeMap<String, String>,
    /// Instance type.
    pub instance_type: String,
    /// Region.
    pub region: String,
    /// Zone.
    pub zone: String,
    /// Architecture, as in `kubernetes.io/arch`.
    pub architecture: String,
}

impl Class {
    /// The provider spec; a field that does not fit is `INVALID_ARGUMENT` with its path.
    pub fn spec<T: DeserializeOwned>(&self) -> Result<T, DriverError> {
        parse_spec(&self.provider_spec_json)
    }

    /// Whether it names a secret, which [`Context::secret`](crate::Context::secret) then fetches.
    pub const fn has_secret(&self) -> bool {
        self.secret.is_some()
    }
}

impl From<proto::GetMachineClassResponse> for Class {
    fn from(class: proto::GetMachineClassResponse) -> Self {
        let reference = class.r#ref.unwrap_or_default();
        Self {
            namespace: reference.namespace,
            name: reference.name,
            uid: reference.uid,
            revision: reference.revision,
            provider: class.provider,
            provider_spec_json: class.provider_spec_json,
            provider_spec_sha256: class.provider_spec_sha256,
            labels: class.labels.into_iter().collect(),
            shape: class.shape.map(Into::into),
            secret: class.secret,
        }
    }
}

impl From<proto::MachineShape> for Shape {
    fn from(shape: proto::MachineShape) -> Self {
        Self {
            capacity: shape.capacity.into_iter().collect(),
            instance_type: shape.instance_type,
            region: shape.region,
            zone: shape.zone,
            architecture: shape.architecture,
        }
    }
}

/// Reads a provider spec. Nothing was changed when it fails: a driver reads its class first.
pub(crate) fn parse_spec<T: DeserializeOwned>(json: &str) -> Result<T, DriverError> {
    let mut reader = serde_json::Deserializer::from_str(json);
    let parsed = serde_path_to_error::deserialize(&mut reader);
    let checked = parsed.and_then(|spec| {
        let root = serde_path_to_error::Track::new().path();
        reader.end().map_err(|error| serde_path_to_error::Error::new(root, error)).map(|()| spec)
    });
    checked.map_err(|error| {
        let path = error.path().to_string();
        let inner = error.into_inner();
        DriverError::invalid_argument(format!("providerSpec.{path}: {inner}"))
            .reason("INVALID_PROVIDER_SPEC")
            .not_applied()
            .violation(path, inner.to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Certainty, Code};

    #[derive(Debug, PartialEq, serde::Deserialize)]
    struct Spec {
        volumes: Vec<Volume>,
    }
    #[derive(Debug, PartialEq, serde::Deserialize)]
    struct Volume {
        size: u64,
    }

    #[test]
    fn a_good_spec_is_read_exactly() {
        let spec: Spec = parse_spec(r#"{"volumes":[{"size":9007199254740993}]}"#).unwrap();
        assert_eq!(spec, Spec { volumes: vec![Volume { size: 9_007_199_254_740_993 }] });
    }

    #[test]
    fn a_wrong_field_is_named_by_its_path() {
        let error = parse_spec::<Spec>(r#"{"volumes":[{"size":1},{"size":"x"}]}"#).unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
        assert_eq!(error.certainty(), Certainty::NotApplied);
        assert_eq!(error.violations()[0].path, "volumes[1].size");
        assert!(error.message().contains("volumes[1].size"), "{error}");
    }

    #[test]
    fn text_after_the_spec_is_refused() {
        let error = parse_spec::<Spec>(r#"{"volumes":[]} x"#).unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
    }
}
