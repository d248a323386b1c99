use std::time::Duration;

use operation::Request;
use ostler_api::driver::{Certainty, ErrorCode};
use ostler_proto::v1alpha1::{
    CreateMachineRequest, DeleteMachineRequest, GetMachineStatusRequest, InitializeMachineRequest,
    ListMachinesRequest, Target, UpdateMachineRequest,
};

use super::*;

const HOUR: Duration = Duration::from_hours(1);

/// A job for machine `m`, and a core that has run for an hour.
struct Table {
    job: Job,
    window: ConsistencyWindow,
    now: Instant,
}

impl Table {
    fn of(request: Request) -> Self {
        let now = Instant::now();
        let window = ConsistencyWindow::new(now, Duration::from_mins(1));
        Self { job: begin(request).unwrap(), window, now: now + HOUR }
    }

    fn create() -> Self {
        Self::of(Request::CreateMachine(CreateMachineRequest::default()))
    }

    fn delete() -> Self {
        Self::of(Request::DeleteMachine(DeleteMachineRequest {
            provider_id: "i-1".into(),
            ..Default::default()
        }))
    }

    fn status(provider_id: &str) -> Self {
        let provider_id = provider_id.into();
        Self::of(Request::GetMachineStatus(GetMachineStatusRequest {
            provider_id,
            ..Default::default()
        }))
    }

    fn hears(&mut self, response: impl Into<Option<Response>>) -> Next {
        self.job.answered(self.now, &mut self.window, response.into())
    }

    fn fails(&mut self, response: impl Into<Option<Response>>) -> (ErrorCode, String, Certainty) {
        let Next::Done(Err(error)) = self.hears(response) else { panic!("{:?}", self.job) };
        let code = ErrorCode::from_number(error.code);
        (code, error.reason, Certainty::from_number(error.certainty))
    }
}

fn begin(request: Request) -> Result<Job, Fault> {
    let target = Target { name: "m".into(), uid: "u".into(), ..Target::default() };
    let operation =
        Operation { target: Some(target), request: Some(request), ..Operation::default() };
    Job::begin(&operation, 3)
}

fn list(machines: &[(&str, &str)]) -> Response {
    let machine = |(id, name): &(&str, &str)| Machine {
        machine_id: (*id).into(),
        machine_name: (*name).into(),
    };
    let list = machines.iter().map(machine).collect();
    Response::Listresponse(ListResp { list, error: String::new() })
}

fn made(provider_id: &str, error: &str) -> Response {
    Response::Createresponse(CreateResp {
        provider_id: provider_id.into(),
        nodename: "node".into(),
        error: error.into(),
    })
}

fn gone(error: &str) -> Response {
    Response::Deleteresponse(DeleteResp { error: error.into() })
}

fn done_with(provider_id: &str, node_name: &str) -> Next {
    let machine = Machine { machine_id: provider_id.into(), machine_name: "m".into() };
    Next::Done(Ok(created(record(&machine, node_name))))
}

#[tokio::test(start_paused = true)]
async fn a_create_looks_first_and_then_asks_for_the_instance() {
    let mut table = Table::create();
    assert_eq!(table.hears(list(&[("i-9", "other")])), Next::Ask(Ask::Create));
    assert_eq!(table.hears(made("i-1", "")), done_with("i-1", "node"));
}

#[tokio::test(start_paused = true)]
async fn a_create_that_finds_the_instance_adopts_it() {
    let mut table = Table::create();
    assert_eq!(table.hears(list(&[("i-9", "other"), ("i-1", "m")])), done_with("i-1", ""));
}

#[tokio::test(start_paused = true)]
async fn after_a_create_of_unknown_outcome_the_next_one_waits_and_looks_again() {
    let mut table = Table::create();
    assert_eq!(table.hears(list(&[])), Next::Ask(Ask::Create));
    let failed = table.fails(made("Error", "RequestTimeout"));
    assert_eq!(failed, (ErrorCode::Unknown, reasons::DRIVER_ERROR.into(), Certainty::Unknown));
    table.job = Table::create().job;
    let refused = table.fails(list(&[]));
    assert_eq!(refused, (ErrorCode::Unavailable, reasons::UNSETTLED.into(), Certainty::NotApplied));
    table.now += Duration::from_mins(1);
    assert_eq!(table.hears(list(&[])), Next::Ask(Ask::Create));
}

#[tokio::test(start_paused = true)]
async fn a_created_instance_without_an_id_is_of_unknown_outcome() {
    for id in ["", "Error"] {
        let mut table = Table::create();
        table.hears(list(&[]));
        let failed = table.fails(made(id, ""));
        assert_eq!(failed, (ErrorCode::Internal, reasons::WRONG_ANSWER.into(), Certainty::Unknown));
    }
}

