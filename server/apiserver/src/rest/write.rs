//! The one way in which objects are created and changed: decode, admit, compare, commit.
//!
//! Whatever differs by kind is in [`Resource`]; whatever differs by verb is a function from the
//! stored object to the wanted one, given to [`Api::modify`].

use serde_json::{Map, Value};

use super::{
    Api, Target,
    body::Body,
    is,
    metadata::{self, Birth},
    stored::{self, meta_number, meta_text, meta_texts, set_meta},
};
use crate::{
    kinds::{
        BuiltIn, Resource, Rule, Subresource,
        access::items,
        apply::{self, Author},
        field::{self, FieldError},
        query::{FieldValidation, WriteOptions},
        schema::catalogue,
        status::{Answer, Status},
    },
    store::{Change, Expect, Key, WriteError},
};

/// How often a write that names no version is tried against a changing object.
const ATTEMPTS: usize = 64;

/// An object as it was sent: decoded, and pruned of what the kind does not have.
#[derive(Debug)]
pub(crate) struct Decoded {
    /// The object, with apiVersion, kind and metadata.
    pub(crate) object: Value,
    /// What was wrong and could be fixed: unknown and duplicate fields, in Kubernetes' words.
    pub(crate) problems: Vec<String>,
}

/// Decodes a sent object for a resource.
///
/// # Errors
/// It is no object, of another kind or version, or has a field of the wrong type: the text says
/// which. Whether that is a 400 or a 422 depends on the verb.
pub(crate) fn decode(resource: &Resource, body: Body) -> Result<Decoded, String> {
    let Body { value: mut object, duplicates } = body;
    let kind = &resource.kind;
    let Some(fields) = object.as_object_mut() else {
        let found = field::render(&object);
        return Err(format!("couldn't get version/kind; json: cannot unmarshal {found}"));
    };
    let text = |fields: &Map<String, Value>, name: &str| {
        fields.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let (sent_version, sent_kind) = (text(fields, "apiVersion"), text(fields, "kind"));
    let version = resource.api_version();
    if !sent_version.is_empty() && sent_version != version {
        return Err(format!(
            "the API version in the data ({sent_version}) does not match the expected API version ({version})"
        ));
    }
    if !sent_kind.is_empty() && sent_kind != *kind {
        return Err(wrong_kind(resource, &sent_kind));
    }
    if fields.get("metadata").is_none_or(Value::is_null) {
        fields.insert("metadata".to_owned(), Value::Object(Map::new()));
    }
    stored::stamp(resource, &mut object);
    metadata::check_counts(resource, &object)?;
    let mut problems: Vec<String> =
        duplicates.iter().map(|path| format!("duplicate field {}", field::quote(path))).collect();
    let unknown = resource.decode(&mut object).map_err(|error| {
        format!(
            "{kind} in version {} cannot be handled as a {kind}: {error}",
            version_text(resource)
        )
    })?;
    problems.extend(unknown.iter().map(ToString::to_string));
    Ok(Decoded { object, problems })
}

fn version_text(resource: &Resource) -> String {
    field::quote(&resource.version)
}

fn wrong_kind(resource: &Resource, sent: &str) -> String {
    let (version, kind) = (&resource.version, &resource.kind);
    let package = resource.group.split('.').next().filter(|part| !part.is_empty());
    let package = package.unwrap_or("core");
    format!(
        "{sent} in version \"{version}\" cannot be handled as a {kind}: converting ({version}.{sent}) to ({package}.{kind}): unknown conversion"
    )
}

/// Refuses a custom object without its type. Built-in kinds may omit the type.
///
/// # Errors
/// It has no kind or no apiVersion (400).
pub(crate) fn check_type_given(resource: &Resource, body: &Body) -> Answer<()> {
    let given = |name: &str| {
        let text = body.value.get(name).and_then(Value::as_str);
        text.is_some_and(|text| !text.is_empty())
    };
    if !resource.is_custom() || (given("kind") && given("apiVersion")) {
        return Ok(());
    }
    let kind = &resource.kind;
    if !given("kind") {
        let sent = &body.value;
        return Err(Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): Object 'Kind' is missing in '{sent}'"
        )));
    }
    let version = resource.api_version();
    Err(Status::bad_request(format!(
        "the API version in the data () does not match the expected API version ({version})"
    )))
}

