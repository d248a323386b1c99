//! Names of proxies, in URLs and variables.

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::{HeaderValue, Uri};
use percent_encoding::percent_decode_str;

use crate::exempt::Exempt;

/// Why a proxy cannot be used. Its password is in no message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{variable} names the proxy {shown:?}: {problem}")]
pub struct BadProxy {
    variable: &'static str,
    shown: String,
    problem: &'static str,
}

/// A proxy that is to be used.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    /// Scheme, host and port alone.
    pub(crate) at: Uri,
    pub(crate) kind: Kind,
    /// User and password.
    pub(crate) user: Option<(String, String)>,
    variable: &'static str,
}

/// The protocol of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Connect,
    Socks5,
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.at.to_string().trim_end_matches('/'), self.variable)
    }
}

impl Proxy {
    /// The proxy that a `variable` names.
    ///
    /// # Errors
    /// It cannot be used.
    pub fn named(variable: &'static str, value: &str) -> Result<Self, BadProxy> {
        let value = value.trim();
        let (scheme, rest) = value.split_once("://").unwrap_or(("http", value));
        let (user, host) = match rest.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, rest),
        };
        let host = host.split(['/', '?', '#']).next().unwrap_or_default();
        let bad =
            |problem| Err(BadProxy { variable, shown: format!("{scheme}://{host}"), problem });
        let (kind, scheme, port) = match scheme.to_ascii_lowercase().as_str() {
            "http" => (Kind::Connect, "http", 80),
            "socks5" | "socks5h" => (Kind::Socks5, "socks5", 1080),
            "https" => {
                return bad(
                    "a proxy that is itself reached by TLS is not supported; write http://HOST:PORT, or name in NO_PROXY \
                     what is reached without it",
                );
            }
            _ => {
                return bad(
                    "its scheme is not supported; write http://HOST:PORT or socks5://HOST:PORT",
                );
            }
        };
        let Ok(Some(authority)) = host
            .parse::<Uri>()
            .map(|it| it.authority().filter(|it| !it.host().is_empty()).cloned())
        else {
            return bad("it is no HOST:PORT");
        };
        let port = match authority.as_str().strip_prefix(authority.host()) {
            Some("") => port,
            _ => match authority.port_u16() {
                Some(port) => port,
                None => return bad("its port is no number"),
            },
        };
        let at = format!("{scheme}://{}:{port}/", authority.host());
        let Ok(at) = at.parse() else { return bad("it is no HOST:PORT") };
        Ok(Self { at, kind, user: user.map(credentials), variable })
    }

    /// The credentials for an HTTP proxy.
    pub(crate) fn authorization(&self) -> Option<HeaderValue> {
        let (user, password) = self.user.as_ref()?;
        let encoded = BASE64_STANDARD.encode(format!("{user}:{password}"));
        HeaderValue::try_from(format!("Basic {encoded}")).ok()
    }
}

fn credentials(text: &str) -> (String, String) {
    let decoded = |part: &str| percent_decode_str(part).decode_utf8_lossy().into_owned();
    let (user, password) = text.split_once(':').unwrap_or((text, ""));
    (decoded(user), decoded(password))
}

