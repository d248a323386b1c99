//! A provider's operations waiting for credit.

use std::collections::BTreeMap;

use ostler_api::driver::OperationKind;
use ostler_api::operation::Lane;

use super::OperationId;

/// The order within a lane: cheap operations, then operations that free resources, then the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    Read,
    Delete,
    Change,
    Create,
}

impl Rank {
    const ALL: [Self; 4] = [Self::Read, Self::Delete, Self::Change, Self::Create];

    pub(crate) fn of(kind: OperationKind) -> Self {
        match kind {
            OperationKind::GetMachineStatus
            | OperationKind::ListMachines
            | OperationKind::GetVolumeIds
            | OperationKind::ValidateClass
            | OperationKind::GetPoolStatus
            | OperationKind::ListPools => Self::Read,
            OperationKind::DeleteMachine
            | OperationKind::DeletePool
            | OperationKind::DeletePoolMachines => Self::Delete,
            OperationKind::InitializeMachine
            | OperationKind::UpdateMachine
            | OperationKind::UpdatePoolMachine => Self::Change,
            // A larger group is more instances.
            OperationKind::CreateMachine
            | OperationKind::CreatePool
            | OperationKind::UpdatePool => Self::Create,
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

/// One operation in so many is taken by age alone, so that nothing waits for ever behind more
/// urgent ones.
const BY_AGE: u32 = 4;

/// The queue of a provider.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: BTreeMap<Ticket, (OperationId, usize)>,
    /// Each rank by number.
    by_age: BTreeMap<(Rank, u64), Lane>,
    bytes: usize,
    next: u64,
    taken: u32,
}

impl Queue {
    /// Adds an operation of so many bytes.
    pub(crate) fn push(
        &mut self,
        id: OperationId,
        lane: Lane,
        kind: OperationKind,
        bytes: usize,
    ) -> Ticket {
        let ticket = Ticket { lane, rank: Rank::of(kind), number: self.next };
        self.next += 1;
        self.bytes += bytes;
        self.by_age.insert((ticket.rank, ticket.number), lane);
        self.waiting.insert(ticket, (id, bytes));
        ticket
    }

    /// Takes the next operation in turn. `held`: which ranks wait though there is credit.
    pub(crate) fn pop(&mut self, held: impl Fn(Rank) -> bool) -> Option<OperationId> {
        let taken = self.taken.wrapping_add(1);
        let by_age = taken.is_multiple_of(BY_AGE);
        let ticket = if by_age { self.oldest(held) } else { self.urgent(held) }?;
        self.taken = taken;
        self.remove(ticket)
    }

    /// The first by urgency.
    fn urgent(&self, held: impl Fn(Rank) -> bool) -> Option<Ticket> {
        let lanes = [Lane::User, Lane::Background].into_iter();
        let mut places = lanes.flat_map(|lane| Rank::ALL.map(|rank| (lane, rank)));
        places.find_map(|(lane, rank)| {
            let from = |number| Ticket { lane, rank, number };
            let first = self.waiting.range(from(0)..from(u64::MAX)).next();
            first.map(|(ticket, _)| *ticket).filter(|_| !held(rank))
        })
    }

    /// The first by age.
    fn oldest(&self, held: impl Fn(Rank) -> bool) -> Option<Ticket> {
        let ranks = Rank::ALL.into_iter().filter(|rank| !held(*rank));
        let first = ranks.filter_map(|rank| self.by_age.range((rank, 0)..(rank, u64::MAX)).next());
        let tickets = first.map(|(&(rank, number), &lane)| Ticket { lane, rank, number });
        tickets.min_by_key(|ticket| ticket.number)
    }

    /// The oldest operation that is not held.
    pub(crate) fn peek_oldest(&self, held: impl Fn(Rank) -> bool) -> Option<&OperationId> {
        let ticket = self.oldest(held)?;
        self.waiting.get(&ticket).map(|(id, _)| id)
    }

    /// Takes one operation out.
    pub(crate) fn remove(&mut self, ticket: Ticket) -> Option<OperationId> {
        let (id, bytes) = self.waiting.remove(&ticket)?;
        self.by_age.remove(&(ticket.rank, ticket.number));
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
        let order = std::iter::from_fn(|| queue.pop(|_| false)).map(|id| id.to_string()).collect();
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
    fn while_creates_are_held_everything_else_goes_on_in_its_order() {
        use OperationKind::{CreateMachine, DeleteMachine, GetMachineStatus};
        let mut queue = Queue::default();
        for (id, lane, kind) in [
            ("create", Lane::User, CreateMachine),
            ("old", Lane::Background, DeleteMachine),
            ("later create", Lane::Background, CreateMachine),
            ("1", Lane::User, GetMachineStatus),
            ("2", Lane::User, GetMachineStatus),
            ("3", Lane::User, GetMachineStatus),
            ("4", Lane::User, GetMachineStatus),
        ] {
            queue.push(id.into(), lane, kind, 10);
        }
        let creates = |rank| rank == Rank::Create;
        assert_eq!(queue.peek_oldest(creates).map(OperationId::as_str), Some("old"));
        let taken: Vec<_> = std::iter::from_fn(|| queue.pop(creates)).collect();
        let taken: Vec<&str> = taken.iter().map(OperationId::as_str).collect();
        assert_eq!(taken, ["1", "2", "3", "old", "4"]);
        assert_eq!((queue.len(), queue.bytes()), (2, 20));
        assert_eq!(queue.pop(|_| false).as_ref().map(OperationId::as_str), Some("create"));
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