/// Decodes the body of a create or replace; problems become warnings or a refusal.
///
/// # Errors
/// It cannot be decoded, or has problems and `Strict` was asked for (400).
pub(crate) fn decode_sent(
    resource: &Resource,
    body: Body,
    options: WriteOptions,
    warnings: &mut Vec<String>,
) -> Answer<Value> {
    let Decoded { object, problems } = decode(resource, body).map_err(Status::bad_request)?;
    warnings.extend(metadata::owner_warning(&object));
    match options.field_validation {
        FieldValidation::Ignore => {}
        FieldValidation::Warn => warnings.extend(problems),
        FieldValidation::Strict if problems.is_empty() => {}
        FieldValidation::Strict => {
            let kind = &resource.kind;
            return Err(Status::bad_request(format!(
                "{kind} in version {} cannot be handled as a {kind}: strict decoding error: {}",
                version_text(resource),
                problems.join(", ")
            )));
        }
    }
    Ok(object)
}

/// Refuses a body with wrong types of which only parts are stored.
///
/// # Errors
/// A field holds a value of the wrong type (400).
pub(crate) fn check_types(name: &str, body: &Value) -> Answer<()> {
    let kind = name.rsplit('.').next().unwrap_or(name);
    catalogue::decode_type(name, &mut body.clone()).map(drop).map_err(|error| {
        let text = format!("{kind} in version \"v1\" cannot be handled as a {kind}: {error}");
        Status::bad_request(text)
    })
}

/// Refuses an object that names another namespace than its address.
///
/// # Errors
/// It does (400).
pub(crate) fn check_namespace(target: &Target, object: &Value) -> Answer<()> {
    let sent = meta_text(object, "namespace");
    if !target.resource.namespaced || sent.is_empty() || sent == target.namespace {
        return Ok(());
    }
    Err(Status::bad_request(
        "the namespace of the provided object does not match the namespace sent on the request",
    ))
}

/// Refuses an object that has not the name of its address.
///
/// # Errors
/// It has not (400).
pub(crate) fn check_name(target: &Target, object: &Value) -> Answer<()> {
    let name = &target.name;
    match meta_text(object, "name") {
        "" => Err(Status::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        ))),
        sent if sent == name => Ok(()),
        sent => Err(Status::bad_request(format!(
            "the name of the object ({sent}) does not match the name on the URL ({name})"
        ))),
    }
}

/// Makes a new object of a sent object: fills in the server's fields, and checks the rest. Without an author, the
/// object has its managed fields already.
///
/// # Errors
/// It is invalid (422), or claims to exist already (500).
pub(crate) fn admit_new(
    resource: &Resource,
    mut object: Value,
    birth: Birth<'_>,
    author: Option<&Author>,
) -> Answer<Value> {
    let claimed = meta_text(&object, "resourceVersion").to_owned();
    metadata::wipe(&mut object);
    resource.default(&mut object);
    if let Some(author) = author {
        let fields = resource.fields();
        resource.writes(&fields, None).update(None, &mut object, author);
    }
    metadata::fill_new(resource, &mut object, birth);
    resource.prepare_create(&mut object);
    let mut errors = metadata::validate_new(resource, &object);
    errors.extend(metadata::standard_finalizers(resource, &object));
    errors.extend(resource.validate_create(&object));
    if !errors.is_empty() {
        return Err(Status::invalid(resource, meta_text(&object, "name"), &errors));
    }
    if !matches!(claimed.as_str(), "" | "0") {
        return Err(Status::unknown("resourceVersion should not be set on objects to be created"));
    }
    Ok(object)
}

/// The effect of a change.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Decision {
    /// Nothing: no write, no event, the old version.
    Unchanged,
    /// The object is replaced.
    Replace(Value),
    /// The last finalizer of a deleted object is gone: the object goes. The answer shows the object as the client left
    /// it.
    Finish(Value),
}

