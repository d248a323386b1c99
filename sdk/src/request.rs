//! What the verbs are asked, and the answers that are more than an instance.

use std::collections::BTreeMap;
use std::fmt;

use ostler_proto::v1alpha1 as proto;
use serde::de::DeserializeOwned;

use crate::class::parse_spec;
use crate::context::Context;
use crate::error::{DriverError, Violation};
use crate::hot::{self, HotSpec};

/// Make an instance.
#[derive(Debug, Clone)]
pub struct CreateMachine {
    /// The operation.
    pub ctx: Context,
    /// The identity as tags, and maybe more: set these in the very call that makes the instance, and
    /// put them on one that is adopted.
    pub tags: BTreeMap<String, String>,
    /// The machine was here before (restored or migrated cluster): look it up by this id first, and adopt it (put the
    /// tags on it) if cluster and machine name match. Never make a second instance while this instance exists.
    pub provider_id: Option<String>,
    /// The format of the user data, e.g. `cloud-init`; may be empty.
    pub user_data_format: String,
    pub(crate) user_data: UserData,
}

impl CreateMachine {
    /// The user data, complete and ready to hand over. User data holds credentials: never log it.
    pub fn user_data(&self) -> &[u8] {
        self.user_data.as_bytes()
    }

    /// A request for tests of a verb.
    pub fn for_tests(ctx: Context, user_data: impl Into<Vec<u8>>) -> Self {
        let user_data = UserData::for_tests(user_data);
        Self {
            ctx,
            tags: BTreeMap::new(),
            provider_id: None,
            user_data_format: String::new(),
            user_data,
        }
    }
}

/// User data, complete and ready to hand over. User data holds credentials: `Debug` shows its size alone.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct UserData(pub(crate) Vec<u8>);

impl UserData {
    /// What the instance is to get, byte for byte; empty if the class has no user data. Never log it.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// User data for tests of a verb.
    pub fn for_tests(content: impl Into<Vec<u8>>) -> Self {
        Self(content.into())
    }
}

impl fmt::Debug for UserData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{} bytes>", self.0.len())
    }
}

/// Do what has to be done once after an instance was made.
#[derive(Debug, Clone)]
pub struct InitializeMachine {
    /// The operation.
    pub ctx: Context,
    /// Id of the instance.
    pub provider_id: String,
    /// As for its creation, for an infrastructure that hands it to the instance only now.
    pub user_data: UserData,
}

/// Bring a running instance to the class as it is now.
#[derive(Debug, Clone)]
pub struct UpdateMachine {
    /// The operation. Its class is the spec to reach.
    pub ctx: Context,
    /// Id of the instance.
    pub provider_id: String,
    /// The spec that was last reported as fully applied, or as an update in place of the Node left it. `None`: not known.
    /// Compare with the infrastructure itself in any case.
    pub last_applied_spec_json: Option<String>,
}

impl UpdateMachine {
    /// Returns the paths of `fixed` that stand in the way of the update: `fixed` are the paths in which the instance differs from
    /// `spec` and that cannot change while the instance runs. A path in which `spec` equals the last applied spec does not stand in
    /// the way: an update in place of the Node changed the instance there.
    pub fn in_the_way<T: HotSpec + DeserializeOwned>(
        &self,
        spec: &T,
        fixed: Vec<String>,
    ) -> Vec<String> {
        let last =
            self.last_applied_spec_json.as_deref().and_then(|text| parse_spec::<T>(text).ok());
        let Some(Ok(changed)) = last.map(|last| hot::fixed_changes(&last, spec)) else {
            return fixed;
        };
        let concerns = |path: &String| {
            changed
                .iter()
                .any(|one| one.starts_with(path.as_str()) || path.starts_with(one.as_str()))
        };
        fixed.into_iter().filter(concerns).collect()
    }
}

/// The result of an update.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Updated {
    /// Paths in the provider spec whose change was applied.
    pub applied_paths: Vec<String>,
}

/// Delete an instance.
#[derive(Debug, Clone)]
pub struct DeleteMachine {
    /// The operation.
    pub ctx: Context,
    /// Id of the instance. `None`: find it by identity.
    pub provider_id: Option<String>,
}

/// How a deletion ended. "Gone" and "not ours" must never look alike: the core forgets a machine for
/// the one and keeps it for the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deletion {
    /// The instance was there, and nothing of it is left.
    Deleted,
    /// There was nothing to delete.
    WasAbsent,
    /// There is an instance with other tags than this cluster's and machine's. It was not touched.
    NotOurs {
        /// Which one. Never empty.
        provider_id: String,
        /// The cluster id in its tags; empty if it has none.
        cluster_id: String,
    },
}

impl Deletion {
    pub(crate) fn into_response(self) -> proto::DeleteMachineResponse {
        let nothing = proto::DeleteMachineResponse::default;
        let (outcome, response) = match self {
            Self::Deleted => (proto::DeletionOutcome::Deleted, nothing()),
            Self::WasAbsent => (proto::DeletionOutcome::WasAbsent, nothing()),
            Self::NotOurs { provider_id, cluster_id } => {
                let cluster_id = crate::limits::cut_word(cluster_id);
                let outcome = proto::DeletionOutcome::NotOurs;
                (outcome, proto::DeleteMachineResponse { provider_id, cluster_id, ..nothing() })
            }
        };
        proto::DeleteMachineResponse { outcome: outcome.into(), ..response }
    }
}

