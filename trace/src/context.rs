//! The ids of spans, which follow from objects and operations.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

/// A span: its trace and its own id, as the header `traceparent` of W3C Trace Context has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    pub(crate) trace: u128,
    pub(crate) span: u64,
}

impl TraceContext {
    /// A further span of the same trace.
    #[must_use]
    pub fn child(self) -> Self {
        Self { trace: self.trace, span: half(Uuid::new_v4()) }
    }

    /// The trace as 32 hexadecimal digits.
    pub fn trace_id(&self) -> String {
        format!("{:032x}", self.trace)
    }
}

/// The text of `traceparent`. Such a span is sampled: there is no `TraceContext` of a span that is not recorded.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-01", self.trace, self.span)
    }
}

/// The text is no `traceparent` of a span that is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotSampled;

impl FromStr for TraceContext {
    type Err = NotSampled;

    fn from_str(text: &str) -> Result<Self, NotSampled> {
        let mut parts = text.split('-');
        let mut next = |digits: usize| {
            let part = parts.next().filter(|it| it.len() == digits)?;
            let lower = |it: u8| it.is_ascii_digit() || (b'a'..=b'f').contains(&it);
            part.bytes().all(lower).then_some(part)
        };
        let mut read = || {
            let version = next(2).filter(|it| *it != "ff")?;
            let trace = u128::from_str_radix(next(32)?, 16).ok().filter(|it| *it != 0)?;
            let span = u64::from_str_radix(next(16)?, 16).ok().filter(|it| *it != 0)?;
            let flags = u8::from_str_radix(next(2)?, 16).ok()?;
            (flags & 1 == 1).then_some((version == "00", Self { trace, span }))
        };
        let (ends, context) = read().ok_or(NotSampled)?;
        // Later versions may have more parts.
        if ends && parts.next().is_some() { Err(NotSampled) } else { Ok(context) }
    }
}

/// The span of a machine's whole creation: its trace is the UID of the Machine, so that whoever sees the Machine knows the trace,
/// and a core that was restarted goes on with it.
pub fn of_creation(machine_uid: &str) -> TraceContext {
    let uid = id_of(machine_uid);
    TraceContext { trace: uid.as_u128(), span: half(uid) }
}

/// The span of an operation. `continues`: the trace of a creation, or the key of the intent, which all attempts of it share;
/// empty: the operation is a trace of its own.
pub fn of_operation(operation_id: &str, continues: &str) -> TraceContext {
    let id = id_of(operation_id);
    let trace = if continues.is_empty() { id } else { id_of(continues) };
    TraceContext { trace: trace.as_u128(), span: half(id) }
}

/// The text as a UUID, or a UUID that follows from it.
fn id_of(text: &str) -> Uuid {
    let given = Uuid::try_parse(text).ok().filter(|it| it.as_u64_pair().1 != 0);
    given.unwrap_or_else(|| Uuid::new_v5(&Uuid::NAMESPACE_OID, text.as_bytes()))
}

/// The second half of a UUID, which is random in all but two bits.
fn half(id: Uuid) -> u64 {
    id.as_u64_pair().1
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "8daf8f3b-5994-4415-b10a-48be2ef0ccf2";

    #[test]
    fn the_trace_of_a_creation_is_the_uid_and_every_attempt_is_in_it() {
        let creation = of_creation(UID);
        assert_eq!(creation.trace_id(), UID.replace('-', ""));
        let [first, again] = ["op-1", "op-2"].map(|id| of_operation(id, UID));
        assert_eq!([first.trace, again.trace], [creation.trace; 2]);
        assert!(first.span != again.span && first.span != creation.span);
        let retried = ["op-1", "op-2"].map(|id| of_operation(id, "uid:DeleteMachine").trace);
        assert_eq!(retried[0], retried[1], "attempts of one intent are one trace");
        assert_ne!(retried[0], creation.trace);
        assert_ne!(of_operation("op-1", "").trace, of_operation("op-2", "").trace);
    }

    #[test]
    fn a_traceparent_is_read_as_it_is_written_and_nothing_else_is() {
        let context = of_operation("op-1", UID);
        let text = context.to_string();
        assert_eq!(text.parse(), Ok(context));
        assert_eq!(text.replacen("00-", "01-", 1).parse(), Ok(context), "a later version");
        assert_eq!(format!("{}-more", text.replacen("00-", "01-", 1)).parse(), Ok(context));
        let zeros = format!("00-{}-{}-01", "0".repeat(32), "1".repeat(16));
        for bad in [
            "",
            "00",
            &text.replace("-01", "-00"),
            &text.to_uppercase(),
            &text.replacen("00-", "ff-", 1),
            &format!("{text}-more"),
            &text[..text.len() - 1],
            &zeros,
            "00-é",
        ] {
            assert_eq!(bad.parse::<TraceContext>(), Err(NotSampled), "{bad}");
        }
    }
}
