//! One operation as questions to a driver of the first proposal: an answer in, the next question or
//! the outcome out. Every operation begins with a list, because such a driver neither looks before
//! a create nor says whether a delete found its instance.

use std::collections::BTreeSet;
use std::time::Duration;

use ostler_api::driver::{Certainty, ErrorCode, OperationKind};
use ostler_api::operation::Reason;
use ostler_proto::legacy::infra::driver_side::{
    CreateResp, DeleteResp, ListResp, Machine, Response,
};
use ostler_proto::v1alpha1::{
    CreateMachineResponse, DeleteMachineResponse, DeletionOutcome, GetMachineStatusResponse,
    ListMachinesResponse, MachineRecord, Operation, operation, operation_result,
};
use tokio::time::Instant;

use crate::fault::{Fault, failure, later, reasons, reported};
use crate::window::ConsistencyWindow;

/// The question to the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ask {
    /// All instances.
    List,
    /// The instance of the machine.
    Create,
    /// One instance to go.
    Delete {
        /// Its id.
        provider_id: String,
    },
}

/// How an operation ended.
pub(crate) type Outcome = Result<Box<operation_result::Response>, Fault>;

/// The next step of a job.
#[derive(Debug, PartialEq)]
pub(crate) enum Next {
    /// Ask the driver.
    Ask(Ask),
    /// The operation ended.
    Done(Outcome),
}

/// The subject of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Create,
    Delete,
    Status,
    List,
}

/// One operation.
#[derive(Debug)]
pub(crate) struct Job {
    verb: Verb,
    machine: String,
    uid: String,
    provider_id: String,
    /// Most records of a list.
    limit: usize,
    asked: Ask,
    /// Ids of the instances that are still to be deleted.
    doomed: Vec<String>,
    deleted: bool,
}

impl Job {
    /// Begins an operation; the list is to be asked for. `limit` is how many records a list may
    /// have.
    pub(crate) fn begin(operation: &Operation, limit: usize) -> Result<Self, Fault> {
        use operation::Request;
        let (verb, provider_id) = match &operation.request {
            Some(Request::CreateMachine(create)) => (Verb::Create, create.provider_id.as_str()),
            Some(Request::DeleteMachine(delete)) => (Verb::Delete, delete.provider_id.as_str()),
            Some(Request::GetMachineStatus(read)) => (Verb::Status, read.provider_id.as_str()),
            Some(Request::ListMachines(_)) => (Verb::List, ""),
            Some(Request::InitializeMachine(_)) => {
                return Err(not_known(OperationKind::InitializeMachine));
            }
            Some(Request::UpdateMachine(_)) => return Err(not_known(OperationKind::UpdateMachine)),
            Some(Request::GetVolumeIds(_)) => return Err(not_known(OperationKind::GetVolumeIds)),
            Some(Request::ValidateClass(_)) => return Err(not_known(OperationKind::ValidateClass)),
            Some(
                Request::CreatePool(_)
                | Request::UpdatePool(_)
                | Request::DeletePool(_)
                | Request::GetPoolStatus(_)
                | Request::ListPools(_)
                | Request::DeletePoolMachines(_)
                | Request::UpdatePoolMachine(_),
            ) => return Err(not_known("an operation on groups")),
            None => return Err(not_known("the operation")),
        };
        let target = operation.target.clone().unwrap_or_default();
        Ok(Self {
            verb,
            machine: target.name,
            uid: target.uid,
            provider_id: provider_id.to_owned(),
            limit,
            asked: Ask::List,
            doomed: Vec::new(),
            deleted: false,
        })
    }

    /// The machine of the operation.
    pub(crate) fn machine(&self) -> &str {
        &self.machine
    }

    /// The last question.
    pub(crate) fn asked(&self) -> &Ask {
        &self.asked
    }

    /// The driver answered the last question.
    pub(crate) fn answered(
        &mut self,
        now: Instant,
        window: &mut ConsistencyWindow,
        response: Option<Response>,
    ) -> Next {
        let next = match (&self.asked, response) {
            (Ask::List, Some(Response::Listresponse(list))) => self.listed(now, window, list),
            (Ask::Create, Some(Response::Createresponse(made))) => {
                Next::Done(self.created(now, window, made))
            }
            (Ask::Delete { .. }, Some(Response::Deleteresponse(gone))) => self.gone(window, &gone),
            (Ask::Create | Ask::Delete { .. }, None) => {
                Next::Done(Err(not_known(format_args!("`{}`", self.asked.word()))))
            }
            (Ask::List | Ask::Create | Ask::Delete { .. }, _) => {
                let word = self.asked.word();
                let message = format!("the answer to `{word}` is not one to it");
                let why = (ErrorCode::Internal, reasons::WRONG_ANSWER);
                Next::Done(Err(self.broken_off(now, window, why, &message)))
            }
        };
        if let Next::Ask(ask) = &next {
            self.asked = ask.clone();
        }
        next
    }