/// The proxies of the environment.
#[derive(Debug, Clone, Default)]
pub struct Proxies {
    /// For an address with TLS, and without: the variable and its value.
    https: Option<(&'static str, Secret)>,
    http: Option<(&'static str, Secret)>,
    exempt: Exempt,
}

/// It may have a password.
#[derive(Clone)]
struct Secret(String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

impl Proxies {
    /// The proxies of this process's environment.
    pub fn of_environment() -> Self {
        Self::of(|name| std::env::var(name).ok())
    }

    /// The proxies of an environment with these values. An empty value counts as unset.
    pub fn of(value: impl Fn(&str) -> Option<String>) -> Self {
        let value = |name: &str| value(name).filter(|it| !it.trim().is_empty());
        let first = |names: &[&'static str]| {
            names.iter().find_map(|name| Some((*name, Secret(value(name)?))))
        };
        let no_proxy = value("NO_PROXY").or_else(|| value("no_proxy")).unwrap_or_default();
        Self {
            https: first(&["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"]),
            http: first(&["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"]),
            exempt: Exempt::new(&no_proxy, value("KUBERNETES_SERVICE_HOST")),
        }
    }

    /// The proxy on the way to this address; `None`: it is dialled directly.
    ///
    /// # Errors
    /// The proxy cannot be used.
    pub fn on_the_way_to(&self, address: &Uri) -> Result<Option<Proxy>, BadProxy> {
        let (named, port) = match address.scheme_str() {
            Some("https") => (&self.https, 443),
            _ => (&self.http, 80),
        };
        let (Some((variable, value)), Some(host)) = (named, address.host()) else {
            return Ok(None);
        };
        if self.exempt.has(host, address.port_u16().unwrap_or(port)) {
            return Ok(None);
        }
        Proxy::named(variable, &value.0).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(variables: &[(&str, &str)], to: &str) -> Result<Option<String>, String> {
        let value = |name: &str| {
            variables.iter().find(|(it, _)| *it == name).map(|(_, value)| (*value).to_owned())
        };
        let to = to.parse().map_err(|_| format!("{to} is no address"))?;
        let way = Proxies::of(value).on_the_way_to(&to);
        way.map(|proxy| proxy.map(|it| it.to_string())).map_err(|error| error.to_string())
    }

    #[test]
    fn the_variable_of_the_scheme_counts_in_capitals_and_small_letters_and_then_that_of_all() {
        let to = "https://api.example.com:6443";
        for (variable, given) in [
            ("HTTPS_PROXY", "http://proxy.example:3128"),
            ("https_proxy", "proxy.example:3128"),
            ("ALL_PROXY", "http://proxy.example:3128/"),
            ("all_proxy", " http://proxy.example:3128 "),
        ] {
            let expected = format!("http://proxy.example:3128 of {variable}");
            assert_eq!(way(&[(variable, given)], to), Ok(Some(expected)));
        }
        assert_eq!(way(&[("HTTP_PROXY", "http://p:1")], to), Ok(None));
        assert_eq!(way(&[("HTTPS_PROXY", "http://p:1")], "http://api.example.com"), Ok(None));
        assert_eq!(
            way(&[("http_proxy", "http://p")], "http://api.example.com"),
            Ok(Some("http://p:80 of http_proxy".to_owned()))
        );
        // The first that says something.
        let several =
            [("HTTPS_PROXY", ""), ("https_proxy", "http://a:1"), ("ALL_PROXY", "http://b:1")];
        assert_eq!(way(&several, to), Ok(Some("http://a:1 of https_proxy".to_owned())));
    }

    #[test]
    fn what_is_exempt_needs_no_proxy_that_can_be_used() {
        let set = [("HTTPS_PROXY", "nonsense://x"), ("NO_PROXY", "127.0.0.1,localhost,")];
        assert_eq!(way(&set, "https://127.0.0.1:16440"), Ok(None));
        assert_eq!(way(&[("HTTPS_PROXY", ":::")], "https://localhost"), Ok(None));
        let pod = [("HTTPS_PROXY", "http://p:1"), ("KUBERNETES_SERVICE_HOST", "10.96.0.1")];
        assert_eq!(way(&pod, "https://10.96.0.1:443"), Ok(None));
        let lower = [("HTTPS_PROXY", "http://p:1"), ("no_proxy", "example.com")];
        assert_eq!(way(&lower, "https://api.example.com"), Ok(None));
    }

    #[test]
    fn a_proxy_that_cannot_be_used_is_named_with_its_variable_and_without_its_password() {
        for (value, part) in [
            ("https://user:hunter2@p:1", "reached by TLS"),
            ("socks4://p:1", "socks5://HOST:PORT"),
            ("http://user:hunter2@", "no HOST:PORT"),
            ("http://p:port", "no number"),
        ] {
            let said = way(&[("HTTPS_PROXY", value)], "https://example.com").unwrap_err();
            assert!(said.contains("HTTPS_PROXY") && said.contains(part), "{said}");
            assert!(!said.contains("hunter2"), "{said}");
        }
    }

    #[test]
    fn user_and_password_are_decoded_and_shown_to_the_proxy_alone() {
        let proxy = Proxy::named("HTTPS_PROXY", "http://al%40x:p%3Aw@p:1").unwrap();
        assert_eq!(proxy.user, Some(("al@x".to_owned(), "p:w".to_owned())));
        assert_eq!(proxy.authorization().unwrap(), "Basic YWxAeDpwOnc=");
        assert_eq!(format!("{proxy:?}"), "http://p:1 of HTTPS_PROXY");
        let socks = Proxy::named("ALL_PROXY", "socks5h://u@p").unwrap();
        assert_eq!(
            (socks.kind, socks.at.to_string()),
            (Kind::Socks5, "socks5://p:1080/".to_owned())
        );
    }
}
