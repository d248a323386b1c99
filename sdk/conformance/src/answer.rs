//! What became of an operation.

use std::time::Duration;

use ostler_proto::v1alpha1 as proto;
use proto::operation_completed::Outcome as Completed;
use proto::operation_result::Response;
use proto::register_request::Frame;
use proto::{
    DeleteMachineResponse, DeletionOutcome, MachineErrorCode, MachineErrorReason, MachineRecord,
    Operation, OperationCompleted, OperationError, OperationPage, OutcomeCertainty, PartRecord,
};
use tokio::time::Instant;

use crate::core::session::Session;
use crate::core::within;
use crate::machine::title;
use crate::outcome::{NotPassed, Outcome, ensure, failed};

/// The end of an operation.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) title: String,
    pub(crate) completed: OperationCompleted,
    /// Pages since the last page with index 0.
    pub(crate) pages: Vec<OperationPage>,
    /// From the sending to the completion.
    pub(crate) took: Duration,
    /// It was asked more than once, and an earlier try may have done some of it.
    pub(crate) repeated: bool,
    /// The driver knows its instances by their names.
    pub(crate) by_name: bool,
}

/// Waits for the completion of an operation in a session, from a place in its log on.
pub(crate) async fn collect(
    session: &Session,
    from: usize,
    operation: &Operation,
    limit: Duration,
) -> Outcome<Answer> {
    let title = title(operation);
    let sent = Instant::now();
    let mut pages: Vec<OperationPage> = Vec::new();
    let completed = session.log.find(from, |entry| match &entry.frame {
        Some(Frame::Page(page)) if page.operation_id == operation.operation_id => {
            if page.index == 0 {
                pages.clear();
            }
            pages.push(page.clone());
            None
        }
        Some(Frame::Completed(done)) if done.operation_id == operation.operation_id => {
            Some((done.as_ref().clone(), entry.at))
        }
        _ => None,
    });
    let expected = format!("OperationCompleted for {title}");
    let found = within(limit, &expected, completed).await?;
    let (completed, at) = found
        .map_err(|how| failed(&expected, format_args!("the session ended before it: {how}")))?;
    let took = at.saturating_duration_since(sent);
    Ok(Answer { title, completed, pages, took, repeated: false, by_name: false })
}

impl Answer {
    /// The result; an error is a failure.
    pub(crate) fn result(&self) -> Outcome<Response> {
        match &self.completed.outcome {
            Some(Completed::Result(result)) => result
                .response
                .clone()
                .ok_or_else(|| self.instead("a result", "a result without any arm")),
            Some(Completed::Error(error)) => Err(self.instead("a result", &shown(error))),
            None => Err(self.instead("a result", "a completion without result and error")),
        }
    }

    /// The error; a result is a failure.
    pub(crate) fn error(&self, expected: &str) -> Outcome<OperationError> {
        match &self.completed.outcome {
            Some(Completed::Error(error)) => Ok(error.clone()),
            Some(Completed::Result(result)) => Err(self.instead(expected, &arm(result))),
            None => Err(self.instead(expected, "a completion without result and error")),
        }
    }

    /// The error after which a core asks the same again soon, if it is one.
    pub(crate) fn passing(&self) -> Option<&OperationError> {
        let Some(Completed::Error(error)) = &self.completed.outcome else { return None };
        // These two have a meaning of their own: the core sends something else.
        let own = error.reason == "STALE_REVISION"
            || error.acts_by() == MachineErrorReason::DriverDraining;
        let passes = matches!(
            error.code(),
            MachineErrorCode::Unknown
                | MachineErrorCode::DeadlineExceeded
                | MachineErrorCode::ResourceExhausted
                | MachineErrorCode::Aborted
                | MachineErrorCode::Unavailable
        );
        (passes && !own).then_some(error)
    }

    /// The error; its code must be one of `codes`.
    pub(crate) fn error_of(&self, codes: &[MachineErrorCode]) -> Outcome<OperationError> {
        let names: Vec<&str> = codes.iter().map(|code| code_name(*code)).collect();
        let expected = names.join(" or ");
        let error = self.error(&expected)?;
        if codes.contains(&error.code()) {
            return Ok(error);
        }
        Err(self.instead(&expected, &shown(&error)))
    }

    /// As [`error_of`](Self::error_of), and it must say that nothing was changed.
    pub(crate) fn refusal(&self, codes: &[MachineErrorCode]) -> Outcome<OperationError> {
        let error = self.error_of(codes)?;
        let expected = format!("{} with certainty NOT_APPLIED", code_name(error.code()));
        let ok = error.certainty() == OutcomeCertainty::NotApplied;
        ensure(ok, format_args!("{}: {expected}", self.title), shown(&error))?;
        Ok(error)
    }

    /// The refusal of an instance that is not the machine's, which names it.
    pub(crate) fn not_ours(&self, provider_id: &str) -> Outcome<OperationError> {
        let error = self.refusal(&[MachineErrorCode::FailedPrecondition])?;
        let expected = format!("FAILED_PRECONDITION, NOT_OURS with provider_id {provider_id}");
        let named =
            error.acts_by() == MachineErrorReason::NotOurs && error.provider_id == provider_id;
        let came = format!("{} with provider_id {:?}", shown(&error), error.provider_id);
        ensure(named, format_args!("{}: {expected}", self.title), came)?;
        Ok(error)
    }