    /// The driver does not answer the last question, or not in a readable form.
    pub(crate) fn broken_off(
        &self,
        now: Instant,
        window: &mut ConsistencyWindow,
        (code, reason): (ErrorCode, &str),
        message: &str,
    ) -> Fault {
        if self.asked == Ask::Create {
            window.unsettled(now, &self.uid);
        }
        failure(code, reason, message, self.certainty())
    }

    /// A failure in the driver's own words. A text never proves that an instance is absent or
    /// unknown: the core would act on the claim. A list shows the absence.
    fn reported(&self, text: &str) -> Fault {
        let mut error = reported(text, self.certainty());
        let code = ErrorCode::from_number(error.code);
        let believed = match (code, &self.asked) {
            (ErrorCode::NotFound, _) => ErrorCode::Aborted,
            (ErrorCode::Unimplemented, _) => ErrorCode::Internal,
            (ErrorCode::Uninitialized, Ask::List) => ErrorCode::Unknown,
            _ => code,
        };
        error.code = believed.number();
        error
    }

    /// The certainty about the effects of a failure now.
    fn certainty(&self) -> Certainty {
        match self.asked {
            Ask::List if self.deleted => Certainty::Partial,
            Ask::List => Certainty::NotApplied,
            Ask::Create | Ask::Delete { .. } => Certainty::Unknown,
        }
    }

    fn listed(&mut self, now: Instant, window: &mut ConsistencyWindow, answer: ListResp) -> Next {
        if !answer.error.is_empty() {
            return Next::Done(Err(self.reported(&answer.error)));
        }
        let list = distinct(answer.list);
        if list.len() > self.limit {
            let message =
                format!("{} instances are listed, at most {} are read", list.len(), self.limit);
            return Next::Done(Err(failure(
                ErrorCode::ResourceExhausted,
                Reason::CoreListTooLong.word(),
                message,
                self.certainty(),
            )));
        }
        let mine = self.mine(&list);
        if !mine.is_empty() {
            window.seen(&self.uid);
        }
        match self.verb {
            Verb::Create => self.create_unless(now, window, &mine),
            Verb::Delete => self.delete_all(now, window, &mine),
            Verb::Status => Next::Done(self.one(&mine).and_then(|found| {
                let machine = Some(record(found.ok_or_else(|| self.absent())?, ""));
                let read = GetMachineStatusResponse { machine };
                Ok(Box::new(operation_result::Response::GetMachineStatus(read)))
            })),
            Verb::List => Next::Done(every(&list)),
        }
    }

