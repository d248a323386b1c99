//! From a request's headers to an identity.

use http::{HeaderMap, header::AUTHORIZATION};
use ring::digest;

use crate::kinds::{
    identity::Identity,
    status::{Answer, Status},
};

use super::Auth;
use crate::auth::certificates::ClientCertificate;

impl Auth {
    /// Who asks. Without a certificate and a bearer token that is the anonymous user; one that
    /// is not valid is refused rather than ignored, unless the other one is.
    pub(crate) fn authenticate(
        &self,
        headers: &HeaderMap,
        certificate: Option<&ClientCertificate>,
    ) -> Answer<Identity> {
        let holder = certificate.map(|one| one.identity((self.context.clock)()));
        if let Some(Some(holder)) = holder {
            return Ok(holder.clone());
        }
        let Some(token) = bearer_token(headers) else {
            let anonymous = holder.is_none().then(Identity::anonymous);
            return anonymous.ok_or_else(Status::unauthorized);
        };
        let found = self.token(token, &Self::own_audience());
        found.map(|(identity, _)| identity).ok_or_else(Status::unauthorized)
    }

    /// The identity of a token, and those of `audiences` that accept the token.
    pub(super) fn token(
        &self,
        token: &str,
        audiences: &[String],
    ) -> Option<(Identity, Vec<String>)> {
        let own = if same(token, self.admin_token.expose()) {
            Some(Identity::admin())
        } else {
            self.bootstrapper(token)
        };
        let Some(identity) = own else { return self.service_account(token, audiences) };
        let own = Self::own_audience();
        let good: Vec<String> =
            audiences.iter().filter(|audience| own.contains(audience)).cloned().collect();
        (!good.is_empty()).then_some((identity, good))
    }
}

/// Refuses impersonation. Without the header, the request would run with rights that its sender wanted to lay down.
///
/// # Errors
/// It has a header `Impersonate-…` (403).
pub(crate) fn refuse_impersonation(headers: &HeaderMap) -> Answer<()> {
    let asked = headers.keys().find(|name| name.as_str().starts_with("impersonate-"));
    let Some(name) = asked else { return Ok(()) };
    let why = format!(
        "impersonation is not supported by this server, and the request has the header {name}: \
         leave out --as, --as-group and --as-uid"
    );
    Err(Status::forbidden_text(why))
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
pub(super) fn same(left: &str, right: &str) -> bool {
    let digest = |text: &str| digest::digest(&digest::SHA256, text.as_bytes());
    digest(left).as_ref() == digest(right).as_ref()
}
