//! Requests of a core that starts.

use std::error::Error;
use std::iter::successors;
use std::time::Duration;

use tokio::time::sleep;
use tracing::warn;

use crate::queue::Backoff;
use crate::watch::causes;

/// Asks until the API server answers. A process that ended at an outage would be started again later and later. Errors
/// that another try does not help, such as a missing right, are returned.
pub async fn until_answered<T, E, F>(mut ask: impl FnMut() -> F) -> Result<T, E>
where
    E: Error + 'static,
    F: Future<Output = Result<T, E>>,
{
    let backoff = Backoff { base: Duration::from_secs(1), cap: Duration::from_secs(10) };
    let mut failures = 0_u32;
    loop {
        match ask().await {
            Err(error) if passes(&error) => {
                failures = failures.saturating_add(1);
                warn!(error = causes(&error), "the API server does not answer; trying again");
                sleep(backoff.delay(failures)).await;
            }
            answered => return answered,
        }
    }
}

/// Whether the same request may succeed later.
fn passes(error: &(dyn Error + 'static)) -> bool {
    let mut causes = successors(Some(error), |error| (*error).source());
    match causes.find_map(|cause| cause.downcast_ref()) {
        Some(kube::Error::Api(status)) => status.code == 429 || status.code >= 500,
        failure => matches!(failure, Some(kube::Error::Service(_) | kube::Error::HyperError(_))),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;
    use crate::SchemaError;

    fn answer(code: u16) -> kube::Error {
        kube::Error::Api(Box::new(Status { code, ..Status::default() }))
    }

    #[tokio::test(start_paused = true)]
    async fn only_an_outage_is_waited_for() {
        let silent = kube::Error::Service("connection refused".into());
        let mut answers = vec![answer(403), answer(429), answer(503), silent];
        let name = String::new();
        let asked = until_answered(|| {
            let source = answers.pop().unwrap();
            std::future::ready(Err::<(), _>(SchemaError::Api { name: name.clone(), source }))
        });
        let SchemaError::Api { source: kube::Error::Api(status), .. } = asked.await.unwrap_err()
        else {
            panic!("another error")
        };
        assert_eq!((status.code, answers.len()), (403, 0));
        let pruned = || std::future::ready(Err::<(), _>(SchemaError::Pruned(Vec::new())));
        until_answered(pruned).await.unwrap_err();
    }
}
