//! GET of a collection.

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{Api, Target, negotiate::Form, select::Selection, stored, write::invalid_version_text};
use crate::{
    kinds::{
        Resource,
        field::FieldError,
        query::Query,
        status::{Answer, Status},
    },
    store::{HistoryError, Key, Page, Record},
};

/// Records looked at together while a selector picks a page.
const CHUNK: usize = 1000;
/// Bytes of stored text that a selector looks at before others have their turn: a few milliseconds.
pub(super) const TURN: usize = 256 << 10;

/// The version of a store in which nothing was ever written.
const EMPTY: u64 = 1;

const CONTINUE_VERSION: &str = "meta.k8s.io/v1";
const CONTINUE_EXPIRED: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter.";
const VERSION_EXPIRED: &str = "The resourceVersion for the provided list is too old.";

/// As of when a list is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AsOf {
    /// Now, which is also right for any version that is not newer.
    Now,
    /// Now, if this version is reached.
    NotOlderThan(u64),
    /// Exactly then.
    Exactly(u64),
}

/// How to list.
#[derive(Clone, Debug)]
pub(crate) struct ListOptions {
    selection: Selection,
    limit: Option<usize>,
    /// Where the last page ended.
    after: Option<Key>,
    as_of: AsOf,
    /// The list continues an earlier list.
    continued: bool,
}

/// Where the next page begins, as clients carry it around.
#[derive(Debug, Serialize, Deserialize)]
struct Continue {
    v: String,
    rv: u64,
    start: String,
}

impl ListOptions {
    /// Reads the query of a list.
    ///
    /// # Errors
    /// A parameter is malformed (400), or they do not go together (422).
    pub(crate) fn parse(target: &Target, query: &Query) -> Answer<Self> {
        let limit = query.number("limit")?.and_then(|limit| usize::try_from(limit).ok());
        check_timeout(query)?;
        query.number("timeoutSeconds")?;
        let errors = invalid_options(query);
        if !errors.is_empty() {
            return Err(Status::invalid_kind("meta.k8s.io", "ListOptions", "", &errors));
        }
        let selection = Selection::parse(&target.resource, query)?;
        let version = query.text("resourceVersion");
        // A list from the cache takes no limit, and clients count on getting all of it.
        let limit = limit.filter(|limit| *limit > 0 && version != "0");
        let token = query.text("continue");
        if !token.is_empty() {
            let (rv, after) = read_token(target, token)?;
            if !matches!(version, "" | "0") {
                let text = "specifying resource version is not allowed when using continue";
                return Err(Status::bad_request(text));
            }
            let as_of = AsOf::Exactly(rv);
            return Ok(Self { selection, limit, after: Some(after), as_of, continued: true });
        }
        let exact = query.text("resourceVersionMatch") == "Exact";
        let loose = query.text("resourceVersionMatch") == "NotOlderThan";
        let as_of = match version {
            "" | "0" => AsOf::Now,
            version => {
                let number = version.parse().map_err(|_| {
                    let text = invalid_version_text(version);
                    Status::bad_request(format!("invalid resource version: {text}"))
                })?;
                if exact || (limit.is_some() && !loose) {
                    AsOf::Exactly(number)
                } else {
                    AsOf::NotOlderThan(number)
                }
            }
        };
        Ok(Self { selection, limit, after: None, as_of, continued: false })
    }
}

/// `timeout` is a duration such as `30s`; it is checked and has no other effect.
fn check_timeout(query: &Query) -> Answer<()> {
    let text = query.text("timeout");
    let unit = |c: char| c.is_ascii_digit() || "hmsunµ.".contains(c);
    let fine = text.is_empty()
        || (text.starts_with(|c: char| c.is_ascii_digit()) && text.chars().all(unit));
    if fine {
        return Ok(());
    }
    let shown = crate::kinds::field::quote(text);
    Err(Status::bad_request(format!("time: invalid duration {shown}")))
}

