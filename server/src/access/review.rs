//! Tokens of ServiceAccounts: the API server is asked about each.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::api::{Api, PostParams};
use kube::{Client, Error};
use ostler_sessions::AuthError;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Limit of a single review.
const PATIENCE: Duration = Duration::from_secs(5);
/// Concurrent questions: a crowd of strangers must not become a load on the API server.
const AT_ONCE: usize = 8;
/// Concurrent questions about tokens that were good before: drivers that work do not wait for strangers.
const KNOWN_AT_ONCE: usize = 4;
/// For how long a yes counts: a deleted ServiceAccount is shut out within this.
const YES: Duration = Duration::from_secs(30);
/// For how long a no counts, so that a driver that hammers costs little.
const NO: Duration = Duration::from_secs(5);
/// Answers that are kept: so many of tokens in use, and so many of wrong ones.
const ANSWERS: usize = 1024;

/// The API server's answer about a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The token belongs to a ServiceAccount, for our audience.
    Account {
        /// `system:serviceaccount:NAMESPACE:NAME`.
        name: String,
        /// When the token ends, in seconds since 1970, if given.
        expires: Option<i64>,
    },
    /// It is not valid, or for another audience, or of another account.
    Refused,
}

/// Asks, and remembers for a moment.
pub(super) struct Reviewer {
    client: Client,
    audience: String,
    accounts: Answers,
    refused: Answers,
    questions: Semaphore,
    known_questions: Semaphore,
}

/// Until when answers count, by the digest of the token.
type Answers = Mutex<HashMap<[u8; 32], (Verdict, Instant)>>;

impl fmt::Debug for Reviewer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reviewer").field("audience", &self.audience).finish_non_exhaustive()
    }
}

impl Reviewer {
    /// Tokens must be meant for `audience`.
    pub(super) fn new(client: Client, audience: String) -> Self {
        Self {
            client,
            audience,
            accounts: Mutex::default(),
            refused: Mutex::default(),
            questions: Semaphore::new(AT_ONCE),
            known_questions: Semaphore::new(KNOWN_AT_ONCE),
        }
    }

    /// The audience that tokens must be meant for.
    pub(super) fn audience(&self) -> &str {
        &self.audience
    }

    /// The owner of a token.
    pub(super) async fn review(&self, token: &str) -> Result<Verdict, AuthError> {
        let key: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        if let Some(verdict) = self.remembered(&key) {
            return Ok(verdict);
        }
        let known = self.accounts.lock().contains_key(&key);
        let turns = if known { &self.known_questions } else { &self.questions };
        let asked = tokio::time::timeout(PATIENCE, self.ask(token, turns)).await;
        let verdict = asked.unwrap_or_else(|_| {
            Err(AuthError::Unavailable("the API server does not answer".to_owned()))
        })?;
        self.remember(key, verdict.clone());
        Ok(verdict)
    }

    async fn ask(&self, token: &str, turns: &Semaphore) -> Result<Verdict, AuthError> {
        // Never closed.
        let _turn = turns.acquire().await;
        let review = TokenReview {
            spec: TokenReviewSpec {
                audiences: Some(vec![self.audience.clone()]),
                token: Some(token.to_owned()),
            },
            ..TokenReview::default()
        };
        let answer = Api::all(self.client.clone()).create(&PostParams::default(), &review).await;
        match answer {
            Ok(TokenReview { status, .. }) => Ok(self.judge(status, token)),
            Err(error) => {
                tracing::warn!(%error, "a token cannot be reviewed");
                Err(AuthError::Unavailable(why(&error).to_owned()))
            }
        }
    }

    fn judge(&self, status: Option<TokenReviewStatus>, token: &str) -> Verdict {
        let TokenReviewStatus { authenticated, audiences, user, error } =
            status.unwrap_or_default();
        // A server that knows no audiences names none: then the token is meant for that server.
        let meant = audiences.is_some_and(|audiences| audiences.contains(&self.audience));
        let name = user.and_then(|user| user.username).unwrap_or_default();
        let is_account = name.starts_with("system:serviceaccount:");
        if authenticated == Some(true) && meant && is_account {
            return Verdict::Account { name, expires: expiry(token) };
        }
        tracing::warn!(user = name, meant, error, "a token was refused");
        Verdict::Refused
    }

    fn remembered(&self, key: &[u8; 32]) -> Option<Verdict> {
        let now = Instant::now();
        [&self.accounts, &self.refused].into_iter().find_map(|answers| {
            let answers = answers.lock();
            answers.get(key).filter(|(_, until)| now < *until).map(|(verdict, _)| verdict.clone())
        })
    }

