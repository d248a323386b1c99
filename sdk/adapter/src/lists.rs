//! Lists, which a driver may answer in as many parts as it likes.

use std::sync::atomic::{AtomicUsize, Ordering};

use ostler_proto::Weight;
use ostler_proto::v1alpha1 as proto;
use proto::machine_driver_service_client::MachineDriverServiceClient;
use proto::operation_result::Response;
use tonic::Status;

use crate::channel::Channel;

/// A list of more is refused: the core takes no more either.
const MOST_RECORDS: usize = 100_000;
/// What one list may take in memory, and all that are collected at the same time.
const LIST_BYTES: usize = 64 << 20;
const LISTS_BYTES: usize = 256 << 20;

/// The size of all lists that this process is collecting.
static COLLECTED: AtomicUsize = AtomicUsize::new(0);

type Calls = MachineDriverServiceClient<Channel>;
type Context = Option<Box<proto::OperationContext>>;

/// The size of one list while the adapter collects it.
#[derive(Debug, Default)]
struct Taken {
    records: usize,
    bytes: usize,
}

impl Taken {
    /// Counts a part before it is kept.
    fn add(&mut self, part: &[impl Weight]) -> Result<(), Status> {
        let bytes = part.iter().map(Weight::weight).sum();
        let all = COLLECTED.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        self.records += part.len();
        self.bytes += bytes;
        let refused = |what: String| Err(Status::internal(what));
        if self.records > MOST_RECORDS {
            return refused(format!("the list has more than {MOST_RECORDS} records"));
        }
        if self.bytes > LIST_BYTES {
            return refused(format!("the list takes more than {} MiB", LIST_BYTES >> 20));
        }
        if all > LISTS_BYTES {
            return refused(format!(
                "the lists that are read now take more than {} MiB together",
                LISTS_BYTES >> 20
            ));
        }
        Ok(())
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        COLLECTED.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The later part's, if it has any.
fn later(scope: &mut String, part: String) {
    if !part.is_empty() {
        *scope = part;
    }
}

pub(crate) async fn machines(mut client: Calls, context: Context) -> Result<Response, Status> {
    let asked = proto::ListMachinesRequest { context };
    let mut parts = client.list_machines(asked).await?.into_inner();
    let (mut whole, mut taken) = (proto::ListMachinesResponse::default(), Taken::default());
    while let Some(part) = parts.message().await? {
        taken.add(&part.machines)?;
        taken.add(&part.parts)?;
        whole.machines.extend(part.machines);
        whole.parts.extend(part.parts);
        later(&mut whole.list_scope, part.list_scope);
    }
    Ok(Response::ListMachines(whole))
}

pub(crate) async fn pools(mut client: Calls, context: Context) -> Result<Response, Status> {
    let asked = proto::ListPoolsRequest { context };
    let mut parts = client.list_pools(asked).await?.into_inner();
    let (mut whole, mut taken) = (proto::ListPoolsResponse::default(), Taken::default());
    while let Some(part) = parts.message().await? {
        taken.add(&part.pools)?;
        whole.pools.extend(part.pools);
        later(&mut whole.list_scope, part.list_scope);
    }
    Ok(Response::ListPools(whole))
}

/// A group of which no part tells is one that the driver did not read.
pub(crate) async fn pool_status(
    mut client: Calls,
    asked: proto::GetPoolStatusRequest,
) -> Result<Response, Status> {
    let mut parts = client.get_pool_status(asked).await?.into_inner();
    let (mut whole, mut taken) = (proto::GetPoolStatusResponse::default(), Taken::default());
    while let Some(part) = parts.message().await? {
        taken.add(&part.machines)?;
        whole.machines.extend(part.machines);
        whole.pool = part.pool.or(whole.pool);
    }
    if whole.pool.is_none() {
        return Err(Status::internal("the driver's answer lacks the group"));
    }
    Ok(Response::GetPoolStatus(whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_may_be_as_long_as_the_core_takes() {
        let core = ostler_sessions::SessionsOptions::default().limits;
        let ours = (MOST_RECORDS, LIST_BYTES, LISTS_BYTES);
        assert_eq!(ours, (core.list_records, core.list_bytes, core.lists_bytes));
    }

    #[test]
    fn lists_are_counted_in_bytes_one_by_one_and_together_until_they_are_passed_on() {
        let name = "n".repeat(1 << 20);
        let part = [proto::MachineRecord { machine_name: name, ..Default::default() }];
        let full = || {
            let mut taken = Taken::default();
            let fit = (0..1000).take_while(|_| taken.add(&part).is_ok()).count();
            (fit, taken)
        };
        let (fit, one) = full();
        assert_eq!(fit, 63, "each record takes its own size besides its text");
        let (_two, _three, _four) = (full(), full(), full());
        let (fit, last) = full();
        assert_eq!(fit, 0, "four that are full are all that there may be");
        drop((one, last));
        assert_eq!(full().0, 63);
        // Two bytes of an answer are an address of 48 in memory.
        let addresses = vec![proto::Address::default(); 1 << 20];
        let small = [proto::MachineRecord { addresses, ..Default::default() }];
        let mut taken = Taken::default();
        assert_eq!((0..1000).take_while(|_| taken.add(&small).is_ok()).count(), 1);
    }
}
