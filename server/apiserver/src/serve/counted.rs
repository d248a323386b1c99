//! Counters of requests by client, resource and result. Bounded, whatever clients send.

use std::collections::{BTreeSet, HashSet};

use axum::body::Body;
use http::{Request, StatusCode, header};
use prometheus_client::encoding::EncodeLabelSet;

use crate::auth::{Attributes, Target};

/// User agents with a label of their own; those that come later are counted together.
const AGENTS: usize = 32;
/// The same of resources. More are served only if definitions add them.
const RESOURCES: usize = 64;
/// Combinations of labels; requests of more are counted together by verb and code.
const SERIES: usize = 4096;
/// The longest user agent that has a label.
const LONGEST: usize = 64;
/// The label of everything without a label of its own.
const OTHER: &str = "other";
/// The label of a client without user agent, and of a path without resource.
const NONE: &str = "none";

/// The verbs there are; anything else is counted as `other`.
const VERBS: [&str; 8] =
    ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];

/// Labels of a finished request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Answered {
    pub(super) verb: &'static str,
    resource: String,
    code: u16,
    agent: String,
}

/// The labels of a request before its answer.
#[derive(Clone, Debug)]
pub(super) struct Asker {
    verb: String,
    /// `machines.machine.sapcloud.io/status`; none for a path that is no resource.
    resource: Option<String>,
    agent: String,
}

impl Asker {
    pub(super) fn of(attributes: &Attributes, request: &Request<Body>) -> Self {
        let agent = request.headers().get(header::USER_AGENT);
        let agent = agent.and_then(|agent| agent.to_str().ok()).unwrap_or_default();
        Self {
            verb: attributes.verb.clone(),
            resource: resource(&attributes.target),
            agent: product(agent).to_owned(),
        }
    }
}

/// The first product of a user agent, without its version and without what is no word of ASCII.
fn product(agent: &str) -> &str {
    let word = |c: &char| c.is_ascii_alphanumeric() || "-_.".contains(*c);
    let length = agent.chars().take_while(word).take(LONGEST).count();
    agent.get(..length).filter(|name| !name.is_empty()).unwrap_or(NONE)
}

fn resource(target: &Target) -> Option<String> {
    let Target::Resource { group, resource, subresource, .. } = target else { return None };
    let dot = if group.is_empty() { "" } else { "." };
    let slash = if subresource.is_empty() { "" } else { "/" };
    Some(format!("{resource}{dot}{group}{slash}{subresource}"))
}

/// The labels that were given out. A name gets one with the first request for a resource that succeeds: strangers, and
/// what leads nowhere, take nobody's place.
#[derive(Debug, Default)]
pub(super) struct Labels {
    agents: BTreeSet<String>,
    resources: BTreeSet<String>,
    series: HashSet<Answered>,
}

impl Labels {
    pub(super) fn of(&mut self, asker: &Asker, code: StatusCode) -> Answered {
        let new = code.is_success() && asker.resource.is_some();
        let verb = VERBS.iter().find(|known| **known == asker.verb).copied().unwrap_or(OTHER);
        let code = code.as_u16();
        let agent = label(&mut self.agents, AGENTS, &asker.agent, new);
        let resource = asker.resource.as_ref().map_or_else(
            || NONE.to_owned(),
            |resource| label(&mut self.resources, RESOURCES, resource, new),
        );
        let answered = Answered { verb, resource, code, agent };
        if self.series.contains(&answered) {
            return answered;
        }
        if self.series.len() < SERIES {
            self.series.insert(answered.clone());
            return answered;
        }
        Answered { resource: OTHER.to_owned(), agent: OTHER.to_owned(), ..answered }
    }
}

fn label(known: &mut BTreeSet<String>, most: usize, name: &str, new: bool) -> String {
    if !known.contains(name) {
        if !new || known.len() >= most {
            return OTHER.to_owned();
        }
        known.insert(name.to_owned());
    }
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    fn asker(method: &Method, path: &str, agent: &str) -> Asker {
        let request = Request::builder().header(header::USER_AGENT, agent).body(Body::empty());
        Asker::of(&Attributes::of(method, path, None), &request.unwrap())
    }

    fn text(answered: &Answered) -> String {
        let Answered { verb, resource, code, agent } = answered;
        format!("{verb} {resource} {code} {agent}")
    }

    #[test]
    fn a_request_is_counted_by_verb_resource_code_and_the_first_product_of_its_agent() {
        let mut labels = Labels::default();
        for (method, path, agent, expected) in [
            (Method::GET, "/api/v1/nodes", "kubectl/v1.36 (linux/amd64)", "list nodes 200 kubectl"),
            (
                Method::PATCH,
                "/apis/machine.sapcloud.io/v1alpha1/namespaces/a/machines/m/status",
                "ostler-server/0.1",
                "patch machines.machine.sapcloud.io/status 200 ostler-server",
            ),
            (Method::GET, "/api/v1/nodes/n", "", "get nodes 200 none"),
            (Method::GET, "/api/v1/nodes/n", "\"} 1", "get nodes 200 none"),
            (Method::GET, "/readyz", "curl/8", "get none 200 other"),
            (Method::TRACE, "/api/v1/nodes", "curl/8", "other nodes 200 curl"),
            (Method::GET, "/readyz", "curl/8", "get none 200 curl"),
        ] {
            let answered = labels.of(&asker(&method, path, agent), StatusCode::OK);
            assert_eq!(text(&answered), expected);
        }
        assert_eq!(product(&"x".repeat(100)).len(), LONGEST);
    }

    #[test]
    fn what_is_refused_gets_no_label_of_its_own() {
        let mut labels = Labels::default();
        let asked = asker(&Method::GET, "/api/v1/brews", "mine/1");
        assert_eq!(text(&labels.of(&asked, StatusCode::NOT_FOUND)), "list other 404 other");
        let served = asker(&Method::GET, "/api/v1/nodes", "mine/1");
        labels.of(&served, StatusCode::OK);
        assert_eq!(text(&labels.of(&asked, StatusCode::NOT_FOUND)), "list other 404 mine");
    }

    #[test]
    fn there_are_no_more_series_than_so_many_whatever_clients_send() {
        let mut labels = Labels::default();
        let mut seen = HashSet::new();
        for at in 0..100 {
            for resource in 0..100 {
                let path = format!("/api/v1/r{resource}");
                let asked = asker(&Method::GET, &path, &format!("agent{at}/1"));
                seen.insert(labels.of(&asked, StatusCode::OK));
            }
        }
        assert!(labels.agents.len() == AGENTS && labels.resources.len() == RESOURCES);
        for code in 200..300 {
            let asked = asker(&Method::GET, "/api/v1/r1", "agent1/1");
            seen.insert(labels.of(&asked, StatusCode::from_u16(code).unwrap()));
            for at in 0..32 {
                let asked = asker(&Method::GET, "/api/v1/r2", &format!("agent{at}/1"));
                seen.insert(labels.of(&asked, StatusCode::from_u16(code).unwrap()));
            }
        }
        assert!(labels.series.len() <= SERIES);
        assert!(seen.len() <= SERIES + 200, "{}", seen.len());
    }
}
