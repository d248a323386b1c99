//! What a hot update needs beside its own Machine: an update slot of its class, and what the driver says of the class.

mod answers;
mod reviewer;
mod slots;

pub(crate) use reviewer::{ReviewKey, Reviewer, driver_of};
pub(crate) use slots::UpdateSlots;
