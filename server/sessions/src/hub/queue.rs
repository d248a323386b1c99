//! Operations of one provider that wait for credit.

use std::collections::BTreeMap;

use ostler_api::driver::OperationKind;

use super::OpId;
use crate::Lane;

/// What goes first within a lane: what is cheap, then what frees something, then the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Read,
    Delete,
    Change,
    Create,
}

impl Rank {
    fn of(kind: OperationKind) -> Self {
        match kind {
            OperationKind::GetMachineStatus
            | OperationKind::ListMachines
            | OperationKind::GetVolumeIds
            | OperationKind::ValidateClass => Self::Read,
            OperationKind::DeleteMachine => Self::Delete,
            OperationKind::InitializeMachine | OperationKind::UpdateMachine => Self::Change,
            OperationKind::CreateMachine => Self::Create,
        }
    }
}

/// A place in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket {
    lane: Lane,
    rank: Rank,
    number: u64,
}

/// One in so many goes by age alone, so that nothing waits for ever behind what is more urgent.
const BY_AGE: u32 = 4;

/// The queue of one provider.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: BTreeMap<Ticket, (OpId, usize)>,
    by_age: BTreeMap<u64, Ticket>,
    bytes: usize,
    next: u64,
    taken: u32,
}

impl Queue {
    /// Adds an operation of so many bytes.
    pub(crate) fn push(
        &mut self,
        id: OpId,
        lane: Lane,
        kind: OperationKind,
        bytes: usize,
    ) -> Ticket {
        let ticket = Ticket { lane, rank: Rank::of(kind), number: self.next };
        self.next += 1;
        self.bytes += bytes;
        self.by_age.insert(ticket.number, ticket);
        self.waiting.insert(ticket, (id, bytes));
        ticket
    }

    /// Takes the operation whose turn it is.
    pub(crate) fn pop(&mut self) -> Option<OpId> {
        let urgent = self.waiting.keys().next().copied()?;
        let oldest = self.by_age.values().next().copied()?;
        self.taken = self.taken.wrapping_add(1);
        let by_age = self.taken.is_multiple_of(BY_AGE);
        self.remove(if by_age { oldest } else { urgent })
    }

    /// Takes one operation out.
    pub(crate) fn remove(&mut self, ticket: Ticket) -> Option<OpId> {
        let (id, bytes) = self.waiting.remove(&ticket)?;
        self.by_age.remove(&ticket.number);
        self.bytes = self.bytes.saturating_sub(bytes);
        Some(id)
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// How many bytes wait.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(pushed: &[(&str, Lane, OperationKind)]) -> Vec<String> {
        let mut queue = Queue::default();
        for (id, lane, kind) in pushed {
            queue.push((*id).into(), *lane, *kind, 10);
        }
        assert_eq!((queue.len(), queue.bytes()), (pushed.len(), 10 * pushed.len()));
        let order = std::iter::from_fn(|| queue.pop()).map(|id| id.to_string()).collect();
        assert_eq!((queue.len(), queue.bytes()), (0, 0));
        order
    }

    #[test]
    fn reads_go_before_deletes_before_creates_and_people_before_background() {
        use OperationKind::{CreateMachine, DeleteMachine, GetMachineStatus};
        let order = order(&[
            ("background", Lane::Background, GetMachineStatus),
            ("create", Lane::User, CreateMachine),
            ("delete", Lane::User, DeleteMachine),
            ("read", Lane::User, GetMachineStatus),
        ]);
        assert_eq!(order, ["read", "delete", "create", "background"]);
    }

    #[test]
    fn equals_go_in_the_order_in_which_they_came() {
        use OperationKind::CreateMachine;
        let order = order(&["a", "b", "c", "d", "e"].map(|id| (id, Lane::User, CreateMachine)));
        assert_eq!(order, ["a", "b", "c", "d", "e"]);
    }

    #[test]
    fn the_oldest_goes_in_between_however_many_are_more_urgent() {
        use OperationKind::{CreateMachine, GetMachineStatus};
        let order = order(&[
            ("old", Lane::Background, CreateMachine),
            ("1", Lane::User, GetMachineStatus),
            ("2", Lane::User, GetMachineStatus),
            ("3", Lane::User, GetMachineStatus),
            ("4", Lane::User, GetMachineStatus),
        ]);
        assert_eq!(order, ["1", "2", "3", "old", "4"]);
    }
}
