//! GET of a collection with `watch`.
//!
//! The stream pulls from the store at its reader's pace and holds one event at a time; a reader
//! that is overtaken by compaction is told so (410) and starts anew.

use std::{collections::VecDeque, convert::Infallible, sync::Arc, time::Duration};

use axum::body::Body;
use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderValue, Response, header};
use rand::Rng;
use serde_json::{Value, json};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep_until};

use super::{
    Api, Kept, Served, Target,
    form::Shaper,
    lines::Lines,
    list::TURN,
    negotiate::{Encoding, Form, View},
    select::Selection,
    stored,
    write::invalid_version,
};
use crate::{
    clock::Clock,
    kinds::{
        Resource,
        field::FieldError,
        query::Query,
        status::{Answer, Status},
        table::Include,
    },
    store::{Change, Event, HistoryError, Record, Watch},
};

/// How often a quiet watch says how far it is.
const BOOKMARKS: Duration = Duration::from_mins(1);
/// How long a watch runs at least if its client does not say.
const LEAST: Duration = Duration::from_mins(30);
/// How long a watch runs at most: what clients say may be more than a clock can count.
const MOST: Duration = Duration::from_hours(24);
/// Ready events are sent together up to this size, so that a long list is not a packet each.
const FRAME: usize = 32 << 10;

/// The annotation of the bookmark behind the initial events.
const INITIAL_END: &str = "k8s.io/initial-events-end";

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventType {
    /// The object came, or came to be selected.
    Added,
    /// The object changed.
    Modified,
    /// The object went, or is not selected any more.
    Deleted,
}

