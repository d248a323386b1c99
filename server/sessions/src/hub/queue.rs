//! Operations of one provider that wait for credit.

use std::collections::BTreeMap;

use ostler_api::driver::OperationKind;
use ostler_api::operation::Lane;

use super::OperationId;

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

impl Ticket {
    /// Its place by age alone.
    fn age(self) -> (bool, u64) {
        (self.rank == Rank::Create, self.number)
    }
}

/// Which operations wait though there is credit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Held {
    /// None.
    Nothing,
    /// Those that make something new.
    Creates,
}

/// One in so many is taken by age alone, so that nothing waits for ever behind what is more urgent.
const BY_AGE: u32 = 4;

/// The queue of one provider.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: BTreeMap<Ticket, (OperationId, usize)>,
    /// Creates apart from the rest, each by number.
    by_age: BTreeMap<(bool, u64), Ticket>,
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
        self.by_age.insert(ticket.age(), ticket);
        self.waiting.insert(ticket, (id, bytes));
        ticket
    }

    /// Takes the operation whose turn it is.
    pub(crate) fn pop(&mut self, held: Held) -> Option<OperationId> {
        let taken = self.taken.wrapping_add(1);
        let by_age = taken.is_multiple_of(BY_AGE);
        let ticket = if by_age { self.oldest(held) } else { self.urgent(held) }?;
        self.taken = taken;
        self.remove(ticket)
    }

    /// The first by urgency.
    fn urgent(&self, held: Held) -> Option<Ticket> {
        let first = |lane| {
            // Creates are last within a lane.
            let of = |rank| Ticket { lane, rank, number: 0 };
            self.waiting.range(of(Rank::Read)..of(Rank::Create)).next()
        };
        let found = match held {
            Held::Nothing => self.waiting.iter().next(),
            Held::Creates => [Lane::User, Lane::Background].into_iter().find_map(first),
        };
        found.map(|(ticket, _)| *ticket)
    }

    /// The first by age.
    fn oldest(&self, held: Held) -> Option<Ticket> {
        let others = self.by_age.range(..(true, 0)).next();
        let creates = self.by_age.range((true, 0)..).next().filter(|_| held == Held::Nothing);
        let found = others.into_iter().chain(creates).min_by_key(|((_, number), _)| *number);
        found.map(|(_, ticket)| *ticket)
    }

    /// The one that has waited longest of those that are not held.
    pub(crate) fn peek_oldest(&self, held: Held) -> Option<&OperationId> {
        let ticket = self.oldest(held)?;
        self.waiting.get(&ticket).map(|(id, _)| id)
    }

    /// Takes one operation out.
    pub(crate) fn remove(&mut self, ticket: Ticket) -> Option<OperationId> {
        let (id, bytes) = self.waiting.remove(&ticket)?;
        self.by_age.remove(&ticket.age());
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
        let order =
            std::iter::from_fn(|| queue.pop(Held::Nothing)).map(|id| id.to_string()).collect();
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
        assert_eq!(queue.peek_oldest(Held::Creates).map(OperationId::as_str), Some("old"));
        let taken: Vec<_> = std::iter::from_fn(|| queue.pop(Held::Creates)).collect();
        let taken: Vec<&str> = taken.iter().map(OperationId::as_str).collect();
        assert_eq!(taken, ["1", "2", "3", "old", "4"]);
        assert_eq!((queue.len(), queue.bytes()), (2, 20));
        assert_eq!(queue.pop(Held::Nothing).as_ref().map(OperationId::as_str), Some("create"));
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
