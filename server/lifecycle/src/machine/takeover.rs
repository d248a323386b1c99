//! Deletions that machine-controller of machine-controller-manager left half done.
//!
//! It keeps its state in the text of the last operation: each step appends what comes next. That
//! text is read here once, when a deletion is taken over, and nowhere else; INV-9 is about our own.

use ostler_api::machine::{DrainProgress, MachineOperationType, MachineStep};

use super::pass::Pass;

/// What comes next, and with it what is done already.
const NEXT: [(&str, MachineStep, Done); 5] = [
    ("Initiate node drain", MachineStep::FindInstance, Done::Nothing),
    ("Delete Volume Attachments", MachineStep::DetachVolumes, Done::ForcedDrain),
    ("Initiate VM deletion", MachineStep::DeleteInstance, Done::Drain),
    // The driver is asked again: nobody but a driver can say that an instance is gone (INV-3).
    ("Initiate node object deletion", MachineStep::DeleteInstance, Done::Drain),
    ("Initiate machine object finalizer removal", MachineStep::DeleteInstance, Done::Drain),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Done {
    Nothing,
    Drain,
    ForcedDrain,
}

/// The step at which a deletion goes on that another controller began; `None`: from the start.
/// Only the end of the text counts: what a provider said may stand before it.
pub(crate) fn step(pass: &mut Pass<'_>) -> Option<MachineStep> {
    let last = pass.status.last_operation.as_ref()?;
    if pass.status.step.is_some() || last.type_ != Some(MachineOperationType::Delete) {
        return None;
    }
    let text = last.description.as_deref()?.trim_end();
    let (_, step, done) = NEXT.iter().find(|(marker, _, _)| text.ends_with(marker))?;
    if *done != Done::Nothing {
        pass.status.drain = Some(DrainProgress {
            forced: *done == Done::ForcedDrain,
            finished: true,
            ..DrainProgress::default()
        });
    }
    Some(step.clone())
}
