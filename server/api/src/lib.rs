//! API types of Ostler: the kinds, their names and the closed enums that all parts share.
//!
//! No I/O here. Start at [`machine`] for the Machine and [`driver`] for what drivers answer.

pub mod driver;
