//! Recent history of a Machine: enough for a reader who comes late, and never more than a screen.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::step::{MachineStep, OperationVerb};

/// Steps that are kept; a whole life has about a dozen.
pub const MOST_STEPS: usize = 16;
/// Most answers kept.
pub const MOST_ANSWERS: usize = 8;

/// What happened to a Machine lately. Nothing decides by it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineHistory {
    /// Steps that ended, oldest first, at most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<EndedStep>,
    /// What drivers answered, oldest first, at most 8. The same answer again is counted, not added.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<DriverAnswer>,
}

/// A step that ended, well or because something else had to be done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EndedStep {
    /// The step.
    pub step: MachineStep,
    /// When it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When it ended.
    pub ended_at: Time,
}

/// What a driver answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DriverAnswer {
    /// The verb.
    pub kind: OperationVerb,
    /// `OK`, or the name of the result code.
    pub code: String,
    /// What the driver said, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When it came last.
    pub at: Time,
    /// How often it came in a row.
    pub times: i32,
}

impl MachineHistory {
    /// A step ended.
    pub fn step_ended(&mut self, step: MachineStep, started_at: Option<Time>, ended_at: Time) {
        self.steps.push(EndedStep { step, started_at, ended_at });
        shorten(&mut self.steps, MOST_STEPS);
    }

    /// A driver answered. `code` is `OK` or the name of the result code.
    pub fn answered(&mut self, kind: OperationVerb, code: &str, message: Option<String>, at: Time) {
        if let Some(last) = self.answers.last_mut()
            && last.kind == kind
            && last.code == code
            && last.message == message
        {
            last.times = last.times.saturating_add(1);
            last.at = at;
            return;
        }
        self.answers.push(DriverAnswer { kind, code: code.to_owned(), message, at, times: 1 });
        shorten(&mut self.answers, MOST_ANSWERS);
    }
}

fn shorten<T>(list: &mut Vec<T>, most: usize) {
    let surplus = list.len().saturating_sub(most);
    list.drain(..surplus);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Time {
        Time(k8s_openapi::jiff::Timestamp::from_second(second).unwrap())
    }

    #[test]
    fn only_the_latest_steps_and_answers_are_kept() {
        let mut history = MachineHistory::default();
        for second in 0..100 {
            history.step_ended(MachineStep::JoinNode, Some(at(second)), at(second + 1));
            let code = if second % 2 == 0 { "OK" } else { "Internal" };
            history.answered(OperationVerb::CreateMachine, code, None, at(second));
        }
        assert_eq!(history.steps.len(), MOST_STEPS);
        assert_eq!(history.steps.last().unwrap().ended_at, at(100));
        assert_eq!(history.answers.len(), MOST_ANSWERS);
        assert_eq!(history.answers.last().unwrap().at, at(99));
    }

    #[test]
    fn the_same_answer_again_is_counted() {
        let mut history = MachineHistory::default();
        for second in 0..3 {
            history.answered(OperationVerb::GetMachineStatus, "NotFound", None, at(second));
        }
        let [answer] = history.answers.as_slice() else { panic!("{history:?}") };
        assert_eq!((answer.times, &answer.at), (3, &at(2)));
    }
}
