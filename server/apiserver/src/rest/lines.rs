//! The last lines of watches, as text.
//!
//! Most watches of a kind are the same one, of all of it and of whole objects. The first that comes to a
//! change reads the object and writes the line; the others copy it.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::kinds::Resource;

/// Lines that are cached. Watches that keep up are a few changes apart; a watch further behind writes its own lines.
const KEPT: usize = 32;
/// A longer line is not kept, so that all of them stay below 2 MiB.
const LONGEST: usize = 64 << 10;

/// The last lines of all kinds. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub(super) struct Lines {
    kept: Arc<Mutex<VecDeque<Line>>>,
}

/// A change in the form of an address.
#[derive(Debug)]
struct Line {
    revision: u64,
    resource: Arc<Resource>,
    text: Bytes,
}

impl Lines {
    /// The line of the change of this revision, written by `write` if it is not kept.
    pub(super) fn line(
        &self,
        revision: u64,
        resource: &Arc<Resource>,
        write: impl FnOnce() -> Bytes,
    ) -> Bytes {
        if let Some(text) = self.find(revision, resource) {
            return text;
        }
        let text = write();
        if text.len() <= LONGEST {
            let line = Line { revision, resource: Arc::clone(resource), text: text.clone() };
            let mut kept = self.kept.lock();
            kept.truncate(KEPT - 1);
            kept.push_front(line);
        }
        text
    }

    fn find(&self, revision: u64, resource: &Arc<Resource>) -> Option<Bytes> {
        let kept = self.kept.lock();
        let mut all = kept.iter();
        // Another definition of the same kind is another resource, and may say something else.
        let same =
            |line: &&Line| line.revision == revision && Arc::ptr_eq(&line.resource, resource);
        all.find(same).map(|line| line.text.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::BuiltIn;

    fn text(written: &str) -> Bytes {
        Bytes::copy_from_slice(written.as_bytes())
    }

    #[test]
    fn a_line_is_written_once_for_each_address() {
        let lines = Lines::default();
        let (pods, nodes) = (BuiltIn::Pod.resource().into(), BuiltIn::Node.resource().into());
        assert_eq!(lines.line(7, &pods, || text("pod 7")), "pod 7");
        assert_eq!(lines.line(7, &pods, || text("again")), "pod 7");
        assert_eq!(lines.line(7, &nodes, || text("node 7")), "node 7");
        assert_eq!(lines.line(8, &pods, || text("pod 8")), "pod 8");
        assert_eq!(lines.line(7, &nodes, || text("again")), "node 7");
    }

    #[test]
    fn old_and_long_lines_are_not_kept() {
        let lines = Lines::default();
        let pods = BuiltIn::Pod.resource().into();
        for revision in 0..=KEPT as u64 {
            lines.line(revision, &pods, || text("first"));
        }
        assert_eq!(lines.line(1, &pods, || text("again")), "first");
        assert_eq!(lines.line(0, &pods, || text("again")), "again");
        let long = || Bytes::from(vec![b'x'; LONGEST + 1]);
        lines.line(99, &pods, long);
        assert_eq!(lines.line(99, &pods, || text("again")), "again");
        assert!(lines.kept.lock().len() <= KEPT);
    }
}