    /// The instances of this machine. Instances with the machine's name; else the instance with the
    /// machine's id, unless named after another machine. INV-5.
    fn mine<'a>(&self, list: &'a [Machine]) -> Vec<&'a Machine> {
        let named: Vec<&Machine> =
            list.iter().filter(|it| it.machine_name == self.machine).collect();
        if !named.is_empty() {
            return named;
        }
        let nameless =
            |it: &&Machine| it.machine_id == self.provider_id && it.machine_name.is_empty();
        list.iter().filter(nameless).collect()
    }

    /// The instance of this machine, if at most one instance qualifies.
    fn one<'a>(&self, mine: &[&'a Machine]) -> Result<Option<&'a Machine>, Fault> {
        let exact = mine.iter().find(|it| it.machine_id == self.provider_id);
        match (exact, mine) {
            (Some(exact), _) => Ok(Some(exact)),
            (None, []) => Ok(None),
            (None, [only]) => Ok(Some(only)),
            (None, [_, _, ..]) => {
                let message = format!("{} instances are named {}", mine.len(), self.machine);
                let code = ErrorCode::OutOfRange;
                Err(failure(code, reasons::SEVERAL, message, Certainty::NotApplied))
            }
        }
    }

    fn absent(&self) -> Fault {
        let message = format!("no instance is listed for machine {}", self.machine);
        failure(ErrorCode::NotFound, reasons::NOT_LISTED, message, Certainty::NotApplied)
    }

    fn create_unless(
        &self,
        now: Instant,
        window: &mut ConsistencyWindow,
        mine: &[&Machine],
    ) -> Next {
        match self.one(mine) {
            Err(several) => Next::Done(Err(several)),
            Ok(Some(found)) => Next::Done(Ok(created(record(found, "")))),
            Ok(None) => match window.may_create(now, &self.uid) {
                Ok(()) => Next::Ask(Ask::Create),
                Err(wait) => {
                    let message = "an earlier create may still show up in the list";
                    Next::Done(Err(later(reasons::UNSETTLED, message, wait)))
                }
            },
        }
    }

    /// All that has the name: a create of unknown outcome that was sent twice is undone as well.
    fn delete_all(
        &mut self,
        now: Instant,
        window: &mut ConsistencyWindow,
        mine: &[&Machine],
    ) -> Next {
        self.doomed = mine.iter().map(|it| it.machine_id.clone()).collect();
        if let Some(provider_id) = self.doomed.pop() {
            return Next::Ask(Ask::Delete { provider_id });
        }
        match window.is_gone(now, &self.uid) {
            Ok(()) => {
                let was = if self.deleted {
                    DeletionOutcome::Deleted
                } else {
                    DeletionOutcome::WasAbsent
                };
                Next::Done(Ok(deleted(was)))
            }
            Err(wait) => Next::Done(Err(later(
                reasons::NOT_LISTED,
                format!(
                    "machine {} is not listed; it is gone if it is not listed again",
                    self.machine
                ),
                wait,
            ))),
        }
    }

    fn created(&self, now: Instant, window: &mut ConsistencyWindow, made: CreateResp) -> Outcome {
        if !made.error.is_empty() {
            window.unsettled(now, &self.uid);
            return Err(self.reported(&made.error));
        }
        // The id of a failed create is the literal `Error`, and not every driver sets the error.
        if made.provider_id.is_empty() || made.provider_id == "Error" {
            let message = "the driver created something and does not say what";
            let why = (ErrorCode::Internal, reasons::WRONG_ANSWER);
            return Err(self.broken_off(now, window, why, message));
        }
        window.seen(&self.uid);
        let machine = Machine { machine_id: made.provider_id, machine_name: self.machine.clone() };
        Ok(created(record(&machine, &made.nodename)))
    }

    fn gone(&mut self, window: &mut ConsistencyWindow, answer: &DeleteResp) -> Next {
        if !answer.error.is_empty() {
            return Next::Done(Err(self.reported(&answer.error)));
        }
        self.deleted = true;
        if let Some(provider_id) = self.doomed.pop() {
            return Next::Ask(Ask::Delete { provider_id });
        }
        window.seen(&self.uid);
        Next::Done(Ok(deleted(DeletionOutcome::Deleted)))
    }
}

impl Ask {
    /// The word of the wire.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Create => "create",
            Self::Delete { .. } => "delete",
        }
    }
}

fn not_known(what: impl std::fmt::Display) -> Fault {
    let message = format!("drivers of the first proposal do not know {what}");
    failure(ErrorCode::Unimplemented, reasons::NOT_KNOWN, message, Certainty::NotApplied)
}

/// Each instance once, and none without an id.
fn distinct(list: Vec<Machine>) -> Vec<Machine> {
    let mut seen = BTreeSet::new();
    let new = |it: &Machine| !it.machine_id.is_empty() && seen.insert(it.machine_id.clone());
    list.into_iter().filter(new).collect()
}

fn record(machine: &Machine, node_name: &str) -> MachineRecord {
    MachineRecord {
        provider_id: machine.machine_id.clone(),
        machine_name: machine.machine_name.clone(),
        node_name: node_name.to_owned(),
        ..MachineRecord::default()
    }
}

fn created(record: MachineRecord) -> Box<operation_result::Response> {
    let machine = Some(record);
    Box::new(operation_result::Response::CreateMachine(CreateMachineResponse {
        machine,
        ..Default::default()
    }))
}

fn deleted(outcome: DeletionOutcome) -> Box<operation_result::Response> {
    let outcome = outcome.into();
    let deleted = DeleteMachineResponse { outcome, ..DeleteMachineResponse::default() };
    Box::new(operation_result::Response::DeleteMachine(deleted))
}

/// A whole list. An empty list is no list: legacy drivers answer so when they could not look.
fn every(list: &[Machine]) -> Outcome {
    if list.is_empty() {
        let message = "the driver lists nothing, which does not mean that there is nothing";
        return Err(later(reasons::EMPTY_LIST, message, Duration::ZERO));
    }
    let machines = list.iter().map(|machine| record(machine, "")).collect();
    let list = ListMachinesResponse { machines, ..Default::default() };
    Ok(Box::new(operation_result::Response::ListMachines(list)))
}

#[cfg(test)]
mod tests;
