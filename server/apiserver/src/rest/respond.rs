//! From values to HTTP answers.

use std::{collections::HashSet, convert::Infallible};

use axum::body::Body;
use futures::StreamExt;
use http::{HeaderValue, Response, StatusCode, header};
use serde::Serialize;

use super::{Kept, listing::Written, negotiate::Encoding, protobuf};
use crate::kinds::status::Status;

/// A document in an encoding.
pub(crate) fn document(
    encoding: Encoding,
    code: StatusCode,
    document: &impl Serialize,
) -> Response<Body> {
    let text = match encoding {
        Encoding::Json => serde_json::to_vec(document).map(|mut text| {
            text.push(b'\n');
            text
        }),
        Encoding::PrettyJson => serde_json::to_vec_pretty(document),
        Encoding::Yaml => Ok(serde_saphyr::to_string(document).unwrap_or_default().into_bytes()),
    };
    typed(code, encoding.media_type(), text.unwrap_or_default())
}

/// Marks an answer of unknown length, which is written while it is read. Such an answer is large and finite.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Streamed;

/// A list: small lists are written in one piece, large lists as they are read.
pub(crate) fn list(written: Written) -> Response<Body> {
    let (encoding, kept) = (written.encoding(), Kept::new(0, written.held()));
    if written.is_small() {
        let text: Vec<u8> = written.flatten().collect();
        return typed(StatusCode::OK, encoding.media_type(), text);
    }
    // Others have their turn between two pieces, however fast the reader is. The compressor reads on
    // after the end.
    let pieces = futures::stream::unfold(written, |mut written| async {
        tokio::task::yield_now().await;
        written.next().map(|piece| (Ok::<_, Infallible>(piece), written))
    });
    let mut response =
        typed(StatusCode::OK, encoding.media_type(), Body::from_stream(pieces.fuse()));
    response.extensions_mut().insert(Streamed);
    response.extensions_mut().insert(kept);
    response
}

/// A Status, with headers for the details.
pub(crate) fn status(encoding: Encoding, status: &Status) -> Response<Body> {
    let mut response = document(encoding, status.http_code(), status);
    let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
    if seconds > 0 {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// A Status for a client that reads the binary form only.
pub(crate) fn binary(refusal: &Status) -> Response<Body> {
    let body = protobuf::refusal(refusal).unwrap_or_default();
    typed(refusal.http_code(), protobuf::MEDIA_TYPE, body)
}

/// Nothing is here: the answer for addresses outside the API.
pub(crate) fn no_page() -> Response<Body> {
    let mut response = text(StatusCode::NOT_FOUND, "404 page not found\n");
    let no_sniff = HeaderValue::from_static("nosniff");
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, no_sniff);
    response
}

/// A plain text, as health checks answer.
pub(crate) fn text(code: StatusCode, text: impl Into<Body>) -> Response<Body> {
    typed(code, "text/plain; charset=utf-8", text)
}

/// Characters that the warnings of one answer may have together, and what each may have if they would have
/// more: as in kube-apiserver. Clients refuse an answer with longer headers.
const WARNINGS: usize = 4 << 10;
const CUT_WARNING: usize = 256;

/// Adds warnings to an answer, each as a header of its own and none twice. Of what is too much, the first
/// ones are sent, cut.
pub(crate) fn warn(response: &mut Response<Body>, warnings: &[String]) {
    let mut seen = HashSet::new();
    let told = warnings.iter().filter(|warning| !warning.is_empty() && seen.insert(*warning));
    let told: Vec<&String> = told.collect();
    let length = |text: &str| text.chars().count();
    let cut = told.iter().map(|warning| length(warning)).sum::<usize>() > WARNINGS;
    let mut left = WARNINGS;
    for warning in told {
        let most = if cut { CUT_WARNING } else { WARNINGS };
        let warning: String = warning.chars().take(most).collect();
        let Some(rest) = left.checked_sub(length(&warning)) else { return };
        left = rest;
        let text = format!("299 - {}", crate::kinds::field::quote(&warning));
        if let Ok(value) = HeaderValue::from_bytes(text.as_bytes()) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
}

fn typed(code: StatusCode, media_type: &'static str, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(warnings: &[String]) -> Vec<String> {
        let mut response = Response::new(Body::empty());
        warn(&mut response, warnings);
        let headers = response.headers().get_all(header::WARNING).into_iter();
        headers.map(|header| header.to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn few_warnings_are_sent_as_they_are_and_none_twice() {
        let long = "x".repeat(1000);
        let warnings = [long.clone(), "short".to_owned(), "short".to_owned(), String::new()];
        assert_eq!(sent(&warnings), [format!("299 - \"{long}\""), "299 - \"short\"".to_owned()]);
    }

    #[test]
    fn twenty_thousand_warnings_are_cut_to_four_kilobytes() {
        let warnings: Vec<String> = (0..20_000)
            .map(|at| format!("unknown field \"spec.f{at}\" {}", "x".repeat(500)))
            .collect();
        let sent = sent(&warnings);
        let size: usize = sent.iter().map(String::len).sum();
        assert!(sent.len() == 16 && size <= WARNINGS + 16 * 16, "{} {size}", sent.len());
        assert!(sent[0].contains("spec.f0"));
    }
}
