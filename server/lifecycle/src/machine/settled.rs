//! Paths settled by an update in place. The deployment notes the spec of the class when it hands the Machine over.
//! Fields that the driver cannot change on a running instance count as changed by that update; the driver is asked
//! about all others.

use ostler_api::names::annotation;
use serde_json::Value;

use super::pass::Pass;
use crate::{digest, hot_update};

/// The spec that the instance counts as having, in its canonical form.
pub(super) fn standing_spec(pass: &Pass<'_>) -> Option<String> {
    let settled = noted(pass, annotation::SETTLED_PROVIDER_SPEC);
    settled.or_else(|| noted(pass, annotation::LAST_APPLIED_PROVIDER_SPEC))
}

/// The same as it was written, for the driver.
pub(super) fn standing_text(pass: &Pass<'_>) -> String {
    let settled = pass.effects.patch.annotations.get(annotation::SETTLED_PROVIDER_SPEC);
    let text = settled.and_then(|text| text.as_deref());
    text.unwrap_or_else(|| hot_update::standing(pass.machine)).to_owned()
}

/// A spec in an annotation, in its canonical form.
fn noted(pass: &Pass<'_>, key: &str) -> Option<String> {
    match pass.effects.patch.annotations.get(key) {
        Some(written) => written.clone(),
        None => digest::canonical_text(pass.machine.annotation(key)?),
    }
}

/// Whether a refusal may concern changes of an update in place.
pub(super) fn may_settle(pass: &Pass<'_>) -> bool {
    noted(pass, annotation::IN_PLACE_PROVIDER_SPEC).is_some()
}

/// The driver refuses a change because of these paths, or does not say why. Returns what the update in place settles;
/// `None`: nothing, and no more settling.
pub(super) fn settle(pass: &mut Pass<'_>, fixed_paths: &[String]) -> Option<String> {
    let updated = noted(pass, annotation::IN_PLACE_PROVIDER_SPEC)?;
    let before = standing_spec(pass).unwrap_or_default();
    let settled = with_paths_of(&before, &updated, fixed_paths);
    let notes = &mut pass.effects.patch.annotations;
    if settled == before || settled == updated {
        notes.insert(annotation::IN_PLACE_PROVIDER_SPEC.to_owned(), None);
    }
    if settled == before {
        return None;
    }
    notes.insert(annotation::SETTLED_PROVIDER_SPEC.to_owned(), Some(settled));
    let what = if fixed_paths.is_empty() { "all".to_owned() } else { fixed_paths.join(", ") };
    Some(format!("the node was updated in place, which counts for {what}"))
}

/// The driver reported a spec as fully applied: nothing else counts any more.
pub(super) fn forget(pass: &mut Pass<'_>) {
    for key in [annotation::IN_PLACE_PROVIDER_SPEC, annotation::SETTLED_PROVIDER_SPEC] {
        if noted(pass, key).is_some() {
            pass.effects.patch.annotations.insert(key.to_owned(), None);
        }
    }
}

/// The spec with the values of these paths from the updated spec; the whole updated spec if a path is in neither, or
/// there is none.
fn with_paths_of(spec: &str, updated: &str, paths: &[String]) -> String {
    let read = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
    let (mut changed, from) = (read(spec), read(updated));
    let take = |path: &String| {
        let keys: Vec<_> = path.split(['.', '/', '[']).filter(|key| !key.is_empty()).collect();
        take_path(&mut changed, &from, &keys)
    };
    let found = paths.iter().map(take).fold(!paths.is_empty(), |all, one| all && one);
    if found { digest::canonical(&changed) } else { updated.to_owned() }
}

/// Takes the value of a path over, as deep as objects go. Returns whether there is one on either side.
fn take_path(onto: &mut Value, from: &Value, path: &[&str]) -> bool {
    let (Some((key, rest)), Value::Object(onto), Value::Object(from)) =
        (path.split_first(), onto, from)
    else {
        return false;
    };
    match (onto.get_mut(*key), from.get(*key)) {
        (Some(old @ Value::Object(_)), Some(new @ Value::Object(_))) if !rest.is_empty() => {
            take_path(old, new, rest)
        }
        (_, Some(new)) => {
            onto.insert((*key).to_owned(), new.clone());
            true
        }
        (old, None) => {
            let was_there = old.is_some();
            onto.remove(*key);
            was_there
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_driver_cannot_change_is_as_the_update_in_place_left_it_and_all_of_it_if_the_driver_is_not_clear()
     {
        let before = r#"{"disk":{"size":1,"type":"a"},"image":"2","old":1,"tags":{"k":"a"}}"#;
        let updated = r#"{"disk":{"size":2,"type":"b"},"image":"1","tags":{"k":"b"}}"#;
        let table: [(&[&str], &str); 6] = [
            (&["image"], r#"{"disk":{"size":1,"type":"a"},"image":"1","old":1,"tags":{"k":"a"}}"#),
            (
                &["/image", "disk.type", "old"],
                r#"{"disk":{"size":1,"type":"b"},"image":"1","tags":{"k":"a"}}"#,
            ),
            (
                &["image.name"],
                r#"{"disk":{"size":1,"type":"a"},"image":"1","old":1,"tags":{"k":"a"}}"#,
            ),
            (&["image", "subnet"], updated),
            (&["the image"], updated),
            (&[], updated),
        ];
        for (paths, expected) in table {
            let paths: Vec<_> = paths.iter().map(|path| (*path).to_owned()).collect();
            assert_eq!(with_paths_of(before, updated, &paths), expected, "{paths:?}");
        }
        assert_eq!(with_paths_of("", updated, &["image".to_owned()]), updated, "nothing is known");
    }
}
