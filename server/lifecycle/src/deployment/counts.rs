//! The numbers of sets for a rollout: numbers only, so that the rules can be tested alone.
//!
//! The sum over several sets may exceed the replicas of one set: sums are wider, and results are narrowed.

/// The numbers of a set. Machines are counted by the core itself in each pass; the status of the set may lag.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// `spec.replicas`.
    pub wanted: i32,
    /// The Machines of the set, including those being deleted.
    pub machines: i32,
    /// Machines that are not being deleted.
    pub living: i32,
    /// Available Machines that are not being deleted.
    pub available: i32,
    /// Unavailable Machines that the set deletes after an available one: preserved Machines, for example.
    pub kept: i32,
    /// Machines with a Node in an in-place update. The set deletes available Machines first.
    pub updating: i32,
    /// Machines that an autoscaler chose for deletion. They count as unavailable.
    pub marked: i32,
    /// Annotation `desired-replicas`: `spec.replicas` of the deployment when the set was scaled last.
    pub desired_mark: Option<i32>,
    /// Annotation `max-replicas`: the same with the surge.
    pub max_mark: Option<i32>,
}

impl Counts {
    /// Machines that may exist now or soon: the wanted ones, or more while some are being deleted.
    pub fn present(&self) -> i32 {
        self.wanted.max(self.machines)
    }

    /// How many of `wanted` Machines would be available now.
    pub fn available_of(&self, wanted: i32) -> i32 {
        self.available.min((wanted - self.kept - self.updating).max(0))
    }

    /// How many Machines can go before an available one does.
    fn unhealthy(&self) -> i32 {
        (self.wanted - self.available - self.kept - self.updating).max(0)
    }

    /// Whether the set wants machines.
    pub fn is_active(&self) -> bool {
        self.wanted > 0
    }
}

/// Clamps a difference of sums to the replicas of a set; the next pass handles the excess.
pub(super) fn narrow(of: i64) -> i32 {
    i32::try_from(of).unwrap_or(if of < 0 { -i32::MAX } else { i32::MAX })
}

/// A deployment in numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fleet {
    /// `spec.replicas` of the deployment.
    pub replicas: i32,
    /// How many Machines may exist above `replicas`.
    pub surge: i32,
    /// How many of `replicas` may be unavailable.
    pub unavailable: i32,
    /// The set with the current template; `None`: there is none yet.
    pub new: Option<Counts>,
    /// The others, oldest first.
    pub old: Vec<Counts>,
}

impl Fleet {
    /// Availability that a rollout must not go below.
    pub fn min_available(&self) -> i32 {
        (self.replicas - self.unavailable).max(0)
    }

    /// The numbers of the new set; all 0 if there is none.
    pub fn newest(&self) -> Counts {
        self.new.unwrap_or_default()
    }

    /// All sets, oldest first, and the new set last.
    pub(super) fn all(&self) -> impl DoubleEndedIterator<Item = &Counts> {
        self.old.iter().chain(&self.new)
    }

    /// How many Machines may exist.
    pub(super) fn ceiling(&self) -> i64 {
        i64::from(self.replicas) + i64::from(self.surge)
    }

    /// Machines that may exist now or soon.
    pub(super) fn present(&self) -> i64 {
        self.all().map(|set| i64::from(set.present())).sum()
    }

    /// The current wishes of every set.
    pub fn as_it_is(&self) -> SetSizes {
        SetSizes { new: self.newest().wanted, old: self.old.iter().map(|set| set.wanted).collect() }
    }

    /// Machines that would be available now if the sets wanted `targets`.
    pub fn available_with(&self, targets: &SetSizes) -> i32 {
        let old = self.old.iter().zip(&targets.old).map(|(set, wanted)| set.available_of(*wanted));
        old.fold(self.newest().available_of(targets.new), i32::saturating_add)
    }

    /// Lowers the old sets by `most` Machines at most: unavailable ones first, oldest set first, then available ones,
    /// of which `budget` may go.
    pub(super) fn shrink_old(&self, targets: &mut SetSizes, most: i32, budget: i32) {
        let (mut left, mut budget) = (most.max(0), budget.max(0));
        let mut of_each: Vec<_> = self.old.iter().zip(&mut targets.old).collect();
        for (set, wanted) in &mut of_each {
            let cut = left.min(set.unhealthy()).min(**wanted);
            **wanted -= cut;
            left -= cut;
        }
        for (set, wanted) in of_each {
            let available = set.available_of(*wanted);
            // Only preserved machines are left of a set whose available ones may all go.
            let cut = if available <= budget { *wanted } else { budget };
            let cut = left.min(cut);
            *wanted -= cut;
            left -= cut;
            budget -= cut.min(available);
        }
    }
}

/// The new replicas of every set of a [`Fleet`], in its order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SetSizes {
    /// The new set.
    pub new: i32,
    /// The others.
    pub old: Vec<i32>,
}

impl SetSizes {
    /// The sum.
    pub fn total(&self) -> i64 {
        self.old.iter().chain([&self.new]).copied().map(i64::from).sum()
    }
}
