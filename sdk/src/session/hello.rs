//! The first frame of a session.

use std::time::SystemTime;

use ostler_proto::v1alpha1 as proto;
use proto::{DriverCapability, HeldOperation, Hello, Resume};

use crate::driver::{DriverInfo, ProviderIdComparison};
use crate::limits::MAX_FRAME_BYTES;

/// Capabilities of the session layer, for every driver.
const CAPABILITIES: [DriverCapability; 5] = [
    DriverCapability::Cancel,
    DriverCapability::Progress,
    DriverCapability::PagedLists,
    DriverCapability::ResultRetention,
    DriverCapability::AdoptsByIdentity,
];

/// This process.
#[derive(Debug, Clone)]
pub(crate) struct Instance {
    /// UUID, new for every start.
    pub(crate) id: String,
    /// For people.
    pub(crate) name: String,
}

/// Who dials in. `lost_session` is the session before, if there was one.
pub(crate) fn hello(
    info: &DriverInfo,
    instance: &Instance,
    lost_session: Option<&str>,
    held: Vec<HeldOperation>,
    now: SystemTime,
) -> Hello {
    let resume = lost_session
        .map(|session_id| Resume { session_id: session_id.to_owned(), operations: held });
    Hello {
        provider: info.provider.clone(),
        driver_name: info.name.clone(),
        driver_version: info.version.clone(),
        instance_id: instance.id.clone(),
        instance_name: instance.name.clone(),
        capabilities: CAPABILITIES
            .into_iter()
            .chain(info.capabilities.iter().copied())
            .map(Into::into)
            .collect(),
        operation_kinds: info.operation_kinds().into_iter().map(Into::into).collect(),
        max_in_flight: info.max_in_flight,
        max_frame_bytes: u32::try_from(MAX_FRAME_BYTES).unwrap_or(u32::MAX),
        resume,
        driver_time: Some(now.into()),
        list_lag: info.list_lag.and_then(|lag| lag.try_into().ok()),
        provider_id_comparison: comparison(info.provider_ids).into(),
    }
}

const fn comparison(by: ProviderIdComparison) -> proto::ProviderIdComparison {
    match by {
        ProviderIdComparison::Exact => proto::ProviderIdComparison::Exact,
        ProviderIdComparison::CaseInsensitive => proto::ProviderIdComparison::CaseInsensitive,
        ProviderIdComparison::LastSegment => proto::ProviderIdComparison::LastSegment,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_the_driver_knows_is_said_only_if_the_driver_says_it() {
        let said = |info: &DriverInfo| {
            let instance = Instance { id: String::new(), name: String::new() };
            hello(info, &instance, None, Vec::new(), SystemTime::UNIX_EPOCH).capabilities
        };
        let own = [DriverCapability::PreviousClusterIds, DriverCapability::IdentityByName];
        let info = DriverInfo::new("a");
        assert!(own.iter().all(|it| !said(&info).contains(&(*it).into())));
        let info = info.knows_previous_cluster_ids().identity_by_name();
        assert!(own.iter().all(|it| said(&info).contains(&(*it).into())));
    }
}
