//! The served namespaces.

use std::fmt;
use std::str::FromStr;

/// The namespaces whose machines, classes and secrets are served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Namespaces {
    /// The named namespaces, at least one. Each namespace is watched separately, so that rights in
    /// the namespaces are enough.
    These(Vec<String>),
    /// All namespaces with this prefix; every namespace for an empty prefix. The whole cluster is
    /// watched.
    Prefix(String),
}

impl Namespaces {
    /// One namespace.
    pub fn one(name: impl Into<String>) -> Self {
        Self::These(vec![name.into()])
    }

    /// Whether a namespace is served.
    pub fn contains(&self, namespace: &str) -> bool {
        match self {
            Self::These(names) => names.iter().any(|name| name == namespace),
            Self::Prefix(prefix) => namespace.starts_with(prefix.as_str()),
        }
    }

    /// The first named namespace.
    pub fn first(&self) -> Option<&str> {
        match self {
            Self::These(names) => names.first().map(String::as_str),
            Self::Prefix(_) => None,
        }
    }

    /// The watches: one for each namespace, or one for the whole cluster (`None`).
    pub fn parts(&self) -> Vec<Option<String>> {
        match self {
            Self::These(names) => names.iter().cloned().map(Some).collect(),
            Self::Prefix(_) => vec![None],
        }
    }
}

impl fmt::Display for Namespaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::These(names) => f.write_str(&names.join(",")),
            Self::Prefix(prefix) => write!(f, "{prefix}*"),
        }
    }
}

/// Names separated by commas, or a prefix with a star.
impl FromStr for Namespaces {
    type Err = NamespacesError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(prefix) = text.strip_suffix('*') {
            return well_formed(prefix, true).map(|prefix| Self::Prefix(prefix.to_owned()));
        }
        let mut names = Vec::new();
        for name in text.split(',') {
            let name = well_formed(name.trim(), false)?.to_owned();
            if !names.contains(&name) {
                names.push(name);
            }
        }
        Ok(Self::These(names))
    }
}

fn well_formed(name: &str, prefix: bool) -> Result<&str, NamespacesError> {
    let letters = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if letters && name.len() <= 63 && (prefix || !name.is_empty()) {
        return Ok(name);
    }
    Err(NamespacesError(name.to_owned()))
}

/// A text is not a valid list of namespaces.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a namespace name; give a name, a list such as a,b or a prefix such as shoot-*"
)]
pub struct NamespacesError(String);

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Namespaces {
        text.parse().unwrap()
    }

    #[test]
    fn a_name_a_list_and_a_prefix_are_distinguished_and_round_trip() {
        assert_eq!(of("default"), Namespaces::one("default"));
        assert_eq!(of("a, b,a"), Namespaces::These(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(of("shoot-*"), Namespaces::Prefix("shoot-".to_owned()));
        for text in ["default", "a,b", "shoot-*", "*"] {
            assert_eq!(of(text).to_string(), text);
        }
    }

    #[test]
    fn only_what_is_named_is_served() {
        assert!(of("a,b").contains("b") && !of("a,b").contains("ab"));
        assert!(of("shoot-*").contains("shoot-1") && !of("shoot-*").contains("garden"));
        assert!(of("*").contains("anything"));
        assert_eq!((of("a,b").first(), of("a*").first()), (Some("a"), None));
    }

    #[test]
    fn what_can_be_no_namespace_is_refused_with_a_hint() {
        for text in ["", "a,,b", "A", "a*b", "a*,b"] {
            let error = text.parse::<Namespaces>().unwrap_err().to_string();
            assert!(error.contains("shoot-*"), "{error}");
        }
    }
}
