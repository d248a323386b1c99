//! Long lists come in pages; this puts them together.

use ostler_proto::v1alpha1::{MachineRecord, OperationPage};
use prost::Message;

/// The pages of one list so far.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    next: u32,
    bytes: usize,
    records: Vec<MachineRecord>,
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
        page: OperationPage,
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
        self.bytes += page.machines.iter().map(Message::encoded_len).sum::<usize>();
        if self.records.len() + page.machines.len() > records || self.bytes > bytes {
            return Err(PageFault::TooLong);
        }
        self.records.extend(page.machines);
        Ok(())
    }

    /// The whole list: the records of so many pages, or without pages those of the result. A list
    /// that lacks a part must never look like a short one.
    pub(crate) fn finish(
        self,
        pages: u32,
        of_result: Vec<MachineRecord>,
    ) -> Result<Vec<MachineRecord>, PageFault> {
        match (self.next == pages, pages, of_result.is_empty()) {
            (false, _, _) => Err(PageFault::Gap { expected: self.next }),
            (true, 0, _) => Ok(of_result),
            (true, _, true) => Ok(self.records),
            (true, _, false) => Err(PageFault::Mixed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(index: u32, names: &[&str]) -> OperationPage {
        let machines = names
            .iter()
            .map(|name| MachineRecord { machine_name: (*name).into(), ..Default::default() })
            .collect();
        OperationPage { index, machines, ..Default::default() }
    }

    fn add(pages: &mut Pages, page: OperationPage) -> Result<(), PageFault> {
        pages.add(page, 3, 1000)
    }

    #[test]
    fn pages_in_order_make_the_list() {
        let mut pages = Pages::default();
        add(&mut pages, page(0, &["a", "b"])).unwrap();
        add(&mut pages, page(1, &["c"])).unwrap();
        let names: Vec<_> = pages
            .finish(2, vec![])
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
        assert_eq!(pages.finish(2, vec![]), Err(PageFault::Gap { expected: 1 }));
    }

    #[test]
    fn page_zero_starts_again() {
        let mut pages = Pages::default();
        add(&mut pages, page(0, &["a", "b"])).unwrap();
        add(&mut pages, page(0, &["c"])).unwrap();
        assert_eq!(pages.finish(1, vec![]).unwrap().len(), 1);
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
        assert_eq!(pages.finish(0, vec![]), Err(PageFault::Gap { expected: 1 }));
        let mut pages = Pages::default();
        add(&mut pages, page(0, &["a"])).unwrap();
        assert_eq!(pages.finish(1, page(0, &["b"]).machines), Err(PageFault::Mixed));
        let list = Pages::default().finish(0, page(0, &["b"]).machines).unwrap();
        assert_eq!(list.len(), 1);
    }

    #[test]
    fn a_list_too_long_is_refused_by_records_and_by_bytes() {
        let mut pages = Pages::default();
        let many = page(0, &["a", "b", "c", "d"]);
        assert_eq!(add(&mut pages, many), Err(PageFault::TooLong));
        let long = "x".repeat(1000);
        assert_eq!(add(&mut pages, page(0, &[&long])), Err(PageFault::TooLong));
    }
}
