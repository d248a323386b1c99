//! The groups to read, and the drivers' answers about groups without a pool, for which Machines wait.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::queue::{Priority, Queue};
use crate::watch::ObjectName;

/// For so long the Machines of a pool share an answer: each asks again after a minute.
const SHARED: Duration = Duration::from_secs(30);
/// When knowledge is forgotten: no Machine of the pool asks any more.
const KEPT: Duration = Duration::from_mins(5);

/// A group that is read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum GroupKey {
    /// The group of a pool.
    Of(ObjectName),
    /// The group of a deleted pool.
    Left(LeftGroup),
}

impl fmt::Display for GroupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Of(pool) => pool.fmt(f),
            Self::Left(group) => group.fmt(f),
        }
    }
}

/// The group of a deleted pool, and the class whose driver, spec and secret find the group: the Machines may name
/// different classes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct LeftGroup {
    pub(crate) pool: ObjectName,
    /// UID of the pool.
    pub(crate) uid: String,
    pub(crate) class: ObjectName,
}

impl fmt::Display for LeftGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of class {}", self.pool, self.class)
    }
}

/// Cheap to clone; every clone is the same. Bounded by what Machines asked for lately.
#[derive(Debug, Clone)]
pub(crate) struct LeftGroups {
    queue: Arc<Queue<GroupKey>>,
    /// When each was looked for, and how often in a row there was none.
    looks: Arc<Mutex<HashMap<LeftGroup, (Instant, u32)>>>,
}

impl LeftGroups {
    pub(crate) fn new(queue: &Arc<Queue<GroupKey>>) -> Self {
        Self { queue: Arc::clone(queue), looks: Arc::default() }
    }

    /// Asks for a look at the group.
    pub(crate) fn ask(&self, group: LeftGroup) {
        self.queue.add(GroupKey::Left(group), Priority::Change);
    }

    /// How often in a row there was none.
    pub(crate) fn missed(&self, group: &LeftGroup) -> u32 {
        self.looks.lock().get(group).map_or(0, |(_, missed)| *missed)
    }

    /// Whether it was looked for just now. Looks are as far apart as answers are shared.
    pub(crate) fn is_known(&self, group: &LeftGroup) -> bool {
        self.looks.lock().get(group).is_some_and(|(at, _)| at.elapsed() < SHARED)
    }

    /// Records whether the group exists, if known.
    pub(crate) fn learn(&self, group: &LeftGroup, is_there: Option<bool>) {
        let mut looks = self.looks.lock();
        looks.retain(|_, (at, _)| at.elapsed() < KEPT);
        let (at, missed) = looks.entry(group.clone()).or_insert_with(|| (Instant::now(), 0));
        *at = Instant::now();
        *missed = match is_there {
            Some(true) => 0,
            Some(false) => missed.saturating_add(1),
            None => *missed,
        };
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::bench::Bench;

    fn of(class: &str) -> LeftGroup {
        let name = |name: &str| ObjectName::new("default", name);
        LeftGroup { pool: name("p"), uid: "pool".to_owned(), class: name(class) }
    }

    #[tokio::test(start_paused = true)]
    async fn the_machines_of_a_pool_and_class_share_a_look() {
        let groups = LeftGroups::new(&Bench::queue());
        assert!(!groups.is_known(&of("a")));
        // The driver does not answer.
        groups.learn(&of("a"), None);
        assert!(groups.is_known(&of("a")));
        assert!(!groups.is_known(&of("b")), "another class may have another driver");
        advance(SHARED).await;
        assert!(!groups.is_known(&of("a")));
    }

    #[tokio::test(start_paused = true)]
    async fn looks_that_find_no_group_count_in_a_row_and_are_forgotten() {
        let groups = LeftGroups::new(&Bench::queue());
        let look = |is_there| {
            groups.learn(&of("a"), is_there);
            groups.missed(&of("a"))
        };
        assert_eq!(look(Some(false)), 1);
        assert_eq!(look(Some(true)), 0);
        assert_eq!(look(Some(false)), 1);
        assert_eq!(look(None), 1, "nothing was seen");
        assert_eq!(look(Some(false)), 2);
        advance(KEPT).await;
        assert_eq!(look(Some(false)), 1, "forgotten");
    }
}
