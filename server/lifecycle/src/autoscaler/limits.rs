//! How few and how many Machines an autoscaler may ask for: two annotations.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use ostler_api::names::annotation::{
    AUTOSCALER_MAX, AUTOSCALER_MAX_OF_GROUP, AUTOSCALER_MIN, AUTOSCALER_MIN_OF_GROUP,
};

/// The least and the most that an autoscaler may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The least.
    pub min: i32,
    /// The most.
    pub max: i32,
}

/// The limits of an object; `None`: autoscalers leave it alone. Limits in the API group of the machine kinds win over
/// Cluster API's.
///
/// # Errors
/// An annotation says nothing that can be followed: why, for people.
pub fn limits(metadata: &ObjectMeta) -> Result<Option<Limits>, String> {
    let has = |key: &str| metadata.annotations.as_ref().is_some_and(|all| all.contains_key(key));
    let own = (AUTOSCALER_MIN_OF_GROUP, AUTOSCALER_MAX_OF_GROUP);
    let is_own = has(own.0) || has(own.1);
    let (min_key, max_key) = if is_own { own } else { (AUTOSCALER_MIN, AUTOSCALER_MAX) };
    let (min, max) = (number(metadata, min_key)?, number(metadata, max_key)?);
    match (min, max) {
        (Some(min), Some(max)) if max < min => Err(format!(
            "annotation {max_key} is {max}, which is less than {min}, as {min_key} says{OF_ALL}"
        )),
        (Some(min), Some(max)) => Ok((max > 0).then_some(Limits { min, max })),
        // A minimum alone is the default of an absent `spec.replicas`. Cluster API's provider reads a minimum alone, in
        // the API group of these kinds, as a maximum of 0.
        (Some(1..), None) if is_own => Err(format!("annotation {max_key} is missing{OF_ALL}")),
        (_, _) => Ok(None),
    }
}

/// The consequence for the other groups.
const OF_ALL: &str = "; cluster-autoscaler with provider clusterapi scales no group of this cluster until it is changed";

fn number(metadata: &ObjectMeta, key: &str) -> Result<Option<i32>, String> {
    let Some(text) = metadata.annotations.as_ref().and_then(|all| all.get(key)) else {
        return Ok(None);
    };
    let number = text.parse::<i32>().ok().filter(|number| *number >= 0);
    let wrong = || format!("annotation {key} is \"{text}\", and no number of 0 or more{OF_ALL}");
    number.map(Some).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(given: &[(&str, &str)]) -> Result<Option<Limits>, String> {
        let given = given.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        limits(&ObjectMeta { annotations: Some(given.collect()), ..ObjectMeta::default() })
    }

    #[test]
    fn both_numbers_make_a_group_and_those_of_the_own_api_group_win() {
        let both = |min, max| Ok(Some(Limits { min, max }));
        assert_eq!(of(&[(AUTOSCALER_MIN, "0"), (AUTOSCALER_MAX, "3")]), both(0, 3));
        let all = [
            (AUTOSCALER_MIN, "0"),
            (AUTOSCALER_MAX, "3"),
            (AUTOSCALER_MIN_OF_GROUP, "1"),
            (AUTOSCALER_MAX_OF_GROUP, "2"),
        ];
        assert_eq!(of(&all), both(1, 2));
    }

    #[test]
    fn one_number_alone_or_a_maximum_of_0_makes_no_group() {
        for given in [
            &[][..],
            &[(AUTOSCALER_MIN, "1")],
            &[(AUTOSCALER_MAX, "1")],
            &[(AUTOSCALER_MAX_OF_GROUP, "1")],
            &[(AUTOSCALER_MIN, "0"), (AUTOSCALER_MAX, "0")],
        ] {
            assert_eq!(of(given), Ok(None), "{given:?}");
        }
    }

    #[test]
    fn what_would_stop_an_autoscaler_for_every_group_is_named_with_its_value() {
        for (given, part) in [
            (&[(AUTOSCALER_MIN, "x")][..], "\"x\""),
            (&[(AUTOSCALER_MAX_OF_GROUP, " 3")], "\" 3\""),
            (&[(AUTOSCALER_MIN, "-1"), (AUTOSCALER_MAX, "3")], "\"-1\""),
            (&[(AUTOSCALER_MIN, "4"), (AUTOSCALER_MAX, "3")], "less than 4"),
            (&[(AUTOSCALER_MIN_OF_GROUP, "1")], AUTOSCALER_MAX_OF_GROUP),
        ] {
            let why = of(given).unwrap_err();
            assert!(why.contains(part), "{given:?}: {why}");
        }
    }
}