/// Decides what becomes of `old` when `new` is wanted. Without an author `new` says already who owns its fields.
///
/// # Errors
/// The change is invalid (422).
pub(crate) fn decide_update(
    resource: &Resource,
    part: Option<Subresource>,
    mut new: Value,
    old: &Value,
    author: Option<&Author>,
) -> Answer<Decision> {
    metadata::carry_over(&mut new, old);
    resource.default(&mut new);
    if let Some(author) = author {
        let fields = resource.fields();
        resource.writes(&fields, part).update(Some(old), &mut new, author);
    }
    metadata::keep_deletion(&mut new, old);
    resource.prepare_update(&mut new, old, part);
    metadata::raise_generation(resource, &mut new, old);
    set_meta(&mut new, "resourceVersion", meta_text(old, "resourceVersion").into());
    let wrong = metadata::validate_update(&new, old);
    // Kubernetes checks the metadata of a change twice, and both times it tells.
    let mut errors = [wrong.clone(), wrong].concat();
    // It looks at the labels and annotations once more, and again where a kind is checked whole.
    for _ in 0..=usize::from(resource.has(Rule::RechecksMetadata)) {
        errors.extend(metadata::validate_maps(&new));
    }
    errors.extend(metadata::standard_finalizers(resource, &new));
    errors.extend(resource.validate_update(&new, old, part));
    if !errors.is_empty() {
        return Err(Status::invalid(resource, meta_text(&new, "name"), &errors));
    }
    stored::stamp(resource, &mut new);
    if new == *old || apply::differ_in_times_only(&new, old) {
        return Ok(Decision::Unchanged);
    }
    if finished(resource, &new) {
        return Ok(Decision::Finish(new));
    }
    Ok(Decision::Replace(new))
}

/// Whether nothing holds a deleted object any more.
fn finished(resource: &Resource, object: &Value) -> bool {
    let marked = !meta_text(object, "deletionTimestamp").is_empty();
    let grace = meta_number(object, "deletionGracePeriodSeconds").unwrap_or(0);
    let held = is(resource, BuiltIn::Namespace) && !items(object, "/spec/finalizers").is_empty();
    marked && grace == 0 && !held && meta_texts(object, "finalizers").is_empty()
}

/// Checks that the version in a client's object, if any, is still current.
///
/// # Errors
/// It is not (409), is no number (500), or had to be named (422).
fn check_version(target: &Target, new: &Value, old: &Value) -> Answer<()> {
    let resource = &target.resource;
    let named = meta_text(new, "resourceVersion");
    if named == meta_text(old, "resourceVersion") {
        return Ok(());
    }
    if matches!(named, "" | "0") {
        if target.part == Some(Subresource::Scale) || !resource.has(Rule::PutNeedsVersion) {
            return Ok(());
        }
        let path = "metadata.resourceVersion";
        let error = FieldError::invalid(path, &0.into(), "must be specified for an update");
        return Err(Status::invalid_kind(
            &resource.group,
            &resource.plural,
            &target.name,
            &[error],
        ));
    }
    if named.parse::<u64>().is_err() {
        return Err(invalid_version(named));
    }
    Err(Status::stale(resource, &target.name))
}

/// The error for a malformed version (500, as in Kubernetes).
pub(crate) fn invalid_version(text: &str) -> Box<Status> {
    Status::unknown(invalid_version_text(text))
}

/// The text for what is no version.
pub(crate) fn invalid_version_text(text: &str) -> String {
    let shown = field::quote(text);
    format!(
        "resourceVersion: Invalid value: {shown}: strconv.ParseUint: parsing {shown}: invalid syntax"
    )
}

/// The status of a write error for a client. The caller judges conflicts.
pub(crate) fn write_failure(error: &WriteError) -> Box<Status> {
    match error {
        WriteError::Closed => Status::shutting_down(),
        WriteError::Conflict { .. } | WriteError::Storage(_) => Status::internal(error.to_string()),
    }
}

/// The author of a write, and whether it is a dry run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct By<'a> {
    /// Without an author, the object has its managed fields already.
    pub(crate) author: Option<&'a Author>,
    /// Everything but the write itself is done.
    pub(crate) dry_run: bool,
}

impl Api {
    /// Creates an object.
    ///
    /// # Errors
    /// The namespace is missing or ends, the object is invalid, or the name is taken.
    pub(crate) async fn create(
        &self,
        target: &Target,
        mut object: Value,
        by: By<'_>,
    ) -> Answer<Value> {
        let resource = &target.resource;
        self.check_open(target, meta_text(&object, "name"))?;
        self.prioritize(target, &mut object)?;
        let birth = Birth {
            namespace: &target.namespace,
            uid: uuid::Uuid::new_v4().to_string(),
            now: self.now(),
        };
        let generated = !meta_text(&object, "generateName").is_empty();
        let mut object = admit_new(resource, object, birth, by.author)?;
        let key = stored::key(resource, &target.namespace, meta_text(&object, "name"));
        let text = stored::encode(resource, &mut object, None)?;
        if by.dry_run {
            return match self.context.store.get(&key) {
                Some(_) => Err(taken(resource, &key, generated)),
                None => Ok(object),
            };
        }
        let change = Change::Put(text.clone());
        match self.context.store.write(key.clone(), Expect::Absent, change).await {
            Ok(revision) if resource.group == resource.storage.group => {
                set_meta(&mut object, "resourceVersion", revision.to_string().into());
                Ok(object)
            }
            Ok(revision) => stored::load_at(resource, &key, &text, revision),
            Err(WriteError::Conflict { .. }) => Err(taken(resource, &key, generated)),
            Err(error) => Err(write_failure(&error)),
        }
    }

