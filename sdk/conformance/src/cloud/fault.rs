//! What a cloud does to a driver that is not a clean answer.

use std::fmt;
use std::str::FromStr;

/// The outcome of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// It is refused with this status, and nothing is done.
    Refused(u16),
    /// The connection ends before anything is done.
    Reset,
    /// It is done, and the connection ends without an answer.
    Lost,
    /// It is done, and half of the answer comes.
    Half,
    /// It is done, and no answer comes for as long as the operation may take.
    Hang,
    /// Searches show for a while what was there before.
    Stale,
}

/// Faults of every cloud. `Stale` is for clouds whose lists lag.
pub(crate) const ALL: [Fault; 9] = [
    Fault::Lost,
    Fault::Refused(500),
    Fault::Refused(403),
    Fault::Refused(404),
    Fault::Refused(409),
    Fault::Refused(429),
    Fault::Reset,
    Fault::Half,
    Fault::Hang,
];

impl Fault {
    /// The infrastructure said nothing of the request itself: the next moment may be better.
    pub(crate) fn passes_soon(self) -> bool {
        !matches!(self, Self::Refused(403 | 404 | 409 | 429))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(status) => write!(f, "{status}"),
            Self::Reset => f.write_str("reset"),
            Self::Lost => f.write_str("lost"),
            Self::Half => f.write_str("half"),
            Self::Hang => f.write_str("hang"),
            Self::Stale => f.write_str("stale"),
        }
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let all = || ALL.into_iter().chain([Self::Stale]);
        all().find(|it| it.to_string() == word).ok_or_else(|| {
            let words: Vec<String> = all().map(|it| it.to_string()).collect();
            format!("{word:?} is no fault of a cloud: {}", words.join(", "))
        })
    }
}

/// A fault at a request of an operation, such as `create 2 lost`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// As in the name of its check.
    pub(crate) operation: String,
    /// Counted from 1.
    pub(crate) request: usize,
    pub(crate) fault: Fault,
}

impl Case {
    /// The name of its check.
    pub fn check(&self) -> String {
        let of = self.operation.strip_suffix("-by-id").unwrap_or(&self.operation);
        format!("faults/{}", of.strip_suffix("-deleted").unwrap_or(of))
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.operation, self.request, self.fault)
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let [operation, request, fault] = words.as_slice() else {
            return Err(format!("{text:?} is not like `create 2 lost`: operation, request, fault"));
        };
        let request = request.parse().ok().filter(|it| *it > 0);
        let request = request.ok_or_else(|| format!("{text:?}: requests are counted from 1"))?;
        Ok(Self { operation: (*operation).to_owned(), request, fault: fault.parse()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_read_as_it_is_written_and_another_text_says_why_not() {
        let case = |text: &str| text.parse::<Case>();
        for text in ["create 2 lost", "list 1 500", "delete 12 stale"] {
            assert_eq!(case(text).unwrap().to_string(), text);
        }
        for (text, check) in [
            ("create-deleted 2 lost", "faults/create"),
            ("delete-by-id 2 lost", "faults/delete"),
            ("pool-status-by-id 2 lost", "faults/pool-status"),
            ("pool-delete-machines 2 lost", "faults/pool-delete-machines"),
        ] {
            assert_eq!(case(text).unwrap().check(), check);
        }
        for text in ["create lost", "create 0 lost", "create 1 flood", ""] {
            assert!(case(text).is_err(), "{text}");
        }
    }
}
