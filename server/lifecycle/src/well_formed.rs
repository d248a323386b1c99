//! The rules of an API server for keys and values of labels, annotations and taints, and for
//! capacity.

use ostler_quantity::Quantity;

/// Longest name of a key, and longest value of a label.
const NAME: usize = 63;
/// Longest prefix of a key, and longest name of a Node: a DNS name.
pub(crate) const PREFIX: usize = 253;

/// Whether this is a key: an optional DNS name and a slash, then a name.
pub(crate) fn key(text: &str) -> bool {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    prefix.is_none_or(dns_name) && !name.is_empty() && self::name(name)
}

/// Whether this is a value of a label or taint: empty, or a name.
pub(crate) fn label_value(text: &str) -> bool {
    text.is_empty() || name(text)
}

/// Whether this is an effect of a taint.
pub(crate) fn taint_effect(text: &str) -> bool {
    ["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&text)
}

/// Resources without a prefix that are counted in whole numbers.
const COUNTED: [&str; 9] = [
    "pods",
    "services",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

/// Whether a Node can have this much of a resource.
pub(crate) fn capacity(resource: &str, amount: &str) -> bool {
    const ONE: i128 = 1_000_000_000;
    let native = !resource.contains('/') || resource.contains("kubernetes.io/");
    let extended = !native && !resource.starts_with("requests.");
    let whole = extended || COUNTED.contains(&resource);
    let fits = |amount: i128| amount >= 0 && (!whole || amount % ONE == 0);
    key(resource) && Quantity::parse(amount).is_some_and(|amount| fits(amount.nanos()))
}

fn name(text: &str) -> bool {
    let inner = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let outer = |letter: char| letter.is_ascii_alphanumeric();
    text.len() <= NAME
        && text.starts_with(outer)
        && text.ends_with(outer)
        && text.chars().all(inner)
}

fn dns_name(text: &str) -> bool {
    let inner = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    let part = |part: &str| {
        part.starts_with(inner)
            && part.ends_with(inner)
            && part.chars().all(|letter| inner(letter) || letter == '-')
    };
    text.len() <= PREFIX && text.split('.').all(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_are_as_an_api_server_wants_them() {
        for good in ["a", "A.b-c_1", "example.com/role", "node-role.kubernetes.io/worker"] {
            assert!(key(good), "{good}");
        }
        let long = "x".repeat(64);
        for bad in ["", "/", "a/", "/a", "a b", "-a", "a/b/c", "Upper.Case/x", "a..b/c", &long] {
            assert!(!key(bad), "{bad}");
        }
        assert!(label_value("") && label_value("v1.2_3"));
        assert!(!label_value("no spaces") && !label_value("ends-") && !label_value(&long));
        assert!(taint_effect("NoExecute") && !taint_effect("noexecute"));
    }
}
