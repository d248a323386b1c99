//! `/healthz`, `/livez` and `/readyz`: whether the process answers, and whether it can store.

use axum::body::Body;
use http::{Response, StatusCode};

use crate::{
    auth::{Attributes, Target},
    kinds::query::Query,
    rest::respond,
    store::{Health, Store},
};

const ENDPOINTS: [&str; 3] = ["healthz", "livez", "readyz"];

/// The checks there are, each of all endpoints, as kube-apiserver names its own: `ping` is that
/// the process answers, `store` that it can write.
const CHECKS: [&str; 2] = ["ping", "store"];

/// Answers a health check, if it is one: as kube-apiserver does, with `?verbose` and `?exclude=`,
/// and a single check at `/readyz/store`. A store that failed is made to look again.
pub(super) fn answer(
    attributes: &Attributes,
    query: Option<&str>,
    store: &Store,
) -> Option<Response<Body>> {
    let Target::Path(path) = &attributes.target else { return None };
    let mut parts = path.trim_end_matches('/').splitn(3, '/').skip(1);
    let endpoint = parts.next().filter(|part| ENDPOINTS.contains(part))?;
    let trouble = match store.health() {
        Health::Good => None,
        Health::Failing(reason) | Health::Failed(reason) => Some(reason),
    };
    let of = |check: &str| trouble.as_deref().filter(|_| check == "store");
    let (code, text) = match parts.next() {
        None => report(endpoint, query.unwrap_or_default(), of),
        Some(check) if CHECKS.contains(&check) => match of(check) {
            None => (StatusCode::OK, "ok".to_owned()),
            Some(reason) => {
                (StatusCode::INTERNAL_SERVER_ERROR, format!("internal server error: {reason}\n"))
            }
        },
        Some(_) => (StatusCode::NOT_FOUND, "404 page not found\n".to_owned()),
    };
    tracing::trace!(endpoint, %code, "health check");
    Some(respond::text(code, text))
}

/// All checks of an endpoint: `ok`, or each of them if asked for or one failed.
fn report<'a>(
    endpoint: &str,
    query: &str,
    of: impl Fn(&str) -> Option<&'a str>,
) -> (StatusCode, String) {
    let query = Query::parse(query);
    let excluded = |check| query.all("exclude").any(|excluded| excluded == check);
    let verbose = query.get("verbose").is_some();
    let (mut lines, mut failed) = (String::new(), false);
    for check in CHECKS {
        let line = match of(check) {
            _ if excluded(check) => format!("[+]{check} excluded: ok\n"),
            None => format!("[+]{check} ok\n"),
            Some(reason) => {
                failed = true;
                format!("[-]{check} failed: {reason}\n")
            }
        };
        lines.push_str(&line);
    }
    if failed {
        return (StatusCode::INTERNAL_SERVER_ERROR, format!("{lines}{endpoint} check failed\n"));
    }
    let text = if verbose { format!("{lines}{endpoint} check passed\n") } else { "ok".to_owned() };
    (StatusCode::OK, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_checks_count_unless_excluded_and_are_shown_if_asked_for_or_one_failed() {
        let good = |_: &str| None;
        let bad = |check: &str| Some("the disk is full").filter(|_| check == "store");
        assert_eq!(report("readyz", "", good), (StatusCode::OK, "ok".to_owned()));
        let (code, text) = report("livez", "timeout=5&verbose", good);
        assert_eq!(
            (code, &*text),
            (StatusCode::OK, "[+]ping ok\n[+]store ok\nlivez check passed\n")
        );
        let (code, text) = report("readyz", "", bad);
        assert_eq!(code, StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(text, "[+]ping ok\n[-]store failed: the disk is full\nreadyz check failed\n");
        let (code, text) = report("readyz", "exclude=store", bad);
        assert_eq!((code, &*text), (StatusCode::OK, "ok"));
    }
}
