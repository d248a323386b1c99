//! The value for an absent `spec.replicas` of a set or deployment. Clients in Go leave a 0 out when they write a whole
//! object, so an absent number is 0; but where an autoscaler keeps at least one Machine the client meant no number,
//! since the number is the autoscaler's.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use ostler_api::names::annotation::{AUTOSCALER_MIN, AUTOSCALER_MIN_OF_GROUP};

use crate::numbered;

/// The filled-in number, and the event before any consequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filled {
    /// The number.
    pub replicas: i32,
    /// Whether the filled-in number deletes Machines.
    pub warning: bool,
    /// For people.
    pub note: String,
}

/// The filled-in fields. `wanted`: the known former number; `there`: the number of existing Machines.
pub(crate) fn fill(metadata: &ObjectMeta, wanted: i32, there: usize) -> Filled {
    let annotations = metadata.annotations.as_ref();
    let least = |key: &'static str| {
        let least = annotations?.get(key)?.trim().parse::<i32>().ok()?;
        (least >= 1).then_some((key, least))
    };
    if let Some((key, least)) = least(AUTOSCALER_MIN_OF_GROUP).or_else(|| least(AUTOSCALER_MIN)) {
        let replicas = wanted.max(least);
        let note = format!(
            "spec.replicas is absent: {replicas} is filled in. It was {wanted}, and annotation {key} is {least}, so an \
             autoscaler keeps the number"
        );
        return Filled { replicas, warning: false, note };
    }
    let follows = match there {
        0 => "so no Machine is created".to_owned(),
        there => format!("so {} deleted", are(there)),
    };
    let note = format!(
        "spec.replicas is absent, which counts as 0, {follows}. Give a number; or annotation {AUTOSCALER_MIN} with 1 or more, \
         where an autoscaler keeps it"
    );
    Filled { replicas: 0, warning: there > 0, note }
}

fn are(there: usize) -> String {
    let be = if there == 1 { "is" } else { "are" };
    format!("{} {be}", numbered(there, "Machine"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(key: &str, value: &str, wanted: i32) -> (i32, bool) {
        let annotations = Some([(key.to_owned(), value.to_owned())].into());
        let metadata = ObjectMeta { annotations, ..ObjectMeta::default() };
        let filled = fill(&metadata, wanted, 3);
        (filled.replicas, filled.warning)
    }

    #[test]
    fn an_absent_number_is_0_unless_an_autoscaler_keeps_at_least_one_machine() {
        for key in [AUTOSCALER_MIN, AUTOSCALER_MIN_OF_GROUP] {
            for (value, wanted, expected) in [
                ("1", 3, (3, false)),
                ("1", 0, (1, false)),
                ("5", 3, (5, false)),
                ("0", 3, (0, true)),
                ("-1", 3, (0, true)),
                ("x", 3, (0, true)),
            ] {
                assert_eq!(filled(key, value, wanted), expected, "{key}={value} {wanted}");
            }
        }
        let none = fill(&ObjectMeta::default(), 0, 0);
        assert_eq!((none.replicas, none.warning), (0, false));
        assert!(none.note.contains("no Machine is created"), "{}", none.note);
        let one = fill(&ObjectMeta::default(), 1, 1);
        assert!(one.note.contains("1 Machine is deleted"), "{}", one.note);
    }
}
