//! What never goes through a proxy: `NO_PROXY`, this host, and the API server and Services of the cluster around this process.

use std::net::IpAddr;

use ipnet::IpNet;

/// Addresses that are dialled directly.
#[derive(Debug, Clone, Default)]
pub(crate) struct Exempt {
    rules: Vec<Rule>,
    /// The host of the API server, as Kubernetes tells its pods.
    api_server: Option<String>,
}

/// One entry of `NO_PROXY`.
#[derive(Debug, Clone, PartialEq)]
struct Rule {
    hosts: Hosts,
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq)]
enum Hosts {
    All,
    Network(IpNet),
    /// The name, and all below it.
    Domain(String),
}

impl Exempt {
    pub(crate) fn new(no_proxy: &str, api_server: Option<String>) -> Self {
        let entries = no_proxy.split(|it: char| it == ',' || it.is_whitespace());
        let rules = entries.filter(|entry| !entry.is_empty()).map(Rule::of).collect();
        Self { rules, api_server: api_server.map(|host| plain(&host)) }
    }

    /// Whether `host` is dialled directly at `port`.
    pub(crate) fn has(&self, host: &str, port: u16) -> bool {
        let host = plain(host);
        let address = address(&host);
        is_here(&host, address)
            || self.api_server.as_ref() == Some(&host)
            || is_service(&host)
            || self.rules.iter().any(|rule| rule.has(&host, address, port))
    }
}

impl Rule {
    fn of(entry: &str) -> Self {
        if let Some(network) = network(entry) {
            return Self { hosts: Hosts::Network(network), port: None };
        }
        let (host, port) = match entry.rsplit_once(':') {
            Some((host, port)) if !port.is_empty() => (host, port.parse().ok()),
            Some(_) | None => (entry, None),
        };
        // What is no port belongs to the name, which then is no host that anybody dials.
        let host = if port.is_some() { host } else { entry };
        let hosts = match plain(host).trim_start_matches("*.").trim_start_matches('.') {
            "*" => Hosts::All,
            host => network(host).map_or_else(|| Hosts::Domain(host.to_owned()), Hosts::Network),
        };
        Self { hosts, port }
    }

    fn has(&self, host: &str, address: Option<IpAddr>, port: u16) -> bool {
        let host_is = match &self.hosts {
            Hosts::All => true,
            Hosts::Network(network) => address.is_some_and(|it| network.contains(&it)),
            Hosts::Domain(domain) => {
                let above = host.strip_suffix(domain.as_str());
                above.is_some_and(|above| above.is_empty() || above.ends_with('.'))
            }
        };
        host_is && self.port.is_none_or(|only| only == port)
    }
}

/// A host in lower case, without the brackets of an address and the dot of the root.
fn plain(host: &str) -> String {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

fn address(host: &str) -> Option<IpAddr> {
    host.parse::<IpAddr>().ok().map(|it| it.to_canonical())
}

/// A network, or an address as a network of one.
fn network(text: &str) -> Option<IpNet> {
    let one = || address(&plain(text)).map(IpNet::from);
    text.parse().ok().or_else(one)
}

/// Whether this host is meant. A proxy has a loopback of its own.
fn is_here(host: &str, address: Option<IpAddr>) -> bool {
    let name = host == "localhost" || host.ends_with(".localhost");
    name || address.is_some_and(|it| it.is_loopback() || it.is_unspecified())
}

/// Whether it is the name of a Service, which no proxy outside of the cluster can resolve.
fn is_service(host: &str) -> bool {
    let known = ["kubernetes", "kubernetes.default"];
    known.contains(&host) || [".svc", ".svc.cluster.local"].iter().any(|it| host.ends_with(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_no_proxy_mean_what_curl_and_go_mean_by_them() {
        let rows = [
            ("example.com", "example.com", 443, true),
            ("example.com", "api.example.com", 443, true),
            ("example.com", "notexample.com", 443, false),
            (".example.com", "api.example.com", 443, true),
            (".example.com", "example.com", 443, true),
            ("*.example.com", "api.example.com", 443, true),
            ("Example.COM", "API.example.com.", 443, true),
            ("example.com.", "example.com", 443, true),
            ("example.com:6443", "example.com", 6443, true),
            ("example.com:6443", "example.com", 443, false),
            ("10.0.0.0/8", "10.1.2.3", 443, true),
            ("10.0.0.0/8", "11.1.2.3", 443, false),
            ("10.0.0.0/8", "ten.example.com", 443, false),
            ("10.1.2.3", "10.1.2.3", 443, true),
            ("10.1.2.3:6443", "10.1.2.3", 443, false),
            ("10.1.2.3:6443", "10.1.2.3", 6443, true),
            ("2001:db8::/32", "[2001:db8::1]", 443, true),
            ("2001:db8::1", "[2001:db8::1]", 443, true),
            ("[2001:db8::1]", "[2001:db8::1]", 443, true),
            ("[2001:db8::1]:6443", "[2001:db8::1]", 443, false),
            ("[2001:db8::1]:6443", "[2001:db8::1]", 6443, true),
            ("10.0.0.0/8", "[::ffff:10.1.2.3]", 443, true),
            ("*", "example.com", 443, true),
            ("a, *", "example.com", 443, true),
            ("", "example.com", 443, false),
            // As people write it.
            ("localhost, example.com ,", "example.com", 443, true),
            ("localhost example.com", "example.com", 443, true),
            (",,", "example.com", 443, false),
            ("ex ample", "example.com", 443, false),
            ("http://example.com", "example.com", 443, false),
            ("example.com:", "example.com", 443, false),
        ];
        for (no_proxy, host, port, expected) in rows {
            let exempt = Exempt::new(no_proxy, None);
            assert_eq!(exempt.has(host, port), expected, "{no_proxy:?} {host}:{port}");
        }
    }

    #[test]
    fn this_host_and_the_cluster_around_are_never_behind_a_proxy() {
        let exempt = Exempt::new("", Some("10.96.0.1".to_owned()));
        for host in [
            "localhost",
            "LOCALHOST.",
            "a.localhost",
            "127.0.0.1",
            "127.1.2.3",
            "[::1]",
            "[::ffff:127.0.0.1]",
            "0.0.0.0",
            "10.96.0.1",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "ostler.ostler-system.svc.cluster.local",
        ] {
            assert!(exempt.has(host, 443), "{host}");
        }
        for host in ["10.96.0.2", "svc.example.com", "localhost.example.com", "core"] {
            assert!(!exempt.has(host, 443), "{host}");
        }
    }
}