impl EventType {
    const fn name(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// How to watch.
#[derive(Clone, Debug)]
pub(crate) struct WatchOptions {
    selection: Selection,
    /// Changes after this version; none begins with what is there.
    after: Option<u64>,
    /// The existing objects come first.
    initial: bool,
    /// A bookmark marks the end of what is there.
    mark_initial: bool,
    bookmarks: bool,
    timeout: Duration,
}

impl WatchOptions {
    /// Reads the query of a watch.
    ///
    /// # Errors
    /// A parameter is malformed (400 or 500), or they do not go together (422).
    pub(crate) fn parse(resource: &Resource, query: &Query) -> Answer<Self> {
        query.number("limit")?;
        let timeout = query.number("timeoutSeconds")?.and_then(|number| u64::try_from(number).ok());
        let errors = invalid_options(query);
        if !errors.is_empty() {
            return Err(Status::invalid_kind("meta.k8s.io", "ListOptions", "", &errors));
        }
        let selection = Selection::parse(resource, query)?;
        let version = match query.text("resourceVersion") {
            "" | "0" => None,
            text => Some(text.parse::<u64>().map_err(|_| invalid_version(text))?),
        };
        let send_initial = query.flag("sendInitialEvents");
        let initial = send_initial.unwrap_or_else(|| version.is_none());
        let bookmarks = query.flag("allowWatchBookmarks").unwrap_or(false);
        let timeout = match timeout.filter(|seconds| *seconds > 0) {
            Some(seconds) => Duration::from_secs(seconds).min(MOST),
            // Spread, so that clients that came together do not come back together.
            None => LEAST + LEAST.mul_f64(f64::from(rand::rng().next_u32()) / f64::from(u32::MAX)),
        };
        Ok(Self {
            selection,
            after: version,
            initial,
            mark_initial: send_initial == Some(true) && bookmarks,
            bookmarks,
            timeout,
        })
    }
}

/// The errors of watch options that exclude each other.
fn invalid_options(query: &Query) -> Vec<FieldError> {
    let path = "resourceVersionMatch";
    let wanted = query.text(path);
    let initial = query.get("sendInitialEvents").is_some();
    let mut errors = Vec::new();
    if initial && wanted != "NotOlderThan" {
        let detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        errors.push(FieldError::forbidden(path, detail));
    }
    if !wanted.is_empty() {
        if !initial {
            let detail =
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            errors.push(FieldError::forbidden(path, detail));
        }
        if wanted != "NotOlderThan" {
            errors.push(FieldError::not_supported(path, &json!(wanted), &["NotOlderThan"]));
        }
        if !query.text("continue").is_empty() {
            let detail = "resourceVersionMatch is forbidden when continue is provided";
            errors.push(FieldError::forbidden(path, detail));
        }
    }
    errors
}

/// What a change is to those who follow a selection: `before` and `after` say whether the object
/// was and is selected.
pub(crate) fn transition(before: bool, after: bool) -> Option<EventType> {
    match (before, after) {
        (false, true) => Some(EventType::Added),
        (true, true) => Some(EventType::Modified),
        (true, false) => Some(EventType::Deleted),
        (false, false) => None,
    }
}

/// A running watch.
struct Watcher {
    served: Served,
    lines: Lines,
    resource: Arc<Resource>,
    selection: Selection,
    view: View,
    include: Include,
    clock: Clock,
    /// Existing objects that were not sent yet.
    initial: VecDeque<Record>,
    /// The version at which the initial objects are true, if their end is to be marked.
    initial_end: Option<u64>,
    events: Watch,
    kept: Kept,
    /// No event was sent: the next one has the columns of a table.
    first: bool,
    bookmarks: Option<Interval>,
    deadline: Instant,
    /// Bytes of stored text that were looked at since others had their turn.
    seen: usize,
    ended: bool,
}

impl Api {
    /// Opens a watch; the answer's body goes on until its timeout, or until the store is closed.
    ///
    /// # Errors
    /// The version that is to be reached first is not reached (504).
    pub(crate) fn watch(
        &self,
        target: &Target,
        options: WatchOptions,
        view: View,
        include: Include,
    ) -> Answer<Response<Body>> {
        let resource = &target.resource;
        let prefix = stored::prefix(resource, &target.namespace);
        let (mut initial, mut after) = (VecDeque::new(), self.context.store.revision());
        if options.initial {
            if let Some(wanted) = options.after {
                self.reached(wanted)?;
            }
            let store = &self.context.store;
            let indexed = |field: (&str, &str)| store.list_by(&prefix, field, None, None);
            let found = options.selection.indexed(indexed);
            let page = found.unwrap_or_else(|| store.list(&prefix, None, None));
            let may_be = |record: &Record| options.selection.may_name(&record.key);
            initial.extend(page.records.into_iter().filter(may_be));
            after = page.revision;
        } else if let Some(wanted) = options.after {
            after = wanted;
        }
        let events = match self.context.store.watch(prefix, after) {
            Ok(_) if self.forgotten(after) => {
                let oldest = self.context.store.compacted() + 1;
                let error = HistoryError::Compacted { revision: after, oldest };
                return Ok(stream_answer(futures::stream::iter([ended_by(&error)])));
            }
            Ok(events) => events,
            Err(error) => return Ok(stream_answer(futures::stream::iter([ended_by(&error)]))),
        };
        let start = Instant::now();
        let bookmarks = options.bookmarks.then(|| {
            let mut ticks = interval_at(start + BOOKMARKS, BOOKMARKS);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks
        });
        let kept = Kept::new(options.selection.bytes(), held(&initial));
        let watcher = Watcher {
            served: self.served.clone(),
            lines: self.lines.clone(),
            resource: Arc::clone(resource),
            selection: options.selection,
            view,
            include,
            clock: Arc::clone(&self.context.clock),
            initial,
            initial_end: options.mark_initial.then_some(after),
            events,
            kept: kept.clone(),
            first: true,
            bookmarks,
            deadline: start + options.timeout,
            seen: 0,
            ended: false,
        };
        let stream = futures::stream::unfold(watcher, |mut watcher| async {
            watcher.next_frame().await.map(|frame| (frame, watcher))
        });
        let mut response = stream_answer(stream);
        response.extensions_mut().insert(kept);
        Ok(response)
    }
}

/// Bytes of memory of the list, without the texts of the objects, which the store has anyway.
fn held(initial: &VecDeque<Record>) -> usize {
    initial.capacity() * size_of::<Record>()
}

fn stream_answer(frames: impl futures::Stream<Item = Bytes> + Send + 'static) -> Response<Body> {
    let mut response = Response::new(Body::from_stream(frames.map(Ok::<_, Infallible>)));
    let media_type = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, media_type);
    response
}

/// The last event of a watch whose history is gone.
fn ended_by(error: &HistoryError) -> Bytes {
    let status = match error {
        HistoryError::Compacted { revision, oldest } => Status::too_old(*revision, *oldest),
        HistoryError::Future { .. } | HistoryError::Storage(_) => {
            Status::internal(error.to_string())
        }
    };
    let mut line = Vec::new();
    write_line(&mut line, "ERROR", &json!(status));
    line.into()
}

/// Writes an event. The type comes first, so that readers need not buffer the object.
fn write_line(line: &mut Vec<u8>, kind: &str, object: &Value) {
    line.extend_from_slice(b"{\"type\":\"");
    line.extend_from_slice(kind.as_bytes());
    line.extend_from_slice(b"\",\"object\":");
    // A `Value` can always be written.
    serde_json::to_writer(&mut *line, object).ok();
    line.extend_from_slice(b"}\n");
}

/// A change as a watch of everything shows it.
fn line_of(event: &Event, resource: &Resource) -> Bytes {
    let kind = match (&event.change, &event.previous) {
        (Change::Delete(_), _) => EventType::Deleted,
        (Change::Put(_), None) => EventType::Added,
        (Change::Put(_), Some(_)) => EventType::Modified,
    };
    let mut line = Vec::new();
    match load_event(resource, event, event.change.value()) {
        Ok(object) => write_line(&mut line, kind.name(), &object),
        Err(status) => write_line(&mut line, "ERROR", &json!(status)),
    }
    line.into()
}

/// The object of an event. Of one that is gone and cannot be read there is no more to say than its name.
fn load_event(resource: &Resource, event: &Event, text: &[u8]) -> Answer<Value> {
    let loaded = stored::load_at(resource, &event.key, text, event.revision);
    if loaded.is_err() && matches!(event.change, Change::Delete(_)) {
        let (key, value) = (event.key.clone(), event.change.value().clone());
        let record = Record { key, revision: event.revision, value };
        return Ok(stored::remains(resource, &record));
    }
    loaded
}

impl Watcher {
    /// The next events as text, as many as are ready; none at the end.
    async fn next_frame(&mut self) -> Option<Bytes> {
        let mut frame = Vec::new();
        while !self.ended && frame.len() < FRAME {
            if self.seen > TURN {
                self.seen = 0;
                tokio::task::yield_now().await;
            }
            if self.write_initial(&mut frame) {
                continue;
            }
            if frame.is_empty() {
                self.wait(&mut frame).await;
            } else if !self.write_ready(&mut frame) {
                break;
            }
        }
        self.kept.set_unwritten(held(&self.initial) + self.events.waiting());
        frame.shrink_to_fit();
        (!frame.is_empty()).then(|| frame.into())
    }

