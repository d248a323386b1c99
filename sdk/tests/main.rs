//! A driver and a small core.

mod admission;
mod denied;
mod flow;
mod leaving;
mod session;
mod tiny_core;
