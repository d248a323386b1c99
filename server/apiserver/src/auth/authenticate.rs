//! From a request's headers to an identity.

use http::{HeaderMap, header::AUTHORIZATION};
use ring::digest;

use crate::status::{Answer, Status};

use super::{Auth, Identity};

impl Auth {
    /// Who asks. Without a bearer token that is nobody in particular; a token that is not valid
    /// is refused rather than ignored.
    pub(crate) fn authenticate(&self, headers: &HeaderMap) -> Answer<Identity> {
        let Some(token) = bearer_token(headers) else { return Ok(Identity::anonymous()) };
        let found = self.token(token, &Self::own_audience());
        found.map(|(identity, _)| identity).ok_or_else(Status::unauthorized)
    }

    /// Who a token stands for, and for which of `audiences` it is good.
    pub(super) fn token(
        &self,
        token: &str,
        audiences: &[String],
    ) -> Option<(Identity, Vec<String>)> {
        if same(token, self.admin_token.expose()) {
            let own = Self::own_audience();
            let good: Vec<String> =
                audiences.iter().filter(|audience| own.contains(audience)).cloned().collect();
            return (!good.is_empty()).then(|| (Identity::admin(), good));
        }
        self.service_account(token, audiences)
    }
}

/// The token of an `Authorization: Bearer` header; none if there is no such header or it is of
/// another scheme.
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?.trim();
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// Compares digests, so that the time it takes says nothing about how much of a guess is right.
fn same(left: &str, right: &str) -> bool {
    let digest = |text: &str| digest::digest(&digest::SHA256, text.as_bytes());
    digest(left).as_ref() == digest(right).as_ref()
}
