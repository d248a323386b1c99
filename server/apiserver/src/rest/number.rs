//! Numbers of bodies.

use serde_json::Number;

/// A number as it is stored: one without a fraction is an integer, however it was written, so that `1.0` of one client is
/// the `1` of another.
pub(super) fn number(value: f64) -> Option<Number> {
    /// Up to here each integer is a number of its own.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && value.abs() < EXACT {
        #[expect(clippy::cast_possible_truncation, reason = "it is whole, and small enough")]
        let whole = value as i64;
        return Some(whole.into());
    }
    Number::from_f64(value)
}