/// The errors of list options that exclude each other.
fn invalid_options(query: &Query) -> Vec<FieldError> {
    let path = "resourceVersionMatch";
    let (wanted, version) = (query.text(path), query.text("resourceVersion"));
    let mut errors = Vec::new();
    if !wanted.is_empty() {
        if version.is_empty() {
            let detail = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            errors.push(FieldError::forbidden(path, detail));
        }
        if !query.text("continue").is_empty() {
            let detail = "resourceVersionMatch is forbidden when continue is provided";
            errors.push(FieldError::forbidden(path, detail));
        }
        if !matches!(wanted, "Exact" | "NotOlderThan") {
            let known = ["Exact", "NotOlderThan", ""];
            errors.push(FieldError::not_supported(path, &json!(wanted), &known));
        }
        if wanted == "Exact" && version == "0" {
            let detail = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            errors.push(FieldError::forbidden(path, detail));
        }
    }
    if query.get("sendInitialEvents").is_some() {
        let detail = "sendInitialEvents is forbidden for list";
        errors.push(FieldError::forbidden("sendInitialEvents", detail));
    }
    errors
}

/// Reads where the next page begins: flat JSON, read by `serde_json` with its bound.
fn read_token(target: &Target, token: &str) -> Answer<(u64, Key)> {
    let malformed = || {
        Status::bad_request(
            "invalid continue token: continue key is not valid: it cannot be decoded",
        )
    };
    let text = BASE64_URL_SAFE_NO_PAD.decode(token).map_err(|_| malformed())?;
    let read: Continue = serde_json::from_slice(&text).map_err(|_| malformed())?;
    if read.v != CONTINUE_VERSION || read.rv == 0 {
        return Err(malformed());
    }
    let start = read.start.trim_end_matches('\0');
    let (namespace, name) = match start.split_once('/') {
        Some(parts) => parts,
        None => (target.namespace.as_str(), start),
    };
    if name.is_empty() || (!target.namespace.is_empty() && namespace != target.namespace) {
        return Err(malformed());
    }
    Ok((read.rv, stored::key(&target.resource, namespace, name)))
}

fn write_token(revision: u64, last: &Key) -> String {
    let start = format!("{}/{}\0", last.namespace(), last.name());
    let token = Continue { v: CONTINUE_VERSION.to_owned(), rv: revision, start };
    let text = serde_json::to_vec(&token).unwrap_or_default();
    BASE64_URL_SAFE_NO_PAD.encode(text)
}

/// A list, or a page of one.
#[derive(Debug)]
pub(crate) struct Listing {
    /// The selected objects in their stored form, which is shared and not copied.
    pub(crate) items: Vec<Record>,
    /// The version at which the list is true.
    pub(crate) revision: u64,
    /// Where the next page begins.
    next: Option<Key>,
    /// How many follow, where that is known.
    remaining: Option<usize>,
}

impl Listing {
    /// A list that does not go on.
    #[cfg(test)]
    pub(crate) fn whole(items: Vec<Record>, revision: u64) -> Self {
        Self { items, revision, next: None, remaining: None }
    }

    /// The list's own metadata. Lists of whole custom objects show that they do not go on.
    pub(crate) fn metadata(&self, resource: &Resource, form: Form) -> Value {
        let mut metadata = Map::new();
        metadata.insert("resourceVersion".to_owned(), self.revision.to_string().into());
        if let Some(last) = &self.next {
            metadata.insert("continue".to_owned(), write_token(self.revision, last).into());
            if let Some(remaining) = self.remaining {
                metadata.insert("remainingItemCount".to_owned(), remaining.into());
            }
        } else if resource.is_custom() && form == Form::Whole {
            metadata.insert("continue".to_owned(), "".into());
        }
        Value::Object(metadata)
    }
}

