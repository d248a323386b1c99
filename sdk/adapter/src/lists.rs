//! Lists, which a driver may answer in as many parts as it likes.

use ostler_proto::v1alpha1 as proto;
use proto::machine_driver_service_client::MachineDriverServiceClient;
use proto::operation_result::Response;
use tonic::Status;

use crate::channel::Channel;

/// A list of more is refused: the core takes no more either.
const MOST_RECORDS: usize = 100_000;

type Calls = MachineDriverServiceClient<Channel>;
type Context = Option<Box<proto::OperationContext>>;

fn bounded(records: usize) -> Result<(), Status> {
    if records > MOST_RECORDS {
        return Err(Status::internal(format!("the list has more than {MOST_RECORDS} records")));
    }
    Ok(())
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
    let mut whole = proto::ListMachinesResponse::default();
    while let Some(part) = parts.message().await? {
        whole.machines.extend(part.machines);
        later(&mut whole.list_scope, part.list_scope);
        bounded(whole.machines.len())?;
    }
    Ok(Response::ListMachines(whole))
}

pub(crate) async fn pools(mut client: Calls, context: Context) -> Result<Response, Status> {
    let asked = proto::ListPoolsRequest { context };
    let mut parts = client.list_pools(asked).await?.into_inner();
    let mut whole = proto::ListPoolsResponse::default();
    while let Some(part) = parts.message().await? {
        whole.pools.extend(part.pools);
        later(&mut whole.list_scope, part.list_scope);
        bounded(whole.pools.len())?;
    }
    Ok(Response::ListPools(whole))
}

/// A group of which no part tells is one that the driver did not read.
pub(crate) async fn pool_status(
    mut client: Calls,
    asked: proto::GetPoolStatusRequest,
) -> Result<Response, Status> {
    let mut parts = client.get_pool_status(asked).await?.into_inner();
    let mut whole = proto::GetPoolStatusResponse::default();
    while let Some(part) = parts.message().await? {
        whole.machines.extend(part.machines);
        whole.pool = part.pool.or(whole.pool);
        bounded(whole.machines.len())?;
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
    fn a_list_may_have_as_many_records_as_the_core_takes() {
        assert_eq!(MOST_RECORDS, ostler_sessions::SessionsOptions::default().limits.list_records);
    }
}