/// Read an instance.
#[derive(Debug, Clone)]
pub struct GetMachineStatus {
    /// The operation.
    pub ctx: Context,
    /// Id of the instance. `None`: find it by identity.
    pub provider_id: Option<String>,
}

/// Read all instances of the cluster that the class can show.
#[derive(Debug, Clone)]
pub struct ListMachines {
    /// The operation. Its target is the class.
    pub ctx: Context,
}

/// Find the ids of volumes.
#[derive(Debug, Clone)]
pub struct GetVolumeIds {
    /// The operation.
    pub ctx: Context,
    /// Each a core/v1 `PersistentVolumeSpec` as JSON.
    pub pv_specs_json: Vec<String>,
}

/// Check a provider spec.
#[derive(Debug, Clone)]
pub struct ValidateClass {
    /// The operation.
    pub ctx: Context,
    /// The spec to check, JSON.
    pub provider_spec_json: String,
    /// Not `None`: say whether the change from it can be applied to a running instance.
    pub old_provider_spec_json: Option<String>,
}

impl ValidateClass {
    /// The spec to check; a field that does not fit is `INVALID_ARGUMENT` with its path.
    pub fn spec<T: DeserializeOwned>(&self) -> Result<T, DriverError> {
        parse_spec(&self.provider_spec_json)
    }

    /// The spec before the change.
    pub fn old_spec<T: DeserializeOwned>(&self) -> Result<Option<T>, DriverError> {
        self.old_provider_spec_json.as_deref().map(parse_spec).transpose()
    }

    /// The whole answer, by the marks of a [`HotSpec`](trait@HotSpec): a field that does not fit is a violation,
    /// and a change of what is not marked as hot stands in the way of a hot update.
    ///
    /// ```
    /// # use ostler_driver_sdk::{HotSpec, ValidateClass, testing::TestContext};
    /// #[derive(serde::Serialize, serde::Deserialize, HotSpec)]
    /// #[serde(deny_unknown_fields)]
    /// struct Spec {
    ///     size: u64,
    ///     #[ostler(hot)]
    ///     label: String,
    /// }
    /// # let request = ValidateClass {
    /// #     ctx: TestContext::new("c", "u").build(),
    /// #     provider_spec_json: r#"{"size": 2, "label": "b"}"#.to_owned(),
    /// #     old_provider_spec_json: Some(r#"{"size": 1, "label": "a"}"#.to_owned()),
    /// # };
    /// let review = request.review::<Spec>(|spec| Vec::new());
    /// assert_eq!(review.not_hot_updatable_paths, ["size"]);
    /// ```
    pub fn review<T: HotSpec + DeserializeOwned>(
        &self,
        check: impl FnOnce(&T) -> Vec<Violation>,
    ) -> ClassReview {
        let spec: T = match self.spec() {
            Ok(spec) => spec,
            Err(error) => {
                let violations = error.violations().to_vec();
                return ClassReview { violations, ..ClassReview::default() };
            }
        };
        // From a spec that cannot be read nothing was ever made.
        let old = self.old_spec::<T>().ok().flatten();
        let changes = old.map_or(Ok(Vec::new()), |old| hot::fixed_changes(&old, &spec));
        match (changes, hot::fixed_digest(&spec)) {
            (Ok(paths), Ok(digest)) => ClassReview {
                violations: check(&spec),
                change_is_hot_updatable: paths.is_empty(),
                not_hot_updatable_paths: paths,
                fixed_spec_sha256: digest,
                warnings: Vec::new(),
            },
            (Err(error), _) | (_, Err(error)) => {
                let violations = vec![Violation::new("", error.to_string())];
                ClassReview { violations, ..ClassReview::default() }
            }
        }
    }
}

/// A driver's review of a provider spec.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClassReview {
    /// The faults of the spec; empty if it is good.
    pub violations: Vec<Violation>,
    /// The change from the old spec can be applied to a running instance.
    pub change_is_hot_updatable: bool,
    /// Allowed, but worth a word.
    pub warnings: Vec<String>,
    /// Paths whose change stands in the way of a hot update.
    pub not_hot_updatable_paths: Vec<String>,
    /// Digest of what is fixed when an instance is made, lower-case hex: another one means that the
    /// instance has to be replaced. Tools make names of classes with it. Empty: the driver does not
    /// say.
    pub fixed_spec_sha256: String,
}

impl From<ClassReview> for proto::ValidateClassResponse {
    fn from(review: ClassReview) -> Self {
        Self {
            violations: review.violations.into_iter().map(Into::into).collect(),
            change_is_hot_updatable: review.change_is_hot_updatable,
            warnings: review.warnings,
            not_hot_updatable_paths: review.not_hot_updatable_paths,
            fixed_spec_sha256: review.fixed_spec_sha256,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::CreateMachine;
    use crate::testing::TestContext;

    #[tokio::test]
    async fn debug_of_a_request_shows_neither_user_data_nor_the_secret() {
        let ctx = TestContext::new("m", "u").secret([("password", "canary-7f3a")]).build();
        ctx.secret().await.unwrap();
        let shown = format!("{:?}", CreateMachine::for_tests(ctx, "canary-7f3a"));
        assert!(shown.contains("<11 bytes>") && !shown.contains("canary"), "{shown}");
        let as_numbers = format!("{:?}", b"canary");
        assert!(!shown.contains(as_numbers.trim_matches(['[', ']'])), "{shown}");
    }
}
