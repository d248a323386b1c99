//! The Register stream.

mod drain;
mod frames;
mod hello;
mod load;
mod reconnect;
mod roles;

pub(super) use hello::harmless;

use crate::check::Check;

pub(super) fn checks() -> Vec<Check> {
    [hello::CHECKS, frames::CHECKS, load::CHECKS, reconnect::CHECKS, drain::CHECKS, roles::CHECKS]
        .concat()
}
