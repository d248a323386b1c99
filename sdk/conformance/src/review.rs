//! One question about a class, in a session that ends with the answer.

use std::sync::Arc;

use ostler_local::Keeper;
use ostler_proto::v1alpha1::OperationKind;

use crate::bench::Bench;
use crate::checks;
use crate::harness::Harness;
use crate::manifest::ClassManifest;
use crate::options::{Options, Target};
use crate::run::{RunError, first_hello, setup, unanswered};

/// What a driver says of a class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassReview {
    /// The provider that the driver serves.
    pub provider: String,
    /// What is wrong with the spec: paths, and why.
    pub violations: Vec<(String, String)>,
    /// Digest of what is fixed when an instance is made; `None`: the driver does not say.
    pub fixed_digest: Option<String>,
}

/// Asks the driver about a class. One without ValidateClass says nothing. `keeper` starts it.
pub async fn review(
    keeper: Keeper,
    target: Target,
    class: ClassManifest,
) -> Result<ClassReview, RunError> {
    let place = tempfile::tempdir()?;
    let options = Options { keeper, ..Options::new(class) };
    let setup = Arc::new(setup(place.path().join("token"), target, options)?);
    let harness = Arc::new(Harness::open(&setup).await?);
    let hello = first_hello(&harness).await?;
    let provider = hello.provider.clone();
    if !hello.operation_kinds.contains(&OperationKind::ValidateClass.into()) {
        return Ok(ClassReview { provider, violations: Vec::new(), fixed_digest: None });
    }
    let bench = Bench::new(Arc::clone(&harness));
    let answer =
        checks::review(&bench).await.map_err(|not_passed| unanswered(&harness, not_passed))?;
    let violations = answer.violations.into_iter().map(|one| (one.path, one.description));
    Ok(ClassReview {
        provider,
        violations: violations.collect(),
        fixed_digest: Some(answer.fixed_spec_sha256).filter(|digest| !digest.is_empty()),
    })
}
