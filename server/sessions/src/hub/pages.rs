//! Long lists come in pages; this puts them together.

use ostler_proto::v1alpha1::{
    MachineRecord, OperationError, OperationPage, PoolMachineRecord, PoolRecord,
};
use prost::Message as _;

use ostler_proto::v1alpha1::operation_result::Response;

use crate::convert::{ADDRESSES, VIOLATIONS, few};

/// The pages of one list so far.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    next: u32,
    /// What it takes in memory.
    pub(super) bytes: usize,
    machines: Vec<MachineRecord>,
    pools: Vec<PoolRecord>,
    pool_machines: Vec<PoolMachineRecord>,
}

/// Why a page does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageFault {
    /// A page is missing before it.
    Gap {
        /// The index that had to come.
        expected: u32,
    },
    /// Records came in pages and in the result as well.
    Mixed,
    /// The list is longer than the core holds.
    TooLong,
}

impl Pages {
    /// Adds a page. Page 0 starts the list again: the driver sends it from the beginning when it
    /// comes back.
    pub(crate) fn add(
        &mut self,
        mut page: OperationPage,
        records: usize,
        bytes: usize,
    ) -> Result<(), PageFault> {
        if page.index == 0 {
            *self = Self::default();
        }
        if page.index != self.next {
            return Err(PageFault::Gap { expected: self.next });
        }
        self.next += 1;
        self.bytes += memory_of(&mut page);
        self.machines.extend(page.machines);
        self.pools.extend(page.pools);
        self.pool_machines.extend(page.pool_machines);
        let held = self.machines.len() + self.pools.len() + self.pool_machines.len();
        if held > records || self.bytes > bytes { Err(PageFault::TooLong) } else { Ok(()) }
    }

    /// Puts the whole list into an answer that may have pages.
    pub(crate) fn put_into(self, response: &mut Response) -> Result<(), PageFault> {
        let Self { next, machines, pools, pool_machines, .. } = self;
        // Records of another kind than the answer's are none of it.
        let none = |others: bool| if others { Err(PageFault::Mixed) } else { Ok(()) };
        match response {
            Response::ListMachines(list) => {
                none(!pools.is_empty() || !pool_machines.is_empty())?;
                whole(next, std::mem::take(&mut list.pages), machines, &mut list.machines)
            }
            Response::ListPools(list) => {
                none(!machines.is_empty() || !pool_machines.is_empty())?;
                whole(next, std::mem::take(&mut list.pages), pools, &mut list.pools)
            }
            Response::GetPoolStatus(read) => {
                none(!machines.is_empty() || !pools.is_empty())?;
                whole(next, std::mem::take(&mut read.pages), pool_machines, &mut read.machines)
            }
            Response::CreateMachine(_)
            | Response::InitializeMachine(_)
            | Response::UpdateMachine(_)
            | Response::DeleteMachine(_)
            | Response::GetMachineStatus(_)
            | Response::GetVolumeIds(_)
            | Response::ValidateClass(_)
            | Response::CreatePool(_)
            | Response::UpdatePool(_)
            | Response::DeletePool(_)
            | Response::DeletePoolMachines(_)
            | Response::UpdatePoolMachine(_) => Ok(()),
        }
    }
}

/// What a page takes in memory, after each record has lost what a single answer would lose: two bytes of a frame may be an
/// address or a violation of 48.
fn memory_of(page: &mut OperationPage) -> usize {
    let machines = page.machines.iter_mut().map(nested).sum::<usize>();
    let pools = page.pools.iter_mut().map(|it| fault(it.fault.as_deref_mut())).sum::<usize>();
    let of_pool = page.pool_machines.iter_mut().filter_map(|it| it.machine.as_mut());
    let of_pool = of_pool.map(nested).sum::<usize>();
    let records = size_of_val(page.machines.as_slice())
        + size_of_val(page.pools.as_slice())
        + size_of_val(page.pool_machines.as_slice());
    page.encoded_len() + records + machines + pools + of_pool
}

fn nested(record: &mut MachineRecord) -> usize {
    few(&mut record.addresses, ADDRESSES);
    size_of_val(record.addresses.as_slice()) + fault(record.fault.as_deref_mut())
}

fn fault(of: Option<&mut OperationError>) -> usize {
    let Some(error) = of else { return 0 };
    few(&mut error.violations, VIOLATIONS);
    size_of::<OperationError>() + size_of_val(error.violations.as_slice())
}

