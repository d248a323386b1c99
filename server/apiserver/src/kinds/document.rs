//! Documents about the API itself: what discovery and OpenAPI serve.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// A document to be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Document {
    /// The `Content-Type` header.
    pub(crate) content_type: String,
    /// The `ETag` header, quoted; `None` where Kubernetes sends none.
    pub(crate) etag: Option<String>,
    /// The body.
    pub(crate) bytes: Bytes,
}

/// Documents by group and version, `api/v1` or `apis/{group}/{version}`.
pub(crate) type Documents = BTreeMap<String, Arc<Document>>;

/// A document with a tag made of its content.
pub(crate) fn tagged(content_type: &str, body: &Value) -> Document {
    tagged_bytes(content_type, Bytes::from(body.to_string()))
}

/// The same of a body that is written already.
pub(crate) fn tagged_bytes(content_type: &str, bytes: Bytes) -> Document {
    let etag = Some(format!("\"{}\"", hash(&bytes)));
    Document { content_type: content_type.to_owned(), etag, bytes }
}

/// The SHA-256 of a document, in upper-case hexadecimal digits.
pub(crate) fn hash(bytes: &[u8]) -> String {
    hex::encode_upper(Sha256::digest(bytes))
}
