//! Signed tokens: JSON Web Tokens with HMAC-SHA-256.
//!
//! The server that signs is the only one that verifies, so a shared key is enough; others ask by
//! TokenReview.

use std::fmt;

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use ring::hmac;
use serde::{Deserialize, Serialize};

/// The header of every token. A token with any other header is none of ours.
const HEADER: &str = r#"{"alg":"HS256","typ":"JWT"}"#;

/// Who issues the tokens; also the audience of a token that is meant for this server.
pub(super) const ISSUER: &str = "https://kubernetes.default.svc";

/// A named object that a token speaks of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) uid: String,
}

/// The part of the claims that is Kubernetes' own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Kubernetes {
    pub(super) namespace: String,
    pub(super) serviceaccount: Named,
    /// The object whose life bounds the token's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) pod: Option<Named>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) secret: Option<Named>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) node: Option<Named>,
}

/// The claims of a token. Times in seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Claims {
    pub(super) aud: Vec<String>,
    pub(super) exp: i64,
    pub(super) iat: i64,
    pub(super) nbf: i64,
    pub(super) iss: String,
    pub(super) jti: String,
    pub(super) sub: String,
    #[serde(rename = "kubernetes.io")]
    pub(super) kubernetes: Kubernetes,
}

/// Signs and verifies with one key.
pub(super) struct Signer(hmac::Key);

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signer(..)")
    }
}

impl Signer {
    pub(super) fn new(key: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, key))
    }

    pub(super) fn sign(&self, claims: &Claims) -> Result<String, serde_json::Error> {
        let header = BASE64_URL_SAFE_NO_PAD.encode(HEADER);
        let claims = BASE64_URL_SAFE_NO_PAD.encode(serde_json::to_vec(claims)?);
        let signed = format!("{header}.{claims}");
        let signature = BASE64_URL_SAFE_NO_PAD.encode(hmac::sign(&self.0, signed.as_bytes()));
        Ok(format!("{signed}.{signature}"))
    }

    /// The claims of a token that this key signed; says nothing about their truth now.
    pub(super) fn verify(&self, token: &str) -> Option<Claims> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).ok()?;
        hmac::verify(&self.0, signed.as_bytes(), &signature).ok()?;
        if BASE64_URL_SAFE_NO_PAD.decode(header).ok()? != HEADER.as_bytes() {
            return None;
        }
        serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(claims).ok()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims() -> Claims {
        let serviceaccount = Named { name: "bot".to_owned(), uid: "u".to_owned() };
        Claims {
            aud: vec![ISSUER.to_owned()],
            exp: 10,
            iat: 0,
            nbf: 0,
            iss: ISSUER.to_owned(),
            jti: "j".to_owned(),
            sub: "system:serviceaccount:ns:bot".to_owned(),
            kubernetes: Kubernetes {
                namespace: "ns".to_owned(),
                serviceaccount,
                pod: None,
                secret: None,
                node: None,
            },
        }
    }

    #[test]
    fn a_token_is_read_back_by_its_own_key_only() {
        let token = Signer::new(b"one").sign(&claims()).unwrap();
        assert_eq!(Signer::new(b"one").verify(&token), Some(claims()));
        assert_eq!(Signer::new(b"two").verify(&token), None);
    }

    #[test]
    fn a_token_that_was_touched_is_no_token() {
        let signer = Signer::new(b"one");
        let token = signer.sign(&claims()).unwrap();
        let (signed, _) = token.rsplit_once('.').unwrap();
        let unsigned = BASE64_URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#);
        let (_, body) = token.split_once('.').unwrap();
        for touched in [
            signed.to_owned(),
            format!("{signed}."),
            format!("{signed}x.{}", token.rsplit_once('.').unwrap().1),
            format!("{unsigned}.{body}"),
            "a.b.c".to_owned(),
            String::new(),
        ] {
            assert_eq!(signer.verify(&touched), None, "{touched}");
        }
    }
}
