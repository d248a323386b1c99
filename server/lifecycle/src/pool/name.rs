//! Names that follow from the name of a pool. The same function makes the label for writing and for listing.

use ostler_api::{
    MachinePool, ProviderId,
    names::{self, label},
};

use crate::{digest, operation::Target, well_formed};

/// Longest name of a Machine.
const LONGEST: usize = 63;

/// The value of the label for a pool, on its Machines and in its selector: the name, or the hash of a name that is no
/// valid value, in Cluster API's form.
pub fn label_value(pool: &str) -> String {
    if is_label_value(pool) {
        pool.to_owned()
    } else {
        format!("hash_{}_z", base64(digest::fnv(pool)))
    }
}

/// A pool as the target of operations.
pub fn target_of(pool: &MachinePool) -> Target {
    Target {
        kind: names::MACHINE_POOL.to_owned(),
        namespace: pool.metadata.namespace.clone().unwrap_or_default(),
        name: pool.name().to_owned(),
        uid: pool.uid().into(),
    }
}

/// The selector of the Machines of a pool, as text.
pub fn selector(pool: &str) -> String {
    format!("{}={}", label::POOL_NAME, label_value(pool))
}

pub(super) fn is_label_value(text: &str) -> bool {
    !text.is_empty() && well_formed::label_value(text)
}

/// Four bytes in the alphabet of URLs, without padding: six digits, the last of which has two bits.
fn base64(number: u32) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let bits = u64::from(number) << 4;
    let digit = |at: u32| {
        let index = usize::try_from((bits >> (30 - 6 * at)) & 63).unwrap_or_default();
        DIGITS.get(index).copied().map(char::from)
    };
    (0..6).filter_map(digit).collect()
}

/// The name of the Machine of an instance: that of the instance, as far as an object can have it, so that both are
/// found by one name. A name without the name of the pool and a `-` in front gets both.
pub fn machine_name(pool: &str, instance: &str, id: &ProviderId) -> String {
    let named = if instance.is_empty() { last_part(id) } else { instance };
    let lower = named.to_ascii_lowercase();
    let fits = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '.';
    let clean: String = lower.chars().map(|it| if fits(it) { it } else { '-' }).collect();
    let clean = clean.trim_matches(['-', '.']);
    let begins = clean.strip_prefix(pool).is_some_and(|rest| rest.starts_with('-'));
    let name = if begins { clean.to_owned() } else { format!("{pool}-{clean}") };
    if name.len() <= LONGEST && !name.ends_with('-') {
        return name;
    }
    told_apart(&name, id.as_str())
}

/// This name, cut as far as needed, told apart from others by a digest.
pub(super) fn told_apart(name: &str, by: &str) -> String {
    let suffix = digest::of_text(by);
    let room = LONGEST - suffix.len() - 1;
    let base: String = name.chars().take(room).collect();
    format!("{}-{suffix}", base.trim_end_matches(['-', '.']))
}

fn last_part(id: &ProviderId) -> &str {
    id.as_str().rsplit('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_a_label_value_stays_and_any_other_becomes_the_hash_of_cluster_api() {
        for (name, expected) in [
            ("pool", "pool"),
            ("a.b-c_d", "a.b-c_d"),
            // The results of Cluster API's MustFormatValue.
            ("", "hash_gRydxQ_z"),
        ] {
            assert_eq!(label_value(name), expected, "{name:?}");
        }
        let long = format!("{}.{}", "a".repeat(200), "b".repeat(52));
        assert_eq!(long.len(), 253);
        let value = label_value(&long);
        assert!(value.starts_with("hash_") && value.ends_with("_z") && value.len() == 13);
        assert!(is_label_value(&value), "{value}");
        assert_eq!(selector(&long), format!("cluster.x-k8s.io/pool-name={value}"));
    }

    #[test]
    fn base64_is_the_published_one() {
        assert_eq!(base64(0x0000_0000), "AAAAAA");
        assert_eq!(base64(0xffff_ffff), "_____w");
    }

    #[test]
    fn a_machine_has_the_name_of_its_instance_as_far_as_an_object_can_have_it() {
        for (pool, instance, id, expected) in [
            ("p", "p_000002", "x:///2", "p-000002"),
            ("p", "P_00A", "x:///2", "p-00a"),
            ("p", "17", "x:///17", "p-17"),
            ("p", "i-0abc", "aws:///z/i-0abc", "p-i-0abc"),
            ("p", "", "aws:///z/i-0abc", "p-i-0abc"),
            // Another pool is called 10.
            ("1", "10", "x:///10", "1-10"),
            ("10", "10", "x:///10", "10-10"),
        ] {
            assert_eq!(machine_name(pool, instance, &id.into()), expected);
        }
    }

    #[test]
    fn names_that_are_cut_stay_apart() {
        let pool = "a".repeat(253);
        let one = machine_name(&pool, "1", &"x:///1".into());
        let two = machine_name(&pool, "2", &"x:///2".into());
        assert!(one.len() <= 63 && two.len() <= 63 && one != two, "{one} {two}");
        assert_eq!(one, machine_name(&pool, "1", &"x:///1".into()));
    }
}