impl Api {
    /// Lists the selected objects.
    ///
    /// # Errors
    /// The version asked for is gone (410) or not reached (504).
    pub(crate) async fn list(&self, target: &Target, options: &ListOptions) -> Answer<Listing> {
        let resource = &target.resource;
        if let AsOf::NotOlderThan(wanted) = options.as_of {
            self.reached(wanted)?;
        }
        let everything = options.selection.is_everything();
        let (mut items, mut seen) = (Vec::new(), 0);
        let (mut after, mut as_of) = (options.after.clone(), options.as_of);
        let full = |count: usize| options.limit.is_some_and(|limit| count >= limit);
        loop {
            let size = if everything { options.limit } else { options.limit.map(|_| CHUNK) };
            let Page { records, revision, remaining: rest } =
                self.page(target, options, after.as_ref(), size, as_of).await?;
            let total = records.len();
            let last = records.last().filter(|_| rest > 0).map(|record| record.key.clone());
            for (at, record) in records.into_iter().enumerate() {
                seen += record.value.len();
                if seen > TURN {
                    seen = 0;
                    tokio::task::yield_now().await;
                }
                if !everything && !options.selection.may_select(&record.value) {
                    continue;
                }
                // Also where nothing is selected by it: a list that cannot be read is an error, and
                // once its text is on the way there is no way to say so.
                let object = stored::load(resource, &record)?;
                if !everything && !options.selection.selects(resource, &object) {
                    continue;
                }
                if full(items.len()) {
                    // Another object is selected: the page ends before it.
                    let next = after.take();
                    return Ok(Listing { items, revision, next, remaining: None });
                }
                after = Some(record.key.clone());
                items.push(record);
                if everything && at + 1 == total && rest > 0 {
                    return Ok(Listing { items, revision, next: after, remaining: Some(rest) });
                }
            }
            let Some(last) = last else {
                return Ok(Listing { items, revision, next: None, remaining: None });
            };
            after = Some(last);
            as_of = AsOf::Exactly(revision);
        }
    }

    async fn page(
        &self,
        target: &Target,
        options: &ListOptions,
        after: Option<&Key>,
        size: Option<usize>,
        as_of: AsOf,
    ) -> Answer<Page> {
        let store = &self.context.store;
        if let (Some(name), AsOf::Now) = (options.selection.name(), as_of)
            && (!target.namespace.is_empty() || !target.resource.namespaced)
        {
            return Ok(self.single(target, name));
        }
        let prefix = stored::prefix(&target.resource, &target.namespace);
        let at = match as_of {
            AsOf::Now | AsOf::NotOlderThan(_) => None,
            AsOf::Exactly(revision) => Some(revision),
        };
        let indexed = |field: (&str, &str)| store.list_by(&prefix, field, after, at);
        if let Some(page) = options.selection.indexed(indexed) {
            return Ok(page);
        }
        match as_of {
            AsOf::Now | AsOf::NotOlderThan(_) => Ok(store.list(&prefix, after, size)),
            AsOf::Exactly(revision) if self.forgotten(revision) => {
                Err(Status::expired(VERSION_EXPIRED))
            }
            AsOf::Exactly(revision) => store
                .list_at(&prefix, after, size, revision)
                .await
                .map_err(|error| history_failure(&error, options.continued)),
        }
    }

    /// The page of one name: no walk over the collection. Reading the revision first makes the
    /// page true at it, or at the object's own if that is later.
    fn single(&self, target: &Target, name: &str) -> Page {
        let before = self.context.store.revision();
        let key = stored::key(&target.resource, &target.namespace, name);
        let records: Vec<Record> = self.context.store.get(&key).into_iter().collect();
        let revision = records.iter().map(|record| record.revision).fold(before, u64::max);
        Page { records, revision, remaining: 0 }
    }

    /// Whether a version belongs to the empty store, in a store that is not empty any more. No client ever got such a
    /// version from this store: its client has to start anew.
    pub(crate) fn forgotten(&self, wanted: u64) -> bool {
        wanted <= EMPTY && self.context.store.revision() > EMPTY
    }

    /// Refuses a version that is not reached.
    ///
    /// # Errors
    /// It is not (504).
    pub(crate) fn reached(&self, wanted: u64) -> Answer<()> {
        let current = self.context.store.revision();
        if wanted > current { Err(Status::too_large_version(wanted, current)) } else { Ok(()) }
    }
}

fn history_failure(error: &HistoryError, continued: bool) -> Box<Status> {
    match error {
        HistoryError::Compacted { .. } if continued => Status::expired(CONTINUE_EXPIRED),
        HistoryError::Compacted { .. } => Status::expired(VERSION_EXPIRED),
        HistoryError::Future { revision, latest } => Status::too_large_version(*revision, *latest),
        HistoryError::Storage(_) => Status::internal(error.to_string()),
    }
}
