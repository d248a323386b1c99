//! A hot update's needs besides its own Machine: an update slot of the class, and the driver's review of the class.

mod answers;
mod reviewer;
mod slots;
mod turns;

pub(crate) use answers::ReviewKey;
pub(crate) use reviewer::{Reviewer, driver_of};
pub(crate) use slots::UpdateSlots;
