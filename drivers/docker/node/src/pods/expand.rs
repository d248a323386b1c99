//! `$(NAME)` in commands, arguments and values, as Kubernetes expands it. Pure.

/// Replaces `$(NAME)` by its value; `$$` is a dollar sign, and a name without a value stays as it is.
pub(super) fn expand(text: &str, env: &[(String, String)]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        rest = if let Some(escaped) = after.strip_prefix('$') {
            out.push('$');
            escaped
        } else if let Some((name, tail)) =
            after.strip_prefix('(').and_then(|open| open.split_once(')'))
        {
            if let Some((_, value)) = env.iter().rev().find(|(key, _)| key == name) {
                out.push_str(value);
            } else {
                out.push_str("$(");
                out.push_str(name);
                out.push(')');
            }
            tail
        } else {
            out.push('$');
            after
        };
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_replaced_by_values_and_dollars_can_be_escaped() {
        let env = [("A", "1"), ("B", "two"), ("A", "3")];
        let env = env.map(|(key, value)| (key.to_owned(), value.to_owned()));
        for (text, expected) in [
            ("plain", "plain"),
            ("$(A)-$(B)", "3-two"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$3"),
            ("$(C)", "$(C)"),
            ("$A $( $", "$A $( $"),
            ("", ""),
        ] {
            assert_eq!(expand(text, &env), expected, "{text}");
        }
    }
}
