//! The required content of a Hello.

use ostler_api::{ProviderIdComparison, ProviderName};
use std::collections::BTreeSet;
use std::time::Duration;

use ostler_api::driver::OperationKind;
use ostler_proto::v1alpha1::{self as proto, DriverCapability, HeldOperation, Hello};

use super::Close;
use super::frames::FRAME_BYTES;

/// The verbs that every driver has.
const REQUIRED: [OperationKind; 3] =
    [OperationKind::CreateMachine, OperationKind::DeleteMachine, OperationKind::ListMachines];
const POOLS: [OperationKind; 5] = [
    OperationKind::CreatePool,
    OperationKind::UpdatePool,
    OperationKind::DeletePool,
    OperationKind::GetPoolStatus,
    OperationKind::ListPools,
];

/// Longest name or id, in bytes.
const NAME_BYTES: usize = 256;

/// A Hello that was checked.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Introduction {
    pub(crate) provider: ProviderName,
    /// Name and version of the driver, for people.
    pub(crate) driver: String,
    /// For people.
    pub(crate) name: String,
    /// For people.
    pub(crate) version: String,
    pub(crate) instance_id: String,
    /// The driver's pod or host; may be empty.
    pub(crate) instance_name: String,
    pub(crate) kinds: BTreeSet<OperationKind>,
    /// At least 1.
    pub(crate) max_in_flight: u32,
    pub(crate) max_frame_bytes: u32,
    /// Numbers of the session layer's capabilities.
    pub(crate) capabilities: Vec<i32>,
    /// Whether results are kept until acknowledged, over a loss of the stream.
    pub(crate) retains: bool,
    /// Whether it says how far operations are.
    pub(crate) progresses: bool,
    /// For how long the infrastructure may not show a new instance, if given.
    pub(crate) list_lag: Option<Duration>,
    /// The comparison of Nodes' provider ids with the driver's.
    pub(crate) provider_ids: ProviderIdComparison,
    /// The lost session, if any. Empty: another process had the session, and this process took over the running
    /// operations.
    pub(crate) lost: Option<String>,
    /// Everything the driver accepted that was not acknowledged.
    pub(crate) held: Vec<HeldOperation>,
}

impl Introduction {
    /// Whether the session layer has the capability.
    pub(crate) fn has(&self, capability: DriverCapability) -> bool {
        self.capabilities.contains(&capability.into())
    }
}

/// Checks a Hello. `held` is how many operations it may list.
pub(crate) fn check(hello: Hello, held: usize) -> Result<Introduction, Close> {
    if !is_provider_name(&hello.provider) {
        let message = format!(
            "provider must be a DNS subdomain of at most 63 characters, is {:?}",
            shortened(&hello.provider)
        );
        return Err(Close::violation("BAD_PROVIDER", message));
    }
    if uuid::Uuid::try_parse(&hello.instance_id).is_err() {
        let message = "instance_id must be a UUID, new for every start of the process";
        return Err(Close::violation("BAD_INSTANCE_ID", message));
    }
    if hello.max_in_flight == 0 {
        return Err(Close::violation("BAD_CREDIT", "max_in_flight must be at least 1"));
    }
    let kinds = kinds(&hello.operation_kinds)?;
    let offers = |capability: DriverCapability| hello.capabilities.contains(&capability.into());
    let retains = offers(DriverCapability::ResultRetention);
    let progresses = offers(DriverCapability::Progress);
    let provider_ids = comparison(hello.provider_id_comparison());
    let (lost, operations) =
        hello.resume.map(|it| (shortened(&it.session_id), it.operations)).unzip();
    let operations = operations.unwrap_or_default();
    check_held(&operations, held)?;
    Ok(Introduction {
        provider_ids,
        provider: hello.provider.into(),
        name: shortened(&hello.driver_name),
        version: shortened(&hello.driver_version),
        // So many there will never be, and they are shown.
        capabilities: hello.capabilities.into_iter().take(NAME_BYTES).collect(),
        driver: shortened(format!("{} {}", hello.driver_name, hello.driver_version).trim()),
        instance_id: hello.instance_id,
        instance_name: shortened(&hello.instance_name),
        kinds,
        max_in_flight: hello.max_in_flight,
        max_frame_bytes: match hello.max_frame_bytes {
            0 => FRAME_BYTES,
            theirs => theirs.min(FRAME_BYTES),
        },
        retains,
        progresses,
        // A negative lag counts as absent.
        list_lag: hello.list_lag.and_then(|lag| Duration::try_from(lag).ok()),
        lost,
        held: operations,
    })
}

/// An unknown value of a later contract counts as the strictest.
const fn comparison(said: proto::ProviderIdComparison) -> ProviderIdComparison {
    match said {
        proto::ProviderIdComparison::Unspecified | proto::ProviderIdComparison::Exact => {
            ProviderIdComparison::Exact
        }
        proto::ProviderIdComparison::CaseInsensitive => ProviderIdComparison::CaseInsensitive,
        proto::ProviderIdComparison::LastSegment => ProviderIdComparison::LastSegment,
    }
}