/// The whole list: the records of so many pages, or without pages those of the result. A list that lacks
/// a part must never look like a short one.
fn whole<T>(
    came: u32,
    counted: u32,
    of_pages: Vec<T>,
    of_result: &mut Vec<T>,
) -> Result<(), PageFault> {
    match (came == counted, counted, of_result.is_empty()) {
        (false, _, _) => return Err(PageFault::Gap { expected: came }),
        (true, 0, _) => {}
        (true, _, true) => *of_result = of_pages,
        (true, _, false) => return Err(PageFault::Mixed),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use ostler_proto::v1alpha1::{
        Address, FieldViolation, GetPoolStatusResponse, ListMachinesResponse,
    };

    use super::*;

    fn page(index: u32, names: &[&str]) -> OperationPage {
        let machines = names
            .iter()
            .map(|name| MachineRecord { machine_name: (*name).into(), ..Default::default() })
            .collect();
        OperationPage { index, machines, ..Default::default() }
    }

    fn finish(
        whole: Pages,
        pages: u32,
        machines: Vec<MachineRecord>,
    ) -> Result<Vec<MachineRecord>, PageFault> {
        let list = ListMachinesResponse { machines, pages, ..Default::default() };
        let mut response = Response::ListMachines(list);
        whole.put_into(&mut response)?;
        let Response::ListMachines(list) = response else { panic!("another answer") };
        assert_eq!(list.pages, 0);
        Ok(list.machines)
    }

    fn add(pages: &mut Pages, page: OperationPage) -> Result<(), PageFault> {
        pages.add(page, 3, 4000)
    }

    #[test]
    fn pages_in_order_make_the_list() {
        let mut pages = Pages::default();
        add(&mut pages, page(0, &["a", "b"])).unwrap();
        add(&mut pages, page(1, &["c"])).unwrap();
        let names: Vec<_> = finish(pages, 2, vec![])
            .unwrap()
            .into_iter()
            .map(|record| record.machine_name)
            .collect();
        assert_eq!(names, ["a", "b", "c"]);
    }

    #[test]
    fn a_missing_page_is_noticed_between_pages_and_at_the_end() {
        let mut pages = Pages::default();
        add(&mut pages, page(0, &["a"])).unwrap();
        assert_eq!(add(&mut pages, page(2, &["c"])), Err(PageFault::Gap { expected: 1 }));
        assert_eq!(finish(pages, 2, vec![]), Err(PageFault::Gap { expected: 1 }));
    }

    #[test]
    fn page_zero_starts_again() {
        let mut pages = Pages::default();
        add(&mut pages, page(0, &["a", "b"])).unwrap();
        add(&mut pages, page(0, &["c"])).unwrap();
        assert_eq!(finish(pages, 1, vec![]).unwrap().len(), 1);
    }

    #[test]
    fn a_page_that_comes_twice_is_noticed() {
        let mut pages = Pages::default();
        add(&mut pages, page(0, &["a"])).unwrap();
        add(&mut pages, page(1, &["b"])).unwrap();
        assert_eq!(add(&mut pages, page(1, &["b"])), Err(PageFault::Gap { expected: 2 }));
    }

    #[test]
    fn pages_that_the_result_does_not_count_are_no_empty_list() {
        let mut pages = Pages::default();
        add(&mut pages, page(0, &["a"])).unwrap();
        assert_eq!(finish(pages, 0, vec![]), Err(PageFault::Gap { expected: 1 }));
        let mut pages = Pages::default();
        add(&mut pages, page(0, &["a"])).unwrap();
        assert_eq!(finish(pages, 1, page(0, &["b"]).machines), Err(PageFault::Mixed));
        let list = finish(Pages::default(), 0, page(0, &["b"]).machines).unwrap();
        assert_eq!(list.len(), 1);
    }

    #[test]
    fn a_list_too_long_is_refused_by_records_and_by_bytes() {
        let mut pages = Pages::default();
        let many = page(0, &["a", "b", "c", "d"]);
        assert_eq!(add(&mut pages, many), Err(PageFault::TooLong));
        let long = "x".repeat(4000);
        assert_eq!(add(&mut pages, page(0, &[&long])), Err(PageFault::TooLong));
    }

    #[test]
    fn what_a_record_brings_is_cut_and_counted_as_it_is_in_memory() {
        let crowded = |index| {
            let mut page = page(index, &["a"]);
            page.machines[0].addresses = vec![Address::default(); 10_001];
            let violations = vec![FieldViolation::default(); 10_001];
            page.machines[0].fault = Some(OperationError { violations, ..<_>::default() }.into());
            page
        };
        let mut pages = Pages::default();
        pages.add(crowded(0), 3, 10_000).unwrap();
        let machine = pages.machines.first().unwrap();
        let violations = &machine.fault.as_ref().unwrap().violations;
        assert_eq!((machine.addresses.len(), violations.len()), (64, 64));
        assert!(machine.addresses.capacity() + violations.capacity() < 200);
        assert_eq!(pages.add(crowded(1), 3, 10_000), Err(PageFault::TooLong));
    }

    #[test]
    fn instances_of_a_group_come_in_pages_too_and_other_records_are_none_of_it() {
        let record = |id: &str| PoolMachineRecord { instance_id: id.into(), ..Default::default() };
        let paged = |machines: &[&str]| {
            let mut pages = Pages::default();
            let pool_machines = vec![record("0"), record("1")];
            let page = OperationPage { pool_machines, ..page(0, machines) };
            add(&mut pages, page).unwrap();
            let status = GetPoolStatusResponse { pages: 1, ..Default::default() };
            let mut response = Response::GetPoolStatus(status);
            pages.put_into(&mut response).map(|()| response)
        };
        let Ok(Response::GetPoolStatus(status)) = paged(&[]) else { panic!("no status") };
        assert_eq!(status.machines, [record("0"), record("1")]);
        assert_eq!(paged(&["a"]), Err(PageFault::Mixed));
    }
}
