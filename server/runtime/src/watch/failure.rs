//! Log texts of failed requests.

use std::error::Error;
use std::iter::successors;

use kube::core::Status;
use kube::runtime::watcher;
use tracing::{debug, warn};

/// An error with all its causes: an untrusted certificate is far down. Causes in the error's own text are not repeated.
pub fn causes(failure: &(dyn Error + 'static)) -> String {
    if let Some(said) = message_of(failure) {
        return said;
    }
    let mut text = failure.to_string();
    for cause in successors(failure.source(), |error| (*error).source()) {
        let cause = cause.to_string();
        if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// The message in an answer of the API server, without its other fields.
pub fn message_of(failure: &(dyn Error + 'static)) -> Option<String> {
    let Some(kube::Error::Api(status)) = failure.downcast_ref() else { return None };
    (!status.message.is_empty()).then(|| status.message.clone())
}

/// The API server's answer, if any.
pub fn status_of(failure: &watcher::Error) -> Option<&Status> {
    use watcher::Error;
    match failure {
        Error::InitialListFailed(kube::Error::Api(status))
        | Error::WatchStartFailed(kube::Error::Api(status))
        | Error::WatchFailed(kube::Error::Api(status))
        | Error::WatchError(status) => Some(status),
        Error::InitialListFailed(_)
        | Error::WatchStartFailed(_)
        | Error::WatchFailed(_)
        | Error::NoResourceVersion => None,
    }
}

/// A watch failed and is tried again. That it has to begin anew (410), or comes too soon for a busy server (429), is usual.
pub fn watch_failed(kind: &str, failure: &watcher::Error) {
    let error = causes(failure);
    if status_of(failure).is_some_and(|status| [410, 429].contains(&status.code)) {
        debug!(kind, error, "watch ended; trying again");
    } else {
        warn!(kind, error, "watch failed; trying again");
    }
}

#[cfg(test)]
mod tests {
    use super::causes;

    #[derive(Debug, thiserror::Error)]
    #[error("ServiceError: {0}")]
    struct Service(#[source] Connect);

    #[derive(Debug, thiserror::Error)]
    #[error("client error (Connect)")]
    struct Connect(#[source] std::io::Error);

    #[test]
    fn an_error_is_told_with_its_causes_each_once() {
        let refused = std::io::Error::other("invalid peer certificate: UnknownIssuer");
        assert_eq!(
            causes(&Service(Connect(refused))),
            "ServiceError: client error (Connect): invalid peer certificate: UnknownIssuer"
        );
    }
}