#[tokio::test(start_paused = true)]
async fn a_delete_takes_every_instance_of_the_name_and_no_other() {
    let mut table = Table::delete();
    let listed = list(&[("i-1", "m"), ("i-2", "other"), ("i-3", "m")]);
    let ask = |id: &str| Next::Ask(Ask::Delete { provider_id: id.into() });
    assert_eq!(table.hears(listed), ask("i-3"));
    assert_eq!(table.hears(gone("")), ask("i-1"));
    let all = deleted(DeletionOutcome::Deleted);
    assert_eq!(table.hears(gone("")), Next::Done(Ok(all)));
}

#[tokio::test(start_paused = true)]
async fn an_instance_of_another_name_is_not_deleted_by_its_id() {
    let mut table = Table::delete();
    let refused = table.fails(list(&[("i-1", "other")]));
    assert_eq!(refused.1, reasons::NOT_LISTED);
}

#[tokio::test(start_paused = true)]
async fn a_delete_that_finds_nothing_looks_again_before_it_says_so() {
    let mut table = Table::delete();
    let refused = table.fails(list(&[]));
    assert_eq!(
        refused,
        (ErrorCode::Unavailable, reasons::NOT_LISTED.into(), Certainty::NotApplied)
    );
    table.now += Duration::from_mins(1);
    let none = deleted(DeletionOutcome::WasAbsent);
    assert_eq!(table.hears(list(&[])), Next::Done(Ok(none)));
}

#[tokio::test(start_paused = true)]
async fn a_text_never_says_that_an_instance_is_gone() {
    let not_found = "machine codes error: code = [NotFound] message = [no such instance]";
    let mut table = Table::delete();
    table.hears(list(&[("i-1", "m")]));
    assert_eq!(table.fails(gone(not_found)).0, ErrorCode::Aborted);
    for code in ["NotFound", "Unimplemented", "Uninitialized", "Initialization"] {
        let error = format!("machine codes error: code = [{code}] message = [x]");
        let answer = Some(Response::Listresponse(ListResp { list: Vec::new(), error }));
        let failed = Table::status("i-1").fails(answer);
        let sees = [ErrorCode::NotFound, ErrorCode::Unimplemented, ErrorCode::Uninitialized];
        assert!(!sees.contains(&failed.0), "{code}: {failed:?}");
        assert_eq!(failed.2, Certainty::NotApplied);
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_is_a_list_matched_by_name_and_then_by_id() {
    let found = |next| {
        let Next::Done(Ok(response)) = next else { panic!("{next:?}") };
        let operation_result::Response::GetMachineStatus(read) = *response else {
            panic!("{response:?}")
        };
        read.machine.unwrap().provider_id
    };
    assert_eq!(found(Table::status("").hears(list(&[("i-1", "m")]))), "i-1");
    assert_eq!(found(Table::status("i-2").hears(list(&[("i-1", "m"), ("i-2", "m")]))), "i-2");
    assert_eq!(found(Table::status("i-2").hears(list(&[("i-2", "")]))), "i-2");
    let several = Table::status("").fails(list(&[("i-1", "m"), ("i-2", "m")]));
    assert_eq!((several.0, several.1.as_str()), (ErrorCode::OutOfRange, reasons::SEVERAL));
    for absent in [list(&[]), list(&[("i-2", "other")]), list(&[("", "m")])] {
        assert_eq!(Table::status("i-2").fails(absent).0, ErrorCode::NotFound);
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_list_is_no_list_and_a_long_one_neither() {
    let listing = || Table::of(Request::ListMachines(ListMachinesRequest::default()));
    assert_eq!(listing().fails(list(&[])).1, reasons::EMPTY_LIST);
    let long = list(&[("1", ""), ("2", ""), ("3", ""), ("4", "")]);
    assert_eq!(listing().fails(long).0, ErrorCode::ResourceExhausted);
    let twice = list(&[("1", "a"), ("1", "a"), ("2", "b")]);
    let Next::Done(Ok(response)) = listing().hears(twice) else { panic!("a list is expected") };
    let operation_result::Response::ListMachines(all) = *response else { panic!("{response:?}") };
    assert_eq!(all.machines.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_another_kind_is_of_unknown_outcome_and_an_empty_one_changed_nothing() {
    let mut table = Table::create();
    table.hears(list(&[]));
    assert_eq!(table.fails(gone("")).2, Certainty::Unknown);
    let mut table = Table::create();
    table.hears(list(&[]));
    let unknown = table.fails(None);
    assert_eq!((unknown.0, unknown.2), (ErrorCode::Unimplemented, Certainty::NotApplied));
    // A status that fails so must not look like a driver without the verb: the core would create.
    assert_eq!(Table::status("").fails(None).0, ErrorCode::Internal);
}

#[test]
fn what_cannot_be_made_of_create_delete_and_list_is_not_known() {
    for request in [
        Request::InitializeMachine(InitializeMachineRequest::default()),
        Request::UpdateMachine(UpdateMachineRequest::default()),
    ] {
        let error = begin(request).unwrap_err();
        assert_eq!(ErrorCode::from_number(error.code), ErrorCode::Unimplemented);
    }
}
