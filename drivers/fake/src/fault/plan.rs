//! The effect of a rule on a call.

use std::time::Duration;

use ostler_driver_sdk::{Certainty, Code, DriverError};

use super::{Fault, Verb};

/// The effect of one rule on a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// How much longer the call takes.
    pub latency: Duration,
    /// The failure; nothing for a rule that is only slow.
    pub action: Option<Action>,
}

/// What goes wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// The call fails.
    Fail(When, Failure),
    /// The work is done and the answer never comes.
    LoseReply,
    /// The process dies.
    Crash(When),
    /// An update stops after so many resources, and fails.
    ApplyPartially(usize, Failure),
    /// The answer names this provider id.
    AnswerProviderId(String),
}

/// Before or after the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Before.
    Before,
    /// After.
    After,
}

/// The error that is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    code: Code,
    certainty: Certainty,
    reason: String,
    message: String,
    retry_after: Option<Duration>,
}

impl From<Failure> for DriverError {
    fn from(failure: Failure) -> Self {
        let error = Self::new(failure.code, failure.message).reason(failure.reason);
        let error = match failure.certainty {
            Certainty::NotApplied => error.not_applied(),
            Certainty::Partial => error.partial(),
            Certainty::Unknown | Certainty::Unspecified => error,
        };
        match failure.retry_after {
            Some(delay) => error.retry_after(delay),
            None => error,
        }
    }
}

/// The effect of all rules on a call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Injection {
    /// How much longer the call takes, over all rules.
    pub latency: Duration,
    /// The first action among the rules.
    pub action: Option<Action>,
    /// Labels of the rules that were hit.
    pub rules: Vec<String>,
}

impl Injection {
    pub(super) fn add(&mut self, label: String, plan: Plan) {
        self.latency = self.latency.saturating_add(plan.latency);
        self.rules.push(label);
        if self.action.is_none() {
            self.action = plan.action;
        }
    }

    /// Appends `other`.
    #[must_use]
    pub fn then(mut self, other: Self) -> Self {
        self.latency = self.latency.saturating_add(other.latency);
        self.rules.extend(other.rules);
        self.action = self.action.or(other.action);
        self
    }
}

/// A rule that cannot be meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Contradiction {
    /// Nothing goes wrong.
    #[error(
        "does nothing: name one of latency, code, lostReply, crashBeforeEffect, crashAfterEffect, \
         applyPartially, returnProviderId"
    )]
    Nothing,
    /// Two things go wrong in one call.
    #[error(
        "does two things: keep one of code, lostReply, crashBeforeEffect, \
         crashAfterEffect, applyPartially, returnProviderId"
    )]
    Several,
    /// `afterEffect` and the fields of a failure belong to a failure.
    #[error("describes a failure and has no code: add code")]
    NoCode,
    /// Only an update has parts.
    #[error("applyPartially is for UpdateMachine only")]
    NotAnUpdate,
}

impl Fault {
    /// The effect of the rule.
    pub fn plan(&self) -> Result<Plan, Contradiction> {
        let partial = self.apply_partially.map(|resources| {
            Action::ApplyPartially(resources, self.failure(Code::Unavailable, Certainty::Partial))
        });
        let mut actions = [
            self.lost_reply.then_some(Action::LoseReply),
            self.crash_before_effect.then_some(Action::Crash(When::Before)),
            self.crash_after_effect.then_some(Action::Crash(When::After)),
            self.return_provider_id.clone().map(Action::AnswerProviderId),
            // With both, the code is that of the partial failure.
            partial.or_else(|| self.plain_failure()),
        ]
        .into_iter()
        .flatten();
        let action = actions.next();
        let describes_failure = self.after_effect
            || self.certainty.is_some()
            || self.reason.is_some()
            || self.message.is_some()
            || self.retry_after.is_some();
        let fails = matches!(action, Some(Action::Fail(..) | Action::ApplyPartially(..)));
        if actions.next().is_some() {
            Err(Contradiction::Several)
        } else if describes_failure && !fails {
            Err(Contradiction::NoCode)
        } else if action.is_none() && self.latency.0.is_zero() {
            Err(Contradiction::Nothing)
        } else if self.apply_partially.is_some() && self.operation != Verb::UpdateMachine {
            Err(Contradiction::NotAnUpdate)
        } else {
            Ok(Plan { latency: self.latency.0, action })
        }
    }

    fn plain_failure(&self) -> Option<Action> {
        let code = self.code?.0;
        let (when, truth) = if self.after_effect {
            (When::After, Certainty::Unknown)
        } else {
            (When::Before, Certainty::NotApplied)
        };
        Some(Action::Fail(when, self.failure(code, truth)))
    }

    fn failure(&self, code: Code, truth: Certainty) -> Failure {
        Failure {
            code: self.code.map_or(code, |named| named.0),
            certainty: self.certainty.map_or(truth, Into::into),
            reason: self.reason.clone().unwrap_or_else(|| "INJECTED".to_owned()),
            message: self.message.clone().unwrap_or_else(|| "injected fault".to_owned()),
            retry_after: self.retry_after.map(|delay| delay.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(json: &serde_json::Value) -> Fault {
        serde_json::from_value(json.clone()).unwrap()
    }

    #[test]
    fn a_failure_tells_the_truth_about_what_it_left_unless_told_to_lie() {
        let cases = [
            (serde_json::json!({"code": "Internal"}), Certainty::NotApplied),
            (serde_json::json!({"code": "Internal", "afterEffect": true}), Certainty::Unknown),
            (serde_json::json!({"applyPartially": 1}), Certainty::Partial),
            (serde_json::json!({"code": "Internal", "certainty": "Partial"}), Certainty::Partial),
        ];
        for (mut json, certainty) in cases {
            json["operation"] = "UpdateMachine".into();
            let action = fault(&json).plan().unwrap().action.unwrap();
            let (Action::Fail(_, failure) | Action::ApplyPartially(_, failure)) = action else {
                panic!("{json}");
            };
            assert_eq!(DriverError::from(failure).certainty(), certainty, "{json}");
        }
    }

    #[test]
    fn rules_that_cannot_be_meant_are_refused() {
        let cases = [
            (serde_json::json!({}), Contradiction::Nothing),
            (serde_json::json!({"code": "Internal", "lostReply": true}), Contradiction::Several),
            (serde_json::json!({"lostReply": true, "reason": "X"}), Contradiction::NoCode),
            (serde_json::json!({"latency": "1s", "afterEffect": true}), Contradiction::NoCode),
            (serde_json::json!({"applyPartially": 1}), Contradiction::NotAnUpdate),
        ];
        for (mut json, contradiction) in cases {
            json["operation"] = "CreateMachine".into();
            assert_eq!(fault(&json).plan(), Err(contradiction), "{json}");
        }
    }
}
