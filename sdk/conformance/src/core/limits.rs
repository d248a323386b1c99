//! The sizes that the contract allows a driver.

use ostler_proto::v1alpha1 as proto;
use proto::operation_completed::Outcome;
use proto::register_request::Frame;

/// Largest frame that the suite says it can read.
pub(crate) const FRAME: u32 = 1024 * 1024;
/// All of a frame but user data and provider specs, of which a driver sends none.
const LEAN_FRAME: usize = 64 * 1024;
const MESSAGE: usize = 2 * 1024;
const CHECKPOINT: usize = 4 * 1024;
const WORD: usize = 256;
const INSTANCE_ID: usize = 63;

/// What is too large in a frame.
pub(crate) fn broken(frame: Option<&Frame>, bytes: usize) -> Vec<String> {
    let mut found = Found(Vec::new());
    if let Some(frame) = frame {
        found.frame(frame);
    }
    match frame {
        // What it holds may be a thousand operations.
        Some(Frame::Hello(_)) => found.check("a Hello", bytes, FRAME as usize),
        _ => found.check("a frame", bytes, LEAN_FRAME),
    }
    found.0
}

struct Found(Vec<String>);

impl Found {
    fn check(&mut self, what: &str, bytes: usize, limit: usize) {
        if bytes > limit {
            self.0.push(format!("{what} of {bytes} bytes, the limit is {limit}"));
        }
    }

    fn frame(&mut self, frame: &Frame) {
        match frame {
            Frame::Progress(progress) => {
                self.check("the message of progress", progress.message.len(), MESSAGE);
                self.check("the checkpoint of progress", progress.checkpoint.len(), CHECKPOINT);
                self.check("the stage of progress", progress.stage.len(), WORD);
                if progress.percent > 100 {
                    self.0.push(format!("progress of {} percent", progress.percent));
                }
            }
            Frame::Completed(completed) => {
                self.check(
                    "the checkpoint of a completion",
                    completed.checkpoint.len(),
                    CHECKPOINT,
                );
                match &completed.outcome {
                    Some(Outcome::Error(error)) => self.error(error),
                    Some(Outcome::Result(result)) => self.result(result),
                    None => self.0.push("a completion without result and error".to_owned()),
                }
            }
            Frame::Page(page) => {
                self.records(&page.machines);
                self.pool_records(&page.pools);
                self.pool_machines(&page.pool_machines);
            }
            Frame::Hello(hello) => self.check("a provider name", hello.provider.len(), 63),
            Frame::Event(event) => {
                self.check("the message of an event", event.message.len(), MESSAGE);
                self.check("an id of an event", event.provider_id.len(), WORD);
            }
            Frame::Accepted(_) | Frame::State(_) | Frame::Heartbeat(_) => {}
        }
    }

    fn error(&mut self, error: &proto::OperationError) {
        self.check("the message of an error", error.message.len(), MESSAGE);
        self.check("the reason of an error", error.reason.len(), WORD);
        self.check("the provider_code of an error", error.provider_code.len(), WORD);
        let id = &error.provider_request_id;
        self.check("the provider_request_id of an error", id.len(), WORD);
    }

    fn result(&mut self, result: &proto::OperationResult) {
        use proto::operation_result::Response;
        match &result.response {
            Some(Response::CreateMachine(response)) => self.records(response.machine.as_ref()),
            Some(Response::InitializeMachine(response)) => self.records(response.machine.as_ref()),
            Some(Response::GetMachineStatus(response)) => self.records(response.machine.as_ref()),
            Some(Response::ListMachines(response)) => self.records(&response.machines),
            Some(Response::CreatePool(response)) => self.pool_records(response.pool.as_ref()),
            Some(Response::UpdatePool(response)) => self.pool_records(response.pool.as_ref()),
            Some(Response::GetPoolStatus(response)) => {
                self.pool_records(response.pool.as_ref());
                self.pool_machines(&response.machines);
            }
            Some(Response::ListPools(response)) => self.pool_records(&response.pools),
            Some(Response::DeletePoolMachines(response)) => {
                self.pool_records(response.pool.as_ref());
                let failed = response.not_deleted.iter();
                failed.filter_map(|it| it.error.as_ref()).for_each(|error| self.error(error));
            }
            Some(Response::UpdatePoolMachine(response)) => {
                self.pool_machines(response.machine.as_ref());
            }
            Some(
                Response::UpdateMachine(_)
                | Response::DeleteMachine(_)
                | Response::GetVolumeIds(_)
                | Response::ValidateClass(_)
                | Response::DeletePool(_),
            )
            | None => {}
        }
    }

    fn records<'a>(&mut self, records: impl IntoIterator<Item = &'a proto::MachineRecord>) {
        records.into_iter().for_each(|record| self.record(record));
    }

    fn pool_records<'a>(&mut self, records: impl IntoIterator<Item = &'a proto::PoolRecord>) {
        for record in records {
            self.check("the provider_id of a group", record.provider_id.len(), WORD);
            record.fault.iter().for_each(|fault| self.error(fault));
        }
    }

    fn pool_machines<'a>(
        &mut self,
        records: impl IntoIterator<Item = &'a proto::PoolMachineRecord>,
    ) {
        for record in records {
            self.check("the instance_id of an instance", record.instance_id.len(), INSTANCE_ID);
            self.records(record.machine.as_ref());
        }
    }

    fn record(&mut self, record: &proto::MachineRecord) {
        self.check("a provider_id", record.provider_id.len(), WORD);
        if let Some(fault) = &record.fault {
            self.error(fault);
        }
    }
}