/// Kinds of a later version of the contract are left out.
fn kinds(numbers: &[i32]) -> Result<BTreeSet<OperationKind>, Close> {
    let kinds: BTreeSet<_> =
        numbers.iter().filter_map(|number| OperationKind::from_number(*number)).collect();
    // A driver with one pool verb needs all of [`POOLS`]; the other pool verbs are optional.
    let of_pools = POOLS.iter().filter(|_| kinds.iter().any(|kind| kind.is_of_pools()));
    let missing = REQUIRED.iter().chain(of_pools).filter(|kind| !kinds.contains(kind));
    let missing: Vec<_> = missing.map(|kind| kind.name()).collect();
    if missing.is_empty() {
        return Ok(kinds);
    }
    let message = format!("operation_kinds lacks {}", missing.join(", "));
    Err(Close::violation("MISSING_KINDS", message))
}

fn check_held(held: &[HeldOperation], limit: usize) -> Result<(), Close> {
    if held.len() > limit {
        let message = format!("resume lists {} operations, the limit is {limit}", held.len());
        return Err(Close::violation("TOO_MANY_HELD", message));
    }
    let mut seen = BTreeSet::new();
    for operation in held {
        let id = operation.operation_id.as_str();
        if id.is_empty() || id.len() > NAME_BYTES || !seen.insert(id) {
            let message = format!("resume lists operation {:?} twice or badly", shortened(id));
            return Err(Close::violation("BAD_HELD", message));
        }
    }
    Ok(())
}

fn is_provider_name(name: &str) -> bool {
    let label = |label: &str| {
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        !label.is_empty()
            && label.chars().all(inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= 63 && name.split('.').all(label)
}

pub(crate) fn shortened(text: &str) -> String {
    text.chars().take(NAME_BYTES / 4).collect()
}

#[cfg(test)]
mod tests {
    use ostler_proto::v1alpha1::Resume;

    use super::*;

    fn good() -> Hello {
        Hello {
            provider: "fake.ostler.dev".into(),
            instance_id: "0e9f4a86-2d2b-4a54-9d1c-7d3d1a5e6f70".into(),
            operation_kinds: REQUIRED.iter().map(|kind| kind.number()).collect(),
            max_in_flight: 4,
            ..Default::default()
        }
    }

    fn held(ids: &[&str]) -> Hello {
        let operations = ids
            .iter()
            .map(|id| HeldOperation { operation_id: (*id).into(), ..Default::default() })
            .collect();
        Hello { resume: Some(Resume { operations, ..Default::default() }), ..good() }
    }

    #[test]
    fn a_minimal_hello_is_enough() {
        let introduction = check(good(), 10).unwrap();
        assert_eq!(introduction.max_frame_bytes, FRAME_BYTES);
        assert_eq!(introduction.kinds.len(), 3);
        assert!(!introduction.retains && introduction.held.is_empty());
    }

    #[test]
    fn each_fault_has_its_own_reason() {
        let name = "a".repeat(64);
        let cases = [
            (Hello { provider: String::new(), ..good() }, "BAD_PROVIDER"),
            (Hello { provider: "Fake.dev".into(), ..good() }, "BAD_PROVIDER"),
            (Hello { provider: "fake..dev".into(), ..good() }, "BAD_PROVIDER"),
            (Hello { provider: "-fake".into(), ..good() }, "BAD_PROVIDER"),
            (Hello { provider: name, ..good() }, "BAD_PROVIDER"),
            (Hello { instance_id: "one".into(), ..good() }, "BAD_INSTANCE_ID"),
            (Hello { max_in_flight: 0, ..good() }, "BAD_CREDIT"),
            (Hello { operation_kinds: vec![20, 23, 24], ..good() }, "MISSING_KINDS"),
            (Hello { operation_kinds: vec![20, 24, 25], ..good() }, "MISSING_KINDS"),
            (
                Hello { operation_kinds: vec![20, 23, 25, 30, 31, 32, 33], ..good() },
                "MISSING_KINDS",
            ),
            (Hello { operation_kinds: vec![20, 23, 25, 35], ..good() }, "MISSING_KINDS"),
            (held(&["a", "a"]), "BAD_HELD"),
            (held(&[""]), "BAD_HELD"),
            (held(&["a", "b", "c"]), "TOO_MANY_HELD"),
        ];
        for (hello, reason) in cases {
            assert_eq!(check(hello, 2).unwrap_err().reason, reason);
        }
    }

    /// By whom an operation is needed, by the table at the top of the contract.
    fn needed(kind: OperationKind) -> &'static str {
        let contract = include_str!("../../../../proto/ostler/driver/v1alpha1/operation.proto");
        let row = contract.lines().find_map(|line| {
            line.strip_prefix("// | ")?.strip_prefix(kind.name())?.strip_prefix(" | ")
        });
        row.unwrap().split(" | ").next().unwrap()
    }

    #[test]
    fn the_contract_needs_the_operations_that_a_hello_must_have() {
        for kind in OperationKind::ALL {
            assert_eq!(REQUIRED.contains(&kind), needed(kind) == "yes", "{kind}");
            assert_eq!(POOLS.contains(&kind), needed(kind) == "for groups", "{kind}");
        }
        let text = include_str!("../../../../proto/ostler/driver/v1alpha1/session.proto");
        assert!(text.contains("Must contain CREATE_MACHINE, DELETE_MACHINE and LIST_MACHINES."));
    }

    #[test]
    fn kinds_of_a_later_version_are_left_out() {
        let mut hello = good();
        hello.operation_kinds.extend([50, 99, 0]);
        assert_eq!(check(hello, 10).unwrap().kinds.len(), 3);
    }
}
