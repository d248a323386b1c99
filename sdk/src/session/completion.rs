//! Turns the answer of a verb into frames.

use ostler_proto::v1alpha1 as proto;
use prost::Message;
use proto::operation_completed::Outcome;
use proto::operation_result::Response;
use proto::register_request::Frame;
use proto::{OperationCompleted, OperationPage, OperationResult};

use crate::error::DriverError;
use crate::handler::Answer;
use crate::limits::{FRAME_BYTES, cut_error};

/// A list of more records goes in pages.
const PAGE_RECORDS: usize = 500;
/// Leaves room for the frame around the records.
const PAGE_BYTES: usize = FRAME_BYTES - 8 * 1024;
/// More would not fit the queue of outgoing frames.
const PAGES: usize = 512;

/// The frames of a finished operation, in order.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Completion {
    pages: Vec<OperationPage>,
    completed: Box<OperationCompleted>,
}

impl Completion {
    pub(crate) fn new(operation_id: &str, answer: Answer, checkpoint: Option<String>) -> Self {
        let (pages, outcome) = match answer.and_then(|response| paged(operation_id, response)) {
            Ok((pages, result)) => (pages, Outcome::Result(result)),
            Err(error) => (Vec::new(), Outcome::Error(cut_error(error.into()))),
        };
        let completed = OperationCompleted {
            operation_id: operation_id.to_owned(),
            checkpoint: checkpoint.unwrap_or_default(),
            outcome: Some(outcome),
        };
        Self { pages, completed: Box::new(completed) }
    }

    pub(crate) fn frames(&self) -> impl Iterator<Item = Frame> {
        let pages = self.pages.iter().cloned().map(Frame::Page);
        pages.chain(std::iter::once(Frame::Completed(self.completed.clone())))
    }

    pub(crate) fn bytes(&self) -> usize {
        self.pages.iter().map(Message::encoded_len).sum::<usize>() + self.completed.encoded_len()
    }
}

/// Moves a long list to pages, and refuses what no frame can carry.
fn paged(
    operation_id: &str,
    mut response: Response,
) -> Result<(Vec<OperationPage>, OperationResult), DriverError> {
    for fault in response.faults_mut() {
        *fault = cut_error(std::mem::take(fault));
    }
    let mut pages = Vec::new();
    let bytes = response.encoded_len();
    let is_long = |records: usize| records > PAGE_RECORDS || bytes > PAGE_BYTES;
    if let Response::ListMachines(list) = &mut response
        && is_long(list.machines.len().max(list.parts.len()))
    {
        let page = |machines| OperationPage { machines, ..Default::default() };
        pages = split(operation_id, std::mem::take(&mut list.machines), page);
        let page = |parts| OperationPage { parts, ..Default::default() };
        pages.extend(split(operation_id, std::mem::take(&mut list.parts), page));
        for (index, page) in (0..).zip(&mut pages) {
            page.index = index;
        }
        list.pages = count(&pages);
    } else if let Response::ListPools(list) = &mut response
        && is_long(list.pools.len())
    {
        let page = |pools| OperationPage { pools, ..Default::default() };
        pages = split(operation_id, std::mem::take(&mut list.pools), page);
        list.pages = count(&pages);
    } else if let Response::GetPoolStatus(read) = &mut response
        && is_long(read.machines.len())
    {
        let page = |pool_machines| OperationPage { pool_machines, ..Default::default() };
        pages = split(operation_id, std::mem::take(&mut read.machines), page);
        read.pages = count(&pages);
    }
    if pages.len() > PAGES {
        let message = format!("the list takes {} pages, more than {PAGES}", pages.len());
        return Err(DriverError::internal(message).reason("LIST_TOO_LONG"));
    }
    let largest = pages.iter().map(Message::encoded_len).max().unwrap_or_default();
    let result = OperationResult { response: Some(response) };
    let size = largest.max(result.encoded_len());
    if size > FRAME_BYTES {
        let message = format!("the answer takes a frame of {size} bytes, more than {FRAME_BYTES}");
        return Err(DriverError::internal(message).reason("FRAME_TOO_LARGE"));
    }
    Ok((pages, result))
}

fn count(pages: &[OperationPage]) -> u32 {
    u32::try_from(pages.len()).unwrap_or(u32::MAX)
}

