//! What a request to change the size of a group asks for, also when it comes a second time: pure, so that no driver has to
//! find the rules again.

use super::{DeletePoolMachines, PoolSize, UpdatePool};
use crate::error::DriverError;

/// The work of a [`DeletePoolMachines`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolDeletion {
    /// These instances are there and are to go.
    pub instances: Vec<String>,
    /// The call that deletes an instance has to lower the size of the group by one. Otherwise the group would replace
    /// the instance.
    pub lowers: bool,
    /// The size that the group has when all of them go.
    pub size: i32,
}

impl DeletePoolMachines {
    /// Plans the deletion. `desired`: the size of the group now. `is_there`: whether an instance is in the group and not
    /// on its way out already. Nothing to do is an empty list of instances, and a success.
    pub fn plan(
        &self,
        desired: i32,
        is_there: impl Fn(&str) -> bool,
    ) -> Result<PoolDeletion, DriverError> {
        let mut instances = Vec::new();
        for id in self.instances.iter().filter(|id| is_there(id)) {
            if !instances.contains(id) {
                instances.push(id.clone());
            }
        }
        let PoolSize { expected, wanted } = self.size;
        if instances.is_empty() {
            return Ok(PoolDeletion { instances, lowers: false, size: desired });
        }
        if wanted > expected || wanted < 0 {
            let message = format!("a size of {wanted} in place of {expected} is no deletion");
            return Err(DriverError::invalid_argument(message).not_applied());
        }
        let count = i32::try_from(instances.len()).unwrap_or(i32::MAX);
        if desired == wanted {
            // The group makes others, or an earlier attempt lowered it.
            Ok(PoolDeletion { instances, lowers: false, size: desired })
        } else if desired == expected && desired.saturating_sub(count) >= wanted {
            Ok(PoolDeletion { instances, lowers: true, size: desired.saturating_sub(count) })
        } else {
            Err(changed(desired))
        }
    }
}

impl UpdatePool {
    /// The size that the group is to have. `desired`: its size now. `live`: how many instances are there and not on their
    /// way out. A lower size never takes an instance.
    pub fn allow(&self, desired: i32, live: i32) -> Result<i32, DriverError> {
        let Some(PoolSize { expected, wanted }) = self.size else { return Ok(desired) };
        if wanted < 0 {
            let message = format!("a size of {wanted} is none");
            return Err(DriverError::invalid_argument(message).not_applied());
        }
        if desired == wanted {
            return Ok(wanted);
        }
        if desired == expected && (wanted > desired || wanted >= live) {
            return Ok(wanted);
        }
        Err(changed(desired))
    }
}

fn changed(desired: i32) -> DriverError {
    let message = format!("the size of the group is {desired}");
    DriverError::aborted(message).reason("SIZE_CHANGED").not_applied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;
    use crate::testing::TestContext;

    fn deletion(instances: &[&str], expected: i32, wanted: i32) -> DeletePoolMachines {
        DeletePoolMachines {
            ctx: TestContext::new("pool", "u").build(),
            provider_id: "group".to_owned(),
            instances: instances.iter().map(|id| (*id).to_owned()).collect(),
            size: PoolSize { expected, wanted },
        }
    }

    #[test]
    fn a_named_deletion_lowers_once_however_often_it_comes() {
        let there = ["a", "b"];
        // Asked for, sizes, size of the group now; what goes, whether it lowers, size then. `None`: ABORTED.
        for (asked, (expected, wanted), desired, then) in [
            (&["a"][..], (3, 2), 3, Some((&["a"][..], true, 2))),
            (&["a", "b"], (3, 1), 3, Some((&["a", "b"], true, 1))),
            (&["a"], (3, 3), 3, Some((&["a"], false, 3))),
            // The answer was lost, and the size is lower already: what is still there goes.
            (&["a"], (3, 2), 2, Some((&["a"], false, 2))),
            // It is gone: nothing is lowered, whatever the size became meanwhile.
            (&["gone"], (3, 2), 3, Some((&[], false, 3))),
            (&["gone"], (3, 2), 2, Some((&[], false, 2))),
            (&["gone"], (3, 2), 9, Some((&[], false, 9))),
            // One of two is gone by itself: the size falls by one, for the other.
            (&["a", "gone"], (3, 1), 3, Some((&["a"], true, 2))),
            (&["a", "a"], (3, 2), 3, Some((&["a"], true, 2))),
            // Another system changed the size.
            (&["a"], (3, 2), 4, None),
            (&["a"], (3, 2), 1, None),
            (&["a", "gone"], (3, 1), 2, None),
            // More would go than the size falls by.
            (&["a", "b"], (3, 2), 3, None),
        ] {
            let plan = deletion(asked, expected, wanted).plan(desired, |id| there.contains(&id));
            let shown = plan.as_ref().map(|plan| {
                let ids = plan.instances.iter().map(String::as_str).collect::<Vec<_>>();
                (ids, plan.lowers, plan.size)
            });
            match (then, shown) {
                (Some((ids, lowers, size)), Ok(shown)) => {
                    assert_eq!(shown, (ids.to_vec(), lowers, size), "{asked:?} at {desired}");
                }
                (None, Err(error)) => assert_eq!(error.code(), Code::Aborted, "{asked:?}"),
                (then, shown) => panic!("{asked:?} at {desired}: {shown:?}, not {then:?}"),
            }
        }
    }

    #[test]
    fn a_deletion_that_would_enlarge_the_group_is_none() {
        let error = deletion(&["a"], 2, 3).plan(2, |_| true).unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
    }

    #[test]
    fn a_size_is_set_against_the_one_that_was_seen_and_never_takes_an_instance() {
        for (expected, wanted, desired, live, then) in [
            (3, 5, 3, 3, Some(5)),
            (3, 5, 5, 3, Some(5)),
            (3, 5, 4, 3, None),
            // Two never came: none is taken.
            (5, 3, 5, 3, Some(3)),
            (5, 3, 5, 4, None),
            (5, 3, 3, 4, Some(3)),
        ] {
            let size = Some(PoolSize { expected, wanted });
            let update = UpdatePool {
                ctx: TestContext::new("pool", "u").build(),
                provider_id: "group".to_owned(),
                size,
                model: None,
            };
            let allowed = update.allow(desired, live);
            assert_eq!(allowed.as_ref().ok().copied(), then, "{size:?} at {desired}, {live} live");
        }
    }
}
