//! Order of resource versions.

/// A `metadata.resourceVersion`. All known servers count upwards, so two numbers can be compared; if either is not a
/// number, the order is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResourceVersion(Option<u64>);

impl ResourceVersion {
    /// Reads `metadata.resourceVersion`.
    pub fn of(resource_version: Option<&str>) -> Self {
        Self(resource_version.and_then(|text| text.parse().ok()))
    }

    /// Whether this is known to be older than `other`.
    pub fn is_older_than(self, other: Self) -> bool {
        matches!((self.0, other.0), (Some(mine), Some(theirs)) if mine < theirs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_compared_as_numbers_and_anything_else_is_never_older() {
        let older = |a, b| ResourceVersion::of(a).is_older_than(ResourceVersion::of(b));
        assert!(older(Some("9"), Some("10")));
        assert!(!older(Some("10"), Some("10")));
        assert!(!older(Some("x"), Some("10")));
        assert!(!older(None, Some("10")));
    }
}
