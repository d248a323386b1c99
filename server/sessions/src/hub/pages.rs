//! Assembles long lists from pages.

use ostler_proto::Weight;
use ostler_proto::v1alpha1::operation_result::Response;
use ostler_proto::v1alpha1::{
    MachineRecord, OperationError, OperationPage, PartRecord, PoolMachineRecord, PoolRecord,
};

use crate::convert::{ADDRESSES, VIOLATIONS, few};

/// The pages of a list so far.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    next: u32,
    /// Size of the pages in memory.
    pub(super) bytes: usize,
    machines: Vec<MachineRecord>,
    pools: Vec<PoolRecord>,
    pool_machines: Vec<PoolMachineRecord>,
    parts: Vec<PartRecord>,
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
        self.parts.extend(page.parts);
        let of_pools = self.pools.len() + self.pool_machines.len();
        let held = self.machines.len() + self.parts.len() + of_pools;
        if held > records || self.bytes > bytes { Err(PageFault::TooLong) } else { Ok(()) }
    }

    /// Puts the whole list, within the same limits, into an answer that may have pages.
    pub(crate) fn put_into(
        mut self,
        response: &mut Response,
        limits: (usize, usize),
    ) -> Result<(), PageFault> {
        // Records of another kind than the answer's do not belong to the list.
        let none = |others: bool| if others { Err(PageFault::Mixed) } else { Ok(()) };
        match response {
            Response::ListMachines(list) => {
                let machines = std::mem::take(&mut list.machines);
                let parts = std::mem::take(&mut list.parts);
                let own = OperationPage { machines, parts, ..OperationPage::default() };
                self.end(std::mem::take(&mut list.pages), own, limits)?;
                (list.machines, list.parts) = (self.machines, self.parts);
                none(!self.pools.is_empty() || !self.pool_machines.is_empty())
            }
            Response::ListPools(list) => {
                let pools = std::mem::take(&mut list.pools);
                let own = OperationPage { pools, ..OperationPage::default() };
                self.end(std::mem::take(&mut list.pages), own, limits)?;
                list.pools = self.pools;
                let of_machines = !self.machines.is_empty() || !self.parts.is_empty();
                none(of_machines || !self.pool_machines.is_empty())
            }
            Response::GetPoolStatus(read) => {
                let pool_machines = std::mem::take(&mut read.machines);
                let own = OperationPage { pool_machines, ..OperationPage::default() };
                self.end(std::mem::take(&mut read.pages), own, limits)?;
                read.machines = self.pool_machines;
                let of_machines = !self.machines.is_empty() || !self.parts.is_empty();
                none(of_machines || !self.pools.is_empty())
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

    /// The list has so many pages, or without pages the records of the result, which are a page then. A list that
    /// lacks a part must never look like a short one.
    fn end(
        &mut self,
        counted: u32,
        of_result: OperationPage,
        (records, bytes): (usize, usize),
    ) -> Result<(), PageFault> {
        match (self.next == counted, counted) {
            (false, _) => Err(PageFault::Gap { expected: self.next }),
            (true, 0) => self.add(of_result, records, bytes),
            (true, _) if of_result == OperationPage::default() => Ok(()),
            (true, _) => Err(PageFault::Mixed),
        }
    }
}

/// A page's size in memory, after each record has lost the parts that a single answer would lose.
fn memory_of(page: &mut OperationPage) -> usize {
    page.machines.iter_mut().for_each(cut);
    for pool in &mut page.pools {
        cut_fault(pool.fault.as_deref_mut());
    }
    page.pool_machines.iter_mut().filter_map(|it| it.machine.as_mut()).for_each(cut);
    weight(&page.machines) + weight(&page.parts) + weight(&page.pools) + weight(&page.pool_machines)
}

fn weight(records: &[impl Weight]) -> usize {
    records.iter().map(Weight::weight).sum()
}

fn cut(record: &mut MachineRecord) {
    few(&mut record.addresses, ADDRESSES);
    cut_fault(record.fault.as_deref_mut());
}

fn cut_fault(of: Option<&mut OperationError>) {
    if let Some(error) = of {
        few(&mut error.violations, VIOLATIONS);
    }
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
        whole.put_into(&mut response, (3, 4000))?;
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
    fn a_list_too_long_is_refused_by_records_and_by_bytes_in_pages_and_in_the_result() {
        let in_result = |names: &[&str]| finish(Pages::default(), 0, page(0, names).machines);
        assert_eq!(in_result(&["a", "b", "c", "d"]), Err(PageFault::TooLong));
        assert_eq!(in_result(&[&"x".repeat(4000)]), Err(PageFault::TooLong));
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
            pages.put_into(&mut response, (3, 4000)).map(|()| response)
        };
        let Ok(Response::GetPoolStatus(status)) = paged(&[]) else { panic!("no status") };
        assert_eq!(status.machines, [record("0"), record("1")]);
        assert_eq!(paged(&["a"]), Err(PageFault::Mixed));
    }
}
