//! In which form and encoding an answer is given.

use http::{HeaderMap, header};

use super::protobuf;
use crate::kinds::{
    query::Query,
    status::{Answer, Details, Status},
};

/// The text encoding of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// JSON, one line.
    Json,
    /// JSON for people.
    PrettyJson,
    /// YAML.
    Yaml,
}

impl Encoding {
    pub(super) const fn media_type(self) -> &'static str {
        match self {
            Self::Json | Self::PrettyJson => "application/json",
            Self::Yaml => "application/yaml",
        }
    }
}

/// A version of the meta group, which tables and partial objects carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetaVersion {
    /// `meta.k8s.io/v1`.
    V1,
    /// `meta.k8s.io/v1beta1`.
    V1Beta1,
}

impl MetaVersion {
    /// The `apiVersion` text.
    pub(crate) const fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "meta.k8s.io/v1",
            Self::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

/// The form of objects in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Nothing: they are themselves.
    Whole,
    /// Their metadata alone.
    Partial(MetaVersion),
    /// A list of their metadata alone.
    PartialList(MetaVersion),
    /// Rows of a table.
    Table(MetaVersion),
}

/// How to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct View {
    /// The encoding.
    pub(crate) encoding: Encoding,
    /// The form of objects.
    pub(crate) form: Form,
}

/// The available media types, as a 406 names them. Protobuf is listed as Kubernetes lists it; only refusals are written so.
const OFFERED: [&str; 3] = ["application/json", "application/yaml", protobuf::MEDIA_TYPE];

/// Reads the Accept header and what else decides.
///
/// # Errors
/// Nothing that is asked for can be had (406).
pub(crate) fn negotiate(headers: &HeaderMap, query: &Query) -> Answer<View> {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let pretty = wants_pretty(headers, query);
    let accept = accept.unwrap_or_default();
    if accept.trim().is_empty() {
        return Ok(View { encoding: json(pretty), form: Form::Whole });
    }
    let mut clauses: Vec<Clause<'_>> = accept.split(',').map(Clause::parse).collect();
    clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    clauses.iter().find_map(|clause| clause.view(pretty)).ok_or_else(|| {
        let mut status = Status::not_acceptable(&OFFERED);
        if clauses.iter().all(|clause| clause.encoding(pretty).is_none()) {
            // Kubernetes has it so: no details only where the type is known and the form is not.
            status.details = Some(Details::default());
        }
        status
    })
}

/// Whether a client takes the binary form, and none that it can have.
pub(crate) fn wants_binary(headers: &HeaderMap, query: &Query) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    accept.is_some_and(|accept| accept.contains(protobuf::MEDIA_TYPE))
        && negotiate(headers, query).is_err()
}

/// The encoding for an error when the Accept header itself may be what is wrong.
pub(crate) fn error_encoding(headers: &HeaderMap, query: &Query) -> Encoding {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    if accept.is_some_and(|accept| accept.trim_start().starts_with("application/yaml")) {
        return Encoding::Yaml;
    }
    json(wants_pretty(headers, query))
}

fn json(pretty: bool) -> Encoding {
    if pretty { Encoding::PrettyJson } else { Encoding::Json }
}

/// Readable answers are for requests with `pretty`, and for the user agents of people's tools.
fn wants_pretty(headers: &HeaderMap, query: &Query) -> bool {
    query.flag("pretty").unwrap_or_else(|| {
        let agent = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok());
        agent.is_some_and(|agent| {
            ["curl", "Wget", "Mozilla/5.0"].iter().any(|tool| agent.starts_with(tool))
        })
    })
}

/// One alternative of an Accept header.
struct Clause<'a> {
    media_type: &'a str,
    quality: f32,
    form: &'a str,
    group: &'a str,
    version: &'a str,
}

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let media_type = parts.next().unwrap_or_default();
        let mut clause = Self { media_type, quality: 1.0, form: "", group: "", version: "" };
        for part in parts {
            match part.split_once('=') {
                Some(("q", value)) => clause.quality = value.parse().unwrap_or(1.0),
                Some(("as", value)) => clause.form = value,
                Some(("g", value)) => clause.group = value,
                Some(("v", value)) => clause.version = value,
                Some(_) | None => {}
            }
        }
        clause
    }

    fn view(&self, pretty: bool) -> Option<View> {
        Some(View { encoding: self.encoding(pretty)?, form: self.form()? })
    }

    fn encoding(&self, pretty: bool) -> Option<Encoding> {
        match self.media_type {
            "application/json" | "*/*" => Some(json(pretty)),
            "application/yaml" => Some(Encoding::Yaml),
            _ => None,
        }
    }

    fn form(&self) -> Option<Form> {
        if self.form.is_empty() {
            return Some(Form::Whole);
        }
        let version = match (self.group, self.version) {
            ("meta.k8s.io", "v1") => MetaVersion::V1,
            ("meta.k8s.io", "v1beta1") => MetaVersion::V1Beta1,
            _ => return None,
        };
        match self.form {
            "Table" => Some(Form::Table(version)),
            "PartialObjectMetadata" => Some(Form::Partial(version)),
            "PartialObjectMetadataList" => Some(Form::PartialList(version)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn view(accept: &str) -> Option<View> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_str(accept).unwrap());
        negotiate(&headers, &Query::default()).ok()
    }

    #[test]
    fn the_first_alternative_that_can_be_had_is_taken() {
        let json = |form| Some(View { encoding: Encoding::Json, form });
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        let cases = [
            ("", json(Form::Whole)),
            ("*/*", json(Form::Whole)),
            ("application/*", None),
            ("application/xml", None),
            ("application/vnd.kubernetes.protobuf", None),
            ("application/vnd.kubernetes.protobuf, application/json", json(Form::Whole)),
            ("text/html,*/*;q=0.8", json(Form::Whole)),
            ("application/json;foo=bar", json(Form::Whole)),
            ("application/cbor;q=0.1,application/json", json(Form::Whole)),
            (table, json(Form::Table(MetaVersion::V1))),
            ("application/json;as=PartialObjectMetadata;v=v9;g=meta.k8s.io", None),
            (
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1beta1",
                json(Form::PartialList(MetaVersion::V1Beta1)),
            ),
            (
                "application/yaml;q=0.9,application/json;q=0.1",
                Some(View { encoding: Encoding::Yaml, form: Form::Whole }),
            ),
        ];
        for (accept, expected) in cases {
            assert_eq!(view(accept), expected, "{accept}");
        }
    }
}
