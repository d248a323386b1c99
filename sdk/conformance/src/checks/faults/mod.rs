//! The suite between driver and cloud: at each request of each operation the cloud fails in each of its ways, and
//! afterwards the same holds as without that.

mod cases;
mod groups;
mod stage;
mod way;

use self::cases::Verb;
use self::groups::{Groups, Verb as GroupVerb};
use self::stage::Stage;
use crate::bench::Bench;
use crate::check::{Gate, checks};
use crate::outcome::Outcome;
use ostler_proto::v1alpha1::OperationKind;

const MANUAL: &str =
    "driver.proto, \"Certainty\" and \"Idempotency\"; operation.proto, MachineErrorCode";

const POOLS: Gate = Gate::Kind(OperationKind::CreatePool);

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
    "faults/pool-create" => pool_create, Capability, Faults, [POOLS, Gate::Creates], MANUAL;
        does: "has one group of the size that was asked for, and says truthfully what is left, whichever request of CreatePool fails",
        why: "a second group is a second bill, and a group that no pool knows costs money for ever";
    "faults/pool-status" => pool_status, Capability, Faults, [POOLS, Gate::Creates], MANUAL;
        does: "tells all instances of a group or an error, whichever request fails, and never that there is no group",
        why: "the core takes an instance that is not told for gone, with its Machine and its Node";
    "faults/pool-list" => pool_list, Capability, Faults, [POOLS, Gate::Creates], MANUAL;
        does: "answers with all groups or with an error, whichever request of the list fails",
        why: "a group that is not listed is no orphan, and costs money for ever";
    "faults/pool-update" => pool_update, Capability, Faults, [POOLS, Gate::Creates], MANUAL;
        does: "says changed only if size and model are, whichever request fails, and finishes when it is asked again",
        why: "the core believes the size, and makes instances of the model that it was told";
    "faults/pool-delete" => pool_delete, Capability, Faults, [POOLS, Gate::Creates], MANUAL;
        does: "says gone only if group, instances and parts are, whichever request fails, and finishes when it is asked again",
        why: "the core forgets the pool then, and what is left costs money for ever";
    "faults/pool-delete-machines" => pool_delete_machines, Capability, Faults,
        [POOLS, Gate::Kind(OperationKind::DeletePoolMachines), Gate::Creates], MANUAL;
        does: "deletes the named instance alone and lowers the size once, whichever request fails, and when it is asked again",
        why: "a size that falls twice takes an instance that nobody drained";
    "faults/pool-update-machine" => pool_update_machine, Capability, Faults,
        [POOLS, Gate::Kind(OperationKind::UpdatePoolMachine), Gate::Creates], MANUAL;
        does: "tells the new model of an instance only if the instance has it, whichever request fails",
        why: "the core takes the model that is told for the one that the instance has";
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

async fn pool_create(bench: &Bench) -> Outcome {
    Groups::play_all(bench, &[GroupVerb::Create, GroupVerb::CreateDeleted]).await
}

async fn pool_status(bench: &Bench) -> Outcome {
    Groups::play_all(bench, &[GroupVerb::Status, GroupVerb::StatusById]).await
}

async fn pool_list(bench: &Bench) -> Outcome {
    Groups::play_all(bench, &[GroupVerb::List]).await
}

async fn pool_update(bench: &Bench) -> Outcome {
    Groups::play_all(bench, &[GroupVerb::Update]).await
}

async fn pool_delete(bench: &Bench) -> Outcome {
    Groups::play_all(bench, &[GroupVerb::Delete, GroupVerb::DeleteById]).await
}

async fn pool_delete_machines(bench: &Bench) -> Outcome {
    Groups::play_all(bench, &[GroupVerb::DeleteMachines]).await
}

async fn pool_update_machine(bench: &Bench) -> Outcome {
    Groups::play_all(bench, &[GroupVerb::UpdateMachine]).await
}