    /// Refuses creation where nothing can be created (any more).
    fn check_open(&self, target: &Target, name: &str) -> Answer<()> {
        let resource = &target.resource;
        if resource.terminating {
            let why = "create not allowed while custom resource definition is terminating";
            return Err(Status::forbidden(resource, name, why));
        }
        if !resource.namespaced {
            return Ok(());
        }
        let key = Key::new("", "namespaces", "", &target.namespace);
        let Some(record) = self.context.store.get(&key) else {
            return Err(Status::namespace_not_found(&target.namespace));
        };
        let namespace = record.object().map_err(|error| Status::internal(error.to_string()))?;
        if meta_text(&namespace, "deletionTimestamp").is_empty() {
            return Ok(());
        }
        Err(Status::namespace_terminating(resource, name, &target.namespace))
    }

    /// Replaces an object by the result of `wanted`. Tries again after concurrent changes, unless the result of
    /// `wanted` names its version.
    ///
    /// # Errors
    /// There is no such object, `wanted` refuses, the change is invalid, or a version is stale.
    pub(crate) async fn modify(
        &self,
        target: &Target,
        by: By<'_>,
        mut wanted: impl FnMut(&Value) -> Answer<Value>,
    ) -> Answer<Value> {
        self.rewrite(target, by.dry_run, false, |old| {
            let new = wanted(old)?;
            check_version(target, &new, old)?;
            decide_update(&target.resource, target.part, new, old, by.author)
        })
        .await
    }

    /// Changes an object without the rules for clients' writes: for the parts of an object that
    /// have rules of their own. Tried again while others change it.
    ///
    /// # Errors
    /// There is no such object, or `change` refuses.
    pub(crate) async fn transform(
        &self,
        target: &Target,
        dry_run: bool,
        mut change: impl FnMut(&mut Value) -> Answer<()>,
    ) -> Answer<Value> {
        self.rewrite(target, dry_run, true, |old| {
            let mut new = old.clone();
            change(&mut new)?;
            Ok(match () {
                () if new == *old => Decision::Unchanged,
                () if finished(&target.resource, &new) => Decision::Finish(new),
                () => Decision::Replace(new),
            })
        })
        .await
    }

    /// Writes what `decide` says, again and again while others change the object. `stamped`: of an
    /// object that goes, the answer shows the version of its end.
    async fn rewrite(
        &self,
        target: &Target,
        dry_run: bool,
        stamped: bool,
        mut decide: impl FnMut(&Value) -> Answer<Decision>,
    ) -> Answer<Value> {
        let resource = &target.resource;
        let key = stored::key(resource, &target.namespace, &target.name);
        for _ in 0..ATTEMPTS {
            let Some(record) = self.context.store.get(&key) else {
                return Err(Status::not_found(resource, &target.name));
            };
            let old = stored::load(resource, &record)?;
            let (mut object, change) = match decide(&old)? {
                Decision::Unchanged => return Ok(old),
                Decision::Finish(new) => (new, Change::Delete(record.value.clone())),
                Decision::Replace(mut new) => {
                    let text = stored::encode(resource, &mut new, Some(&old))?;
                    (new, Change::Put(text))
                }
            };
            if dry_run {
                let version = meta_text(&old, "resourceVersion");
                set_meta(&mut object, "resourceVersion", version.into());
                return Ok(object);
            }
            let shown = stamped || matches!(change, Change::Put(_));
            let expect = Expect::Revision(record.revision);
            match self.context.store.write(key.clone(), expect, change).await {
                Ok(revision) => {
                    if shown {
                        set_meta(&mut object, "resourceVersion", revision.to_string().into());
                    }
                    return Ok(object);
                }
                Err(WriteError::Conflict { .. }) => {}
                Err(error) => return Err(write_failure(&error)),
            }
        }
        Err(Status::stale(resource, &target.name))
    }
}

fn taken(resource: &Resource, key: &Key, generated: bool) -> Box<Status> {
    if generated {
        return Status::name_not_unique(resource, key.name());
    }
    Status::already_exists(resource, key.name())
}