    fn remember(&self, key: [u8; 32], verdict: Verdict) {
        let now = Instant::now();
        let refused = verdict == Verdict::Refused;
        let (answers, life) = if refused { (&self.refused, NO) } else { (&self.accounts, YES) };
        if refused {
            self.accounts.lock().remove(&key);
        }
        let mut answers = answers.lock();
        if answers.len() >= ANSWERS {
            answers.retain(|_, (_, until)| now < *until);
        }
        if answers.len() < ANSWERS {
            answers.insert(key, (verdict, now + life));
        }
    }
}

fn why(error: &Error) -> &'static str {
    let denied = matches!(error, Error::Api(status) if status.code == 403);
    if denied {
        "the core may not create TokenReviews; bind its ServiceAccount to the ClusterRole system:auth-delegator"
    } else {
        "the API server cannot be asked"
    }
}

/// Whether a token has the form of a signed one (JWT). Others are not shown to the API server.
pub(super) fn is_signed(token: &str) -> bool {
    let mut parts = token.split('.');
    let mut part = || parts.next().is_some_and(|part| !part.is_empty());
    part() && part() && part() && parts.next().is_none()
}

/// The end of a token, as written in the token. Only for tokens that were found good.
fn expiry(token: &str) -> Option<i64> {
    let payload = token.split('.').nth(1)?;
    let claims: serde_json::Value =
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).ok()?).ok()?;
    claims.get("exp")?.as_i64()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An API server that knows one token, and never answers for another.
    fn server() -> Client {
        let service = tower::service_fn(|request: axum::http::Request<kube::client::Body>| async {
            let body = request.into_body().collect_bytes().await?;
            let asked: TokenReview = serde_json::from_slice(&body)?;
            if asked.spec.token.as_deref() != Some("good") {
                std::future::pending::<()>().await;
            }
            let answer = serde_json::json!({
                "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "metadata": {},
                "spec": {},
                "status": {
                    "authenticated": true, "audiences": ["ostler"],
                    "user": { "username": "system:serviceaccount:a:b" }
                }
            });
            let body = kube::client::Body::from(serde_json::to_vec(&answer)?);
            Ok::<_, tower::BoxError>(axum::http::Response::new(body))
        });
        Client::new(service, "default")
    }

    #[tokio::test(start_paused = true)]
    async fn a_driver_that_was_known_does_not_wait_for_strangers() {
        let reviewer = std::sync::Arc::new(Reviewer::new(server(), "ostler".to_owned()));
        assert!(matches!(reviewer.review("good").await, Ok(Verdict::Account { .. })));
        tokio::time::advance(YES).await;
        for stranger in 0..3 * AT_ONCE {
            let reviewer = std::sync::Arc::clone(&reviewer);
            tokio::spawn(async move { reviewer.review(&format!("stranger-{stranger}")).await });
        }
        tokio::task::yield_now().await;
        assert_eq!(reviewer.questions.available_permits(), 0, "all wait for strangers");
        assert!(matches!(reviewer.review("good").await, Ok(Verdict::Account { .. })));
    }

    #[tokio::test]
    async fn wrong_tokens_do_not_displace_the_answers_about_good_ones() {
        let reviewer = Reviewer::new(server(), "ostler".to_owned());
        for stranger in 0..2 * ANSWERS {
            let key = Sha256::digest(stranger.to_string()).into();
            reviewer.remember(key, Verdict::Refused);
        }
        let good = Verdict::Account { name: "a".to_owned(), expires: None };
        reviewer.remember([0; 32], good.clone());
        assert_eq!(reviewer.remembered(&[0; 32]), Some(good));
        assert_eq!(reviewer.refused.lock().len(), ANSWERS);
    }

    #[test]
    fn only_signed_tokens_are_shown_to_the_api_server() {
        assert!(is_signed("a.b.c"));
        for other in ["", "abc", "a.b", "a..c", "a.b.c.d", ".b.c"] {
            assert!(!is_signed(other), "{other}");
        }
    }

    #[test]
    fn the_end_of_a_token_is_read_from_its_claims() {
        let token = |claims: &str| format!("h.{}.s", URL_SAFE_NO_PAD.encode(claims));
        assert_eq!(expiry(&token(r#"{"exp":1700000000}"#)), Some(1_700_000_000));
        assert_eq!(expiry(&token(r#"{"exp":"soon"}"#)), None);
        assert_eq!(expiry("h.!.s"), None);
    }
}