fn split<T: Message>(
    operation_id: &str,
    records: Vec<T>,
    page: impl Fn(Vec<T>) -> OperationPage,
) -> Vec<OperationPage> {
    let mut slices: Vec<Vec<T>> = Vec::new();
    let mut bytes = 0;
    for record in records {
        // Tag and length before each record take at most 6 bytes.
        let size = record.encoded_len() + 6;
        let fits = |slice: &&mut Vec<T>| slice.len() < PAGE_RECORDS && bytes + size <= PAGE_BYTES;
        if let Some(slice) = slices.last_mut().filter(fits) {
            slice.push(record);
            bytes += size;
        } else {
            slices.push(vec![record]);
            bytes = size;
        }
    }
    let paged = (0..).zip(slices).map(|(index, slice)| OperationPage {
        operation_id: operation_id.to_owned(),
        index,
        ..page(slice)
    });
    paged.collect()
}

#[cfg(test)]
mod tests {
    use proto::MachineRecord;

    use super::*;

    fn list(machines: Vec<MachineRecord>) -> Response {
        Response::ListMachines(proto::ListMachinesResponse { machines, ..Default::default() })
    }

    fn records(count: usize, id_bytes: usize) -> Vec<MachineRecord> {
        let record = |index| MachineRecord {
            provider_id: format!("{index}-{}", "x".repeat(id_bytes)),
            ..Default::default()
        };
        (0..count).map(record).collect()
    }

    fn reason(completion: &Completion) -> &str {
        let Some(Outcome::Error(error)) = &completion.completed.outcome else { panic!() };
        &error.reason
    }

    #[test]
    fn a_short_list_goes_in_one_frame() {
        let completion = Completion::new("op", Ok(list(records(500, 8))), None);
        assert_eq!(completion.frames().count(), 1);
    }

    #[test]
    fn a_long_list_goes_in_pages_without_a_gap_and_in_order() {
        for (count, id_bytes) in [(501, 8), (1200, 8), (400, 1000)] {
            let completion = Completion::new("op", Ok(list(records(count, id_bytes))), None);
            let indexes: Vec<u32> = completion.pages.iter().map(|page| page.index).collect();
            assert_eq!(indexes, (0..u32::try_from(indexes.len()).unwrap()).collect::<Vec<_>>());
            let sent: Vec<_> =
                completion.pages.iter().flat_map(|page| page.machines.clone()).collect();
            assert_eq!(sent, records(count, id_bytes));
            assert!(completion.pages.iter().all(|page| page.encoded_len() <= FRAME_BYTES));
            assert!(completion.pages.iter().all(|page| page.machines.len() <= PAGE_RECORDS));
            let Some(Outcome::Result(result)) = &completion.completed.outcome else { panic!() };
            let Some(Response::ListMachines(rest)) = &result.response else { panic!() };
            assert!(rest.machines.is_empty());
            assert_eq!(rest.pages as usize, indexes.len());
        }
    }

    #[test]
    fn a_large_group_goes_in_pages_and_itself_in_the_result() {
        let record = |index| proto::PoolMachineRecord {
            instance_id: format!("{index}"),
            ..Default::default()
        };
        let machines: Vec<_> = (0..1200).map(record).collect();
        let pool = Some(proto::PoolRecord { desired: 1200, ..Default::default() });
        let read = proto::GetPoolStatusResponse { pool, machines: machines.clone(), pages: 0 };
        let completion = Completion::new("op", Ok(Response::GetPoolStatus(read)), None);
        let sent: Vec<_> =
            completion.pages.iter().flat_map(|page| page.pool_machines.clone()).collect();
        assert_eq!(sent, machines);
        let Some(Outcome::Result(result)) = &completion.completed.outcome else { panic!() };
        let Some(Response::GetPoolStatus(rest)) = &result.response else { panic!() };
        assert_eq!((rest.pages, rest.machines.len()), (3, 0));
        assert_eq!(rest.pool.as_ref().map(|pool| pool.desired), Some(1200));
    }

    #[test]
    fn an_answer_that_no_frame_can_carry_becomes_an_error() {
        let completion = Completion::new("op", Ok(list(records(2, 70_000))), None);
        assert_eq!(reason(&completion), "FRAME_TOO_LARGE");
        assert!(completion.pages.is_empty());
        let ids = Response::GetVolumeIds(proto::GetVolumeIdsResponse {
            volume_ids: vec!["v".repeat(1000); 100],
        });
        assert_eq!(reason(&Completion::new("op", Ok(ids), None)), "FRAME_TOO_LARGE");
    }

    #[test]
    fn a_list_of_too_many_pages_becomes_an_error() {
        let completion =
            Completion::new("op", Ok(list(records(PAGES * PAGE_RECORDS + 1, 8))), None);
        assert_eq!(reason(&completion), "LIST_TOO_LONG");
    }
}