    /// The result of a deletion; it must equal `wanted`.
    pub(crate) fn deletion(&self, expected: DeletionOutcome) -> Outcome<DeleteMachineResponse> {
        let result = self.result()?;
        let Response::DeleteMachine(response) = result else {
            return Err(self.instead("DeleteMachineResponse", &response_name(&result)));
        };
        let wanted = format!("{}: {}", self.title, expected.as_str_name());
        // The first try may have done it, and ended with an error all the same.
        let done_before = self.repeated && response.outcome() == DeletionOutcome::WasAbsent;
        let fits = response.outcome() == expected || done_before;
        ensure(fits, wanted, response.outcome().as_str_name())?;
        Ok(response)
    }

    /// The machine in the result of a create, an initialization or a status.
    pub(crate) fn machine(&self) -> Outcome<MachineRecord> {
        let machine = match self.result()? {
            Response::CreateMachine(response) => response.machine,
            Response::InitializeMachine(response) => response.machine,
            Response::GetMachineStatus(response) => response.machine,
            other @ (Response::UpdateMachine(_)
            | Response::DeleteMachine(_)
            | Response::ListMachines(_)
            | Response::GetVolumeIds(_)
            | Response::ValidateClass(_)
            | Response::CreatePool(_)
            | Response::UpdatePool(_)
            | Response::DeletePool(_)
            | Response::GetPoolStatus(_)
            | Response::ListPools(_)
            | Response::DeletePoolMachines(_)
            | Response::UpdatePoolMachine(_)) => {
                return Err(self.instead("a result with a machine", &response_name(&other)));
            }
        };
        machine.ok_or_else(|| self.instead("a result with a machine", "a result without one"))
    }

    /// The machines in the result of a list, from its pages if it has any.
    pub(crate) fn machines(&self) -> Outcome<Vec<MachineRecord>> {
        let result = self.result()?;
        let Response::ListMachines(list) = result else {
            return Err(self.instead("ListMachinesResponse", &response_name(&result)));
        };
        self.whole_pages(list.pages)?;
        let paged = self.pages.iter().flat_map(|page| page.machines.iter().cloned());
        Ok(paged.chain(list.machines).collect())
    }

    /// The parts in the result of a list, from its pages if it has any.
    pub(crate) fn parts(&self) -> Outcome<Vec<PartRecord>> {
        let result = self.result()?;
        let Response::ListMachines(list) = result else {
            return Err(self.instead("ListMachinesResponse", &response_name(&result)));
        };
        self.whole_pages(list.pages)?;
        let paged = self.pages.iter().flat_map(|page| page.parts.iter().cloned());
        Ok(paged.chain(list.parts).collect())
    }

    /// So many pages came, one after the other.
    pub(crate) fn whole_pages(&self, count: u32) -> Outcome {
        let indexes: Vec<u32> = self.pages.iter().map(|page| page.index).collect();
        let wanted: Vec<u32> = (0..count).collect();
        ensure(
            indexes == wanted,
            format_args!("{count} pages, index 0, 1, 2, … without a gap"),
            format_args!("pages with the indexes {indexes:?}"),
        )
    }

    fn instead(&self, expected: &str, came: &str) -> NotPassed {
        failed(format_args!("{}: {expected}", self.title), came)
    }
}

/// The name of a code as in the contract.
pub(crate) fn code_name(code: MachineErrorCode) -> &'static str {
    code.as_str_name().trim_start_matches("MACHINE_ERROR_CODE_")
}

/// An error, for people.
pub(crate) fn shown(error: &OperationError) -> String {
    let code = code_name(error.code());
    let certainty = error.certainty().as_str_name().trim_start_matches("OUTCOME_CERTAINTY_");
    let violations: Vec<&str> = error.violations.iter().map(|it| it.path.as_str()).collect();
    let mut text = format!("{code} {:?}, certainty {certainty}", error.reason);
    if !violations.is_empty() {
        text = format!("{text}, violations at {}", violations.join(", "));
    }
    format!("{text}: {}", error.message)
}

fn arm(result: &proto::OperationResult) -> String {
    result.response.as_ref().map_or_else(|| "an empty result".to_owned(), response_name)
}

pub(crate) fn response_name(response: &Response) -> String {
    let name = match response {
        Response::CreateMachine(_) => "CreateMachineResponse",
        Response::InitializeMachine(_) => "InitializeMachineResponse",
        Response::UpdateMachine(_) => "UpdateMachineResponse",
        Response::DeleteMachine(_) => "DeleteMachineResponse",
        Response::GetMachineStatus(_) => "GetMachineStatusResponse",
        Response::ListMachines(_) => "ListMachinesResponse",
        Response::GetVolumeIds(_) => "GetVolumeIdsResponse",
        Response::ValidateClass(_) => "ValidateClassResponse",
        Response::CreatePool(_) => "CreatePoolResponse",
        Response::UpdatePool(_) => "UpdatePoolResponse",
        Response::DeletePool(_) => "DeletePoolResponse",
        Response::GetPoolStatus(_) => "GetPoolStatusResponse",
        Response::ListPools(_) => "ListPoolsResponse",
        Response::DeletePoolMachines(_) => "DeletePoolMachinesResponse",
        Response::UpdatePoolMachine(_) => "UpdatePoolMachineResponse",
    };
    format!("a result: {name}")
}

/// Two records are of one instance.
pub(crate) fn same_instance(one: &MachineRecord, two: &MachineRecord) -> Outcome {
    ensure(
        one.provider_id == two.provider_id,
        format_args!("the instance {}", one.provider_id),
        format_args!("the instance {:?}", two.provider_id),
    )
}

/// A class that is refused is refused with what is wrong in it.
pub(crate) fn tells_paths(error: &OperationError) -> Outcome {
    let paths = error.violations.iter().all(|violation| !violation.path.is_empty());
    ensure(
        !error.violations.is_empty() && paths,
        "violations, each with a path",
        format_args!("{:?}", error.violations),
    )
}
