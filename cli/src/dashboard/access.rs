//! Access to the page: a request needs the token, and a Host that is a name of this computer.

use std::net::IpAddr;

use http::{HeaderMap, header};
use rand::RngExt as _;
use rand::distr::Alphanumeric;
use sha2::{Digest as _, Sha256};

/// Letters and digits of a token: 190 random bits.
const LENGTH: usize = 32;

/// What a page has to show with every question. It travels in a header: a cookie of 127.0.0.1 would be sent to every port of this
/// computer, and the path of a link stands in histories and logs.
pub(super) struct Token(String);

impl Token {
    /// A new one.
    pub(super) fn new() -> Self {
        Self(rand::rng().sample_iter(Alphanumeric).take(LENGTH).map(char::from).collect())
    }

    /// The text itself.
    pub(super) fn expose(&self) -> &str {
        &self.0
    }

    /// Whether a question shows it. Digests are compared: how long that takes says nothing of the token.
    pub(super) fn is_shown(&self, headers: &HeaderMap) -> bool {
        let shown = headers
            .get(header::AUTHORIZATION)
            .and_then(|it| it.as_bytes().strip_prefix(b"Bearer "));
        shown.is_some_and(|shown| Sha256::digest(shown) == Sha256::digest(&self.0))
    }
}

/// Whether a question names this computer, by any port: it may come through a tunnel. A page of another site that had its own name point
/// here would name that.
pub(super) fn names_loopback(headers: &HeaderMap) -> bool {
    let mut all = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (all.next(), all.next()) else { return false };
    let Some(authority) = host.to_str().ok().and_then(|it| it.parse::<http::uri::Authority>().ok())
    else {
        return false;
    };
    let name = authority.host().trim_start_matches('[').trim_end_matches(']');
    !authority.as_str().contains('@')
        && (name.eq_ignore_ascii_case("localhost")
            || name.parse::<IpAddr>().is_ok_and(|it| it.is_loopback()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &header::HeaderName, values: &[&str]) -> HeaderMap {
        values.iter().map(|value| (name.clone(), value.parse().unwrap())).collect()
    }

    #[test]
    fn only_names_of_this_computer_are_answered() {
        for (host, expected) in [
            ("127.0.0.1:8080", true),
            ("localhost", true),
            ("LocalHost:1", true),
            ("[::1]:8080", true),
            ("127.9.9.9", true),
            ("evil.example.com", false),
            ("localhost.example.com:80", false),
            ("127.0.0.1.example.com", false),
            ("10.0.0.1:8080", false),
            ("a@127.0.0.1", false),
            ("", false),
        ] {
            assert_eq!(names_loopback(&with(&header::HOST, &[host])), expected, "{host}");
        }
        assert!(!names_loopback(&HeaderMap::new()));
        assert!(!names_loopback(&with(&header::HOST, &["localhost", "localhost"])));
    }

    #[test]
    fn only_the_token_itself_is_accepted() {
        let token = Token::new();
        let own = format!("Bearer {}", token.expose());
        let (short, other) = (&own[..own.len() - 1], format!("Bearer {}", Token::new().expose()));
        let shown = |value: &str| token.is_shown(&with(&header::AUTHORIZATION, &[value]));
        assert!(shown(&own));
        for value in [short, &format!("{own}x"), &other, "Bearer ", token.expose()] {
            assert!(!shown(value), "{value}");
        }
        assert!(!token.is_shown(&HeaderMap::new()));
    }
}
