//! The suite between driver and cloud: at each request of each operation the cloud fails in each of its ways, and
//! afterwards the same holds as without that.

mod cases;
mod stage;

use self::cases::Verb;
use self::stage::Stage;
use crate::bench::Bench;
use crate::check::{Gate, checks};
use crate::outcome::Outcome;
use ostler_proto::v1alpha1::OperationKind;

const MANUAL: &str =
    "driver.proto, \"Certainty\" and \"Idempotency\"; operation.proto, MachineErrorCode";

checks! {
    "faults/create" => create, Must, Faults, [Gate::Creates], MANUAL;
        does: "has one instance and says truthfully what is left, whichever request of a create fails, and how",
        why: "an answer that is lost after the work was done is how machines get two instances, and instances no machine";
    "faults/status" => status, Must, Faults, [Gate::Creates, Gate::Kind(OperationKind::GetMachineStatus)], MANUAL;
        does: "never says that there is none because a request failed",
        why: "the core takes it for absent: it makes it anew, or forgets it";
    "faults/list" => list, Must, Faults, [Gate::Creates], MANUAL;
        does: "answers with all instances or with an error, whichever request of a list fails, be it for its last page",
        why: "what is missing in the list is replaced, or never deleted";
    "faults/initialize" => initialize, Must, Faults, [Gate::Creates, Gate::Kind(OperationKind::InitializeMachine)], MANUAL;
        does: "says initialized only if it is, whichever request fails, and finishes when it is asked again",
        why: "the core never asks again after a result";
    "faults/update" => update, Capability, Faults, [Gate::Creates, Gate::Kind(OperationKind::UpdateMachine), Gate::HotClass], MANUAL;
        does: "says applied only if it is, whichever request fails, and finishes when it is asked again",
        why: "the core records the spec as applied, and never looks again";
    "faults/delete" => delete, Must, Faults, [Gate::Creates], MANUAL;
        does: "says gone only if all of it is, whichever request of a deletion fails, and finishes when it is asked again",
        why: "the core forgets the machine then, and what is left costs money for ever";
}

async fn create(bench: &Bench) -> Outcome {
    Stage::play_all(bench, &[Verb::Create, Verb::CreateDeleted]).await
}

async fn status(bench: &Bench) -> Outcome {
    Stage::play_all(bench, &[Verb::Status, Verb::StatusById]).await
}

async fn list(bench: &Bench) -> Outcome {
    Stage::play_all(bench, &[Verb::List]).await
}

async fn initialize(bench: &Bench) -> Outcome {
    Stage::play_all(bench, &[Verb::Initialize]).await
}

async fn update(bench: &Bench) -> Outcome {
    Stage::play_all(bench, &[Verb::Update]).await
}

async fn delete(bench: &Bench) -> Outcome {
    Stage::play_all(bench, &[Verb::Delete, Verb::DeleteById]).await
}