    /// Writes one of the initial objects, or the mark behind them; false if there are no more.
    fn write_initial(&mut self, frame: &mut Vec<u8>) -> bool {
        if let Some(record) = self.initial.pop_front() {
            self.seen += record.value.len();
            if self.selection.may_select(&record.value) {
                match stored::load(&self.resource, &record) {
                    Ok(object) => {
                        if self.selection.selects(&self.resource, &object) {
                            self.write(frame, EventType::Added, object);
                        }
                    }
                    // An unreadable object ends the watch: the bookmark after the initial events promises all objects.
                    Err(status) => {
                        write_line(frame, "ERROR", &json!(status));
                        self.ended = true;
                    }
                }
            }
            return true;
        }
        self.initial = VecDeque::new();
        let Some(revision) = self.initial_end.take() else { return false };
        self.write_bookmark(frame, revision, true);
        true
    }

    /// Writes an event that is there already; false if there is none.
    fn write_ready(&mut self, frame: &mut Vec<u8>) -> bool {
        use futures::FutureExt;
        match self.events.next().now_or_never() {
            Some(event) => {
                self.take(frame, event);
                true
            }
            None => false,
        }
    }

    /// Waits for what comes first: an event, the time for a bookmark, or the end.
    async fn wait(&mut self, frame: &mut Vec<u8>) {
        let tick = async {
            match &mut self.bookmarks {
                Some(ticks) => ticks.tick().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            event = self.events.next() => self.take(frame, event),
            () = sleep_until(self.deadline) => {
                self.ended = true;
                if self.bookmarks.is_some() {
                    self.write_bookmark(frame, self.events.reached(), false);
                }
            }
            _ = tick => self.write_bookmark(frame, self.events.reached(), false),
        }
    }

    fn take(&mut self, frame: &mut Vec<u8>, event: Option<Result<Arc<Event>, HistoryError>>) {
        match event {
            Some(Ok(event)) => self.write_event(frame, &event),
            Some(Err(error)) => {
                self.ended = true;
                frame.extend_from_slice(&ended_by(&error));
            }
            None => self.ended = true,
        }
    }

    fn write_event(&mut self, frame: &mut Vec<u8>, event: &Event) {
        if !self.selection.may_name(&event.key) {
            return;
        }
        self.seen += event.change.value().len();
        self.refresh();
        let resource = Arc::clone(&self.resource);
        if self.view.form == Form::Whole && self.selection.is_everything() {
            let line = self.lines.line(event.revision, &resource, || line_of(event, &resource));
            return frame.extend_from_slice(&line);
        }
        match self.told(event, &resource) {
            Ok(Some((kind, object))) => self.write(frame, kind, object),
            Ok(None) => {}
            // The others are followed all the same.
            Err(status) => write_line(frame, "ERROR", &json!(status)),
        }
    }

    /// The event for this watch, if any.
    ///
    /// # Errors
    /// The object cannot be read.
    fn told(&self, event: &Event, resource: &Resource) -> Answer<Option<(EventType, Value)>> {
        let selects = |object: &Value| self.selection.selects(resource, object);
        let load = |text: &[u8]| load_event(resource, event, text);
        if let Change::Put(text) = &event.change {
            // Objects that neither were meant nor are need not be read.
            let before = event.previous.as_ref().map(|record| &record.value);
            if !before.into_iter().chain([text]).any(|text| self.selection.may_select(text)) {
                return Ok(None);
            }
        }
        let (kind, object) = match (&event.change, &event.previous) {
            (Change::Delete(last), _) => {
                let readable = stored::load_at(resource, &event.key, last, event.revision).is_ok();
                let object = load(last)?;
                // Whether one that cannot be read was selected is not known.
                let told = !readable || selects(&object);
                (told.then_some(EventType::Deleted), object)
            }
            (Change::Put(text), None) => {
                let object = load(text)?;
                (transition(false, selects(&object)), object)
            }
            (Change::Put(text), Some(previous)) => {
                // An object that is not selected any more is shown in its last selected state.
                let (before, after) = (load(&previous.value).ok(), load(text)?);
                let was = before.as_ref().is_some_and(selects);
                match (transition(was, selects(&after)), before) {
                    (Some(EventType::Deleted), Some(before)) => (Some(EventType::Deleted), before),
                    (kind, _) => (kind, after),
                }
            }
        };
        Ok(kind.map(|kind| (kind, object)))
    }

    /// Takes in the changed definition of a custom kind. A deleted kind keeps its last definition.
    fn refresh(&mut self) {
        if self.resource.is_custom() {
            let registry = self.served.registry();
            let Resource { group, version, plural, .. } = &*self.resource;
            if let Some(now) = registry.lookup(group, version, plural) {
                self.resource = Arc::clone(now);
            }
        }
    }

    fn write(&mut self, frame: &mut Vec<u8>, kind: EventType, object: Value) {
        let object = self.shaper().event(object, self.first);
        write_line(frame, kind.name(), &object);
        self.first = false;
    }

    fn write_bookmark(&self, frame: &mut Vec<u8>, revision: u64, ends_initial: bool) {
        let metadata = if ends_initial {
            json!({"resourceVersion": revision.to_string(), "annotations": {INITIAL_END: "true"}})
        } else {
            json!({"resourceVersion": revision.to_string()})
        };
        write_line(frame, "BOOKMARK", &self.shaper().bookmark(&metadata));
    }

    fn shaper(&self) -> Shaper<'_> {
        Shaper {
            resource: &self.resource,
            form: self.view.form,
            include: self.include,
            now: (self.clock)(),
        }
    }
}

/// Refuses a watch in an encoding that has no lines.
///
/// # Errors
/// It is YAML (406).
pub(crate) fn check_encoding(view: View) -> Answer<()> {
    match view.encoding {
        Encoding::Json | Encoding::PrettyJson => Ok(()),
        Encoding::Yaml => Err(Status::not_acceptable(&["application/json"])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_follows_a_selection_sees_objects_come_and_go_with_it() {
        assert_eq!(transition(false, true), Some(EventType::Added));
        assert_eq!(transition(true, true), Some(EventType::Modified));
        assert_eq!(transition(true, false), Some(EventType::Deleted));
        assert_eq!(transition(false, false), None);
    }

    #[test]
    fn options_of_a_watch_must_go_together() {
        let secret = crate::kinds::BuiltIn::Secret.resource();
        let code = |text: &str| {
            WatchOptions::parse(&secret, &Query::parse(text))
                .map_or_else(|status| status.code, |_| 200)
        };
        let cases = [
            ("", 200),
            ("resourceVersion=5", 200),
            ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan", 200),
            ("sendInitialEvents=true", 422),
            ("sendInitialEvents=false", 422),
            ("sendInitialEvents=true&resourceVersionMatch=Exact", 422),
            ("resourceVersionMatch=NotOlderThan&resourceVersion=5", 422),
            ("timeoutSeconds=x", 400),
            ("resourceVersion=abc", 500),
            ("resourceVersion=-1", 500),
            ("labelSelector=a+b", 400),
            ("fieldSelector=data.x%3Dy", 400),
        ];
        for (query, expected) in cases {
            assert_eq!(code(query), expected, "{query}");
        }
    }
}
