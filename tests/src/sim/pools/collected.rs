//! POOL-4: a group is deleted as an orphan only if its pool does not exist, and did not for the grace; and if two lists, a
//! grace apart, have shown the group.

use tokio::time::Instant;

use super::super::parts::ORPHAN_GRACE;
use super::rules::Rules;

impl Rules {
    /// A list of groups that began then shows the group of this pool.
    pub fn shown(&mut self, uid: &str, began: Instant) {
        self.looks.entry(uid.to_owned()).or_default().push((began, Instant::now()));
    }

    /// The group of this pool is deleted, and no pool has said so before. Returns the violation.
    pub fn collected(&self, uid: &str) -> Option<String> {
        if let Some(kept) = self.pools.get(uid) {
            let name = &kept.name;
            let Some(gone) = kept.gone else {
                return Some(format!(
                    "POOL-4: the group of {name} goes as an orphan, and {name} exists"
                ));
            };
            if gone.elapsed() < ORPHAN_GRACE {
                return Some(format!(
                    "POOL-4: the group of {name} goes {:?} after it",
                    gone.elapsed()
                ));
            }
        }
        let looks = self.looks.get(uid).map(Vec::as_slice).unwrap_or_default();
        let first = looks.iter().map(|(_, ended)| *ended).min();
        let again = |first| looks.iter().any(|(began, _)| *began >= first + ORPHAN_GRACE);
        let twice = first.is_some_and(again);
        (!twice)
            .then(|| format!("POOL-4: the group of pool {uid} goes after {} lists", looks.len()))
    }

    /// A user leaves the group of this pool behind, or it never had a pool.
    pub fn forsakes(&mut self, uid: &str) {
        self.forsaken.insert(uid.to_owned());
    }

    /// Whether nobody stands for what the group of this pool leaves behind.
    pub fn is_forsaken(&self, uid: &str) -> bool {
        self.forsaken.contains(uid)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_group_goes_as_an_orphan_after_two_looks_and_only_without_a_pool() {
        let mut rules = Rules::default();
        assert!(rules.collected("u").is_some(), "nobody looked");
        rules.shown("u", Instant::now());
        advance(ORPHAN_GRACE / 2).await;
        rules.shown("u", Instant::now());
        assert!(rules.collected("u").is_some(), "both within the grace");
        advance(ORPHAN_GRACE).await;
        rules.shown("u", Instant::now());
        assert_eq!(rules.collected("u"), None);
        let pool = serde_json::json!({
            "apiVersion": "ostler.dev/v1alpha1", "kind": "MachinePool",
            "metadata": { "name": "p", "uid": "u" }, "spec": { "template": {} },
        });
        rules.pool(&serde_json::from_value(pool).unwrap(), false);
        assert!(rules.collected("u").is_some(), "its pool is there");
        rules.gone("p");
        assert!(rules.collected("u").is_some(), "it was there a moment ago");
        advance(ORPHAN_GRACE + Duration::from_secs(1)).await;
        assert_eq!(rules.collected("u"), None);
    }
}
