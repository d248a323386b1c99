//! JSON merge patch (RFC 7386).

/// Objects are merged, `null` removes, anything else replaces. Calls itself once for each level of
/// the patch, which are bounded where it was read; what comes out is as deep as the deeper of the
/// two.
pub(crate) use json_patch::merge;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_merge_null_removes_and_arrays_are_replaced() {
        let cases = [
            (json!({"a": 1}), json!({"a": 2}), json!({"a": 2})),
            (json!({"a": 1}), json!({"b": 2}), json!({"a": 1, "b": 2})),
            (json!({"a": 1}), json!({"a": null}), json!({})),
            (json!({"a": [1, 2]}), json!({"a": [3]}), json!({"a": [3]})),
            (json!({"a": {"b": 1, "c": 2}}), json!({"a": {"b": null}}), json!({"a": {"c": 2}})),
            (json!({"a": 1}), json!({"a": {"b": null, "c": 1}}), json!({"a": {"c": 1}})),
        ];
        for (mut target, patch, result) in cases {
            merge(&mut target, &patch);
            assert_eq!(target, result, "{patch}");
        }
    }
}
