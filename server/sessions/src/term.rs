//! In whose name this core acts.

/// A term of leadership. Terms are compared within one order; a new order starts afresh.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Term {
    /// UID of the Lease.
    pub order: String,
    /// Its transitions; never decreases within one order.
    pub number: u64,
}
