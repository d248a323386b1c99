//! The suite asks again as a core does, so that a cloud that answers 503 now and then breaks no check.
//!
//! docs/retry-policy.md says after which errors, and that a mutation of unknown outcome is read before it is repeated. The
//! pauses are shorter than a core's, and the tries are bounded.

use std::time::Duration;

use ostler_proto::v1alpha1 as proto;
use proto::operation::Request;
use proto::{GetMachineStatusRequest, GetPoolStatusRequest, Operation, OutcomeCertainty};

use crate::answer::{Answer, shown};
use crate::driver::Driver;
use crate::listed::reads_one;
use crate::machine::again;
use crate::outcome::Outcome;
use crate::pool::POOL;

/// All together: of a cloud that fails every second time, one in hundreds is left.
const TRIES: u32 = 8;
/// Before the second try; each further one waits twice as long, up to the limit.
const PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(3);
/// The driver may ask for more, up to this.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(20);

impl Driver<'_> {
    /// Repeats an operation that ended with `answer`, for as long as a core would soon ask the same again.
    pub(crate) async fn settle(
        &self,
        operation: &Operation,
        mut answer: Answer,
    ) -> Outcome<Answer> {
        for tried in 1..TRIES {
            let Some(error) = answer.passing() else { break };
            self.bench.step(format_args!("asked again, as a core does, after {}", shown(error)));
            let pause = PAUSE.saturating_mul(2_u32.saturating_pow(tried - 1)).min(LONGEST_PAUSE);
            let wanted = error.retry_after.and_then(|time| Duration::try_from(time).ok());
            let wanted = wanted.unwrap_or_default().min(LONGEST_RETRY_AFTER);
            let is_known = matches!(
                error.certainty(),
                OutcomeCertainty::NotApplied | OutcomeCertainty::Partial
            );
            tokio::time::sleep(self.bench.scaled(pause).max(wanted)).await;
            if operation.is_mutation() && !is_known && self.cannot_be_read(operation).await? {
                continue;
            }
            let begun = error.certainty() != OutcomeCertainty::NotApplied;
            let repeated = answer.repeated || begun;
            answer = Answer { repeated, ..self.ask_once(again(operation)).await? };
        }
        Ok(answer)
    }

    /// Reads the target, as a core does before it repeats what may have been done. Whether that did not work.
    async fn cannot_be_read(&self, operation: &Operation) -> Outcome<bool> {
        let of_pool = operation.target.as_ref().is_some_and(|it| it.kind == POOL);
        if !of_pool && !reads_one(&self.session.hello) {
            return Ok(false);
        }
        let request = if of_pool {
            Request::GetPoolStatus(GetPoolStatusRequest::default())
        } else {
            Request::GetMachineStatus(GetMachineStatusRequest::default())
        };
        let status = Operation { request: Some(request), timeout: None, ..again(operation) };
        Ok(self.ask_once(status).await?.passing().is_some())
    }
}
