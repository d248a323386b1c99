//! A driver's side of the session.

pub(crate) mod limits;
