//! What names, label keys and label values must look like, in Kubernetes' words.

/// How the name of an object is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameRule {
    /// An RFC 1123 subdomain: dots allowed, at most 253 characters.
    Subdomain,
    /// An RFC 1123 label: no dots, at most 63 characters.
    Label,
    /// An RFC 1035 label: begins with a letter, at most 63 characters.
    Label1035,
    /// Any single segment of a path.
    PathSegment,
}

impl NameRule {
    /// The errors of `name`. With `prefix`, `name` is a `generateName`, to which more will be appended.
    pub(crate) fn problems(self, name: &str, prefix: bool) -> Vec<String> {
        let masked;
        let name = if prefix && name.len() > 1 && name.ends_with('-') {
            masked = format!("{}a", name.strip_suffix('-').unwrap_or(name));
            masked.as_str()
        } else {
            name
        };
        match self {
            Self::Subdomain => subdomain(name),
            Self::Label => label(name),
            Self::Label1035 => label_1035(name),
            Self::PathSegment => path_segment(name, prefix),
        }
    }
}

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const NAME_PART: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const CONFIG_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";

fn too_long(max: usize, unit: &str) -> String {
    format!("must be no more than {max} {unit}")
}

fn lower(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

fn is_label(name: &str) -> bool {
    let bytes = name.as_bytes();
    bytes.first().is_some_and(|b| lower(*b))
        && bytes.last().is_some_and(|b| lower(*b))
        && bytes.iter().all(|b| lower(*b) || *b == b'-')
}

/// What is wrong with a name of at most `max` characters (in its kind's terms) that fits a rule.
fn problems(name: &str, max: usize, unit: &str, fits: bool, rule: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if name.len() > max {
        problems.push(too_long(max, unit));
    }
    if !fits {
        problems.push(rule.to_owned());
    }
    problems
}

/// The errors of `name` as an RFC 1123 subdomain.
pub(crate) fn subdomain(name: &str) -> Vec<String> {
    problems(name, 253, "characters", name.split('.').all(is_label), SUBDOMAIN)
}

/// The errors of `name` as an RFC 1123 label.
pub(crate) fn label(name: &str) -> Vec<String> {
    problems(name, 63, "characters", is_label(name), LABEL)
}

/// The errors of `name` as an RFC 1035 label.
pub(crate) fn label_1035(name: &str) -> Vec<String> {
    let fits = is_label(name) && !name.starts_with(|c: char| c.is_ascii_digit());
    problems(name, 63, "characters", fits, LABEL_1035)
}

fn path_segment(name: &str, prefix: bool) -> Vec<String> {
    if !prefix && (name == "." || name == "..") {
        return vec![format!("may not be '{name}'")];
    }
    ["/", "%"]
        .iter()
        .filter(|bad| name.contains(*bad))
        .map(|bad| format!("may not contain '{bad}'"))
        .collect()
}

fn is_name_part(name: &str) -> bool {
    let bytes = name.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
}

/// What is wrong with `key` as a qualified name (`prefix/name`): a label or annotation key.
pub(crate) fn qualified(key: &str) -> Vec<String> {
    let parts: Vec<&str> = key.split('/').collect();
    let (prefix, name) = match parts.as_slice() {
        [name] => (None, *name),
        [prefix, name] => (Some(*prefix), *name),
        _ => {
            return vec![format!(
                "a valid label key {NAME_PART} with an optional DNS subdomain prefix and '/' \
                 (e.g. 'example.com/MyName')"
            )];
        }
    };
    let mut problems = Vec::new();
    if let Some(prefix) = prefix {
        if prefix.is_empty() {
            problems.push("prefix part must be non-empty".to_owned());
        } else {
            problems.extend(subdomain(prefix).iter().map(|text| format!("prefix part {text}")));
        }
    }
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        problems.push(format!("name part {}", too_long(63, "bytes")));
    }
    if !is_name_part(name) {
        problems.push(format!("name part {NAME_PART}"));
    }
    problems
}

/// The errors of `value` as the value of a label.
pub(crate) fn label_value(value: &str) -> Vec<String> {
    problems(value, 63, "bytes", value.is_empty() || is_name_part(value), LABEL_VALUE)
}

/// What is wrong with `key` as a key of a ConfigMap or a Secret.
pub(crate) fn config_key(key: &str) -> Vec<String> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    let fits = !key.is_empty() && key.bytes().all(allowed);
    let mut problems = problems(key, 253, "characters", fits, CONFIG_KEY);
    match key {
        "." => problems.push("must not be '.'".to_owned()),
        ".." => problems.push("must not be '..'".to_owned()),
        _ if key.starts_with("..") => problems.push("must not start with '..'".to_owned()),
        _ => {}
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_accepted_or_refused_by_its_rule() {
        let cases = [
            (NameRule::Subdomain, "a.b-c.1", true),
            (NameRule::Subdomain, "a..b", false),
            (NameRule::Subdomain, "-a", false),
            (NameRule::Subdomain, "A", false),
            (NameRule::Subdomain, "", false),
            (NameRule::Label, "a.b", false),
            (NameRule::Label, "1a", true),
            (NameRule::Label1035, "1a", false),
            (NameRule::PathSegment, "A b", true),
            (NameRule::PathSegment, "a%b", false),
            (NameRule::PathSegment, "..", false),
        ];
        for (rule, name, fine) in cases {
            assert_eq!(rule.problems(name, false).is_empty(), fine, "{rule:?} {name}");
        }
    }

    #[test]
    fn a_generate_name_may_end_in_a_dash() {
        assert!(NameRule::Label.problems("a-", true).is_empty());
        assert!(!NameRule::Label.problems("a-", false).is_empty());
    }

    #[test]
    fn an_empty_label_key_has_two_problems() {
        assert_eq!(qualified("").len(), 2);
        assert!(qualified("example.com/Name_1").is_empty());
        assert!(qualified("a/b/c").first().is_some_and(|t| t.starts_with("a valid label key")));
    }
}
