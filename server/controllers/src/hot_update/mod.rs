//! What a hot update needs beside its own Machine: a place among those of its class that are
//! updated now, and what the driver says of the class.

mod answers;
mod reviewer;
mod rooms;

pub(crate) use reviewer::{ReviewKey, Reviewer, driver_of};
pub(crate) use rooms::AllRooms;
