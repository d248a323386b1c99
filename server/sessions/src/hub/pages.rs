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

    /// The whole list, if it has so many pages.
    pub(crate) fn finish(self, pages: u32) -> Result<Vec<MachineRecord>, PageFault> {
        if self.next == pages {
            Ok(self.records)
        } else {
            Err(PageFault::Gap { expected: self.next })
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
        let names: Vec<_> =
            pages.finish(2).unwrap().into_iter().map(|record| record.machine_name).collect();
        assert_eq!(names, ["a", "b", "c"]);
    }

    #[test]
    fn a_missing_page_is_noticed_between_pages_and_at_the_end() {
        let mut pages = Pages::default();
        add(&mut pages, page(0, &["a"])).unwrap();
        assert_eq!(add(&mut pages, page(2, &["c"])), Err(PageFault::Gap { expected: 1 }));
        assert_eq!(pages.finish(2), Err(PageFault::Gap { expected: 1 }));
    }

    #[test]
    fn page_zero_starts_again() {
        let mut pages = Pages::default();
        add(&mut pages, page(0, &["a", "b"])).unwrap();
        add(&mut pages, page(0, &["c"])).unwrap();
        assert_eq!(pages.finish(1).unwrap().len(), 1);
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
