//! Which of all the things that can be done a request asks for.

use std::sync::Arc;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header, request::Parts};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use super::{
    Api, Target,
    body::{self, LIMIT},
    delete::{Deleted, answers_with_object},
    delete_options::DeleteOptions,
    eviction::Eviction,
    form::{Shaper, include},
    list::ListOptions,
    negotiate::{self, View},
    patching::{Patch, PatchType},
    path::{self, ResourcePath},
    query::{Query, WriteOptions},
    respond, scale,
    stored::{self, meta_text},
    watch::{self, WatchOptions},
    write,
};
use crate::{
    discovery,
    kinds::{Registry, Resource, Subresource},
    openapi,
    status::{Answer, Status},
};

/// The version this server reports. Clients derive from it what they may ask for.
const VERSION: &str = "v1.33.0+ostler";

/// How much of a body is read at most, be it only to throw it away.
const DISCARD: usize = 8 * LIMIT;

/// All subresources, to find one by its name.
const PARTS: [Subresource; 6] = [
    Subresource::Status,
    Subresource::Scale,
    Subresource::Eviction,
    Subresource::Binding,
    Subresource::Token,
    Subresource::Finalize,
];

/// Why there is no target.
enum Missing {
    /// Nothing at all is at this address.
    Page,
    /// The API has no such thing, or does not allow this.
    Status(Box<Status>),
}

impl From<Box<Status>> for Missing {
    fn from(status: Box<Status>) -> Self {
        Self::Status(status)
    }
}

/// One request to one target.
struct Call<'a> {
    api: &'a Api,
    target: Target,
    method: Method,
    query: &'a Query,
    headers: &'a HeaderMap,
    body: Bytes,
    view: View,
    warnings: Vec<String>,
}

impl Api {
    /// Answers a request. Who asks was found, and whether they may was checked, before.
    pub async fn handle(&self, request: Request<Body>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let query = Query::parse(head.uri.query().unwrap_or_default());
        let registry = self.registry();
        let path = head.uri.path();
        if let Some(response) = fixed(&head, &query, &registry) {
            return response;
        }
        let encoding = negotiate::error_encoding(&head.headers, &query);
        let target = match path::parse(path).map(|path| resolve(&registry, &path, &head.method)) {
            Some(Ok(target)) => target,
            Some(Err(Missing::Status(status))) => return respond::status(encoding, &status),
            Some(Err(Missing::Page)) | None => return respond::no_page(),
        };
        let view = match negotiate::negotiate(&head.headers, &query) {
            Ok(view) => view,
            Err(status) => return respond::status(encoding, &status),
        };
        let body = match read(body).await {
            Ok(body) => body,
            Err(status) => return respond::status(encoding, &status),
        };
        let (query, headers, warnings) = (&query, &head.headers, Vec::new());
        let method = head.method.clone();
        let mut call = Call { api: self, target, method, query, headers, body, view, warnings };
        let mut response = match call.answer().await {
            Ok(response) => response,
            Err(status) => respond::status(encoding, &status),
        };
        respond::warn(&mut response, &call.warnings);
        response
    }
}

/// What is served besides resources: version, discovery, schemas.
fn fixed(head: &Parts, query: &Query, registry: &Registry) -> Option<Response<Body>> {
    let path = head.uri.path();
    let encoding = negotiate::error_encoding(&head.headers, query);
    let reading = matches!(head.method, Method::GET | Method::HEAD);
    let accept = head.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    if discovery::is_discovery(path) {
        if !reading {
            return Some(respond::status(encoding, &Status::method_not_allowed()));
        }
        return Some(match discovery::answer(registry, path, accept) {
            discovery::Found::Document(found) => document(&head.headers, &found, false),
            discovery::Found::UnknownVersion => {
                respond::status(encoding, &Status::no_such_resource())
            }
            discovery::Found::Nothing => respond::no_page(),
        });
    }
    if path == "/openapi/v3" || path.starts_with("/openapi/v3/") {
        let found = openapi::answer(registry, path, head.uri.query());
        return Some(found.map_or_else(respond::no_page, |found| {
            document(&head.headers, &found.document, found.immutable)
        }));
    }
    match path.trim_end_matches('/') {
        "/version" => Some(respond::document(encoding, StatusCode::OK, &version())),
        "" => Some(respond::document(encoding, StatusCode::OK, &roots())),
        _ => None,
    }
}

/// A document of discovery, or the word that the client has it already.
fn document(headers: &HeaderMap, found: &discovery::Document, immutable: bool) -> Response<Body> {
    let known = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let unchanged = found.etag.is_some() && known == found.etag.as_deref();
    let body = if unchanged { Body::empty() } else { Body::from(found.bytes.clone()) };
    let mut response = Response::new(body);
    if unchanged {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = response.headers_mut();
    if let Ok(media_type) = HeaderValue::from_str(&found.content_type) {
        headers.insert(header::CONTENT_TYPE, media_type);
    }
    headers.insert(header::VARY, HeaderValue::from_static("Accept"));
    if immutable {
        let forever = HeaderValue::from_static("public, immutable");
        headers.insert(header::CACHE_CONTROL, forever);
    }
    if let Some(tag) = found.etag.as_deref().and_then(|tag| HeaderValue::from_str(tag).ok()) {
        headers.insert(header::ETAG, tag);
    }
    response
}

fn version() -> Value {
    json!({
        "major": "1",
        "minor": "33",
        "gitVersion": VERSION,
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

fn roots() -> Value {
    json!({"paths": ["/api", "/apis", "/healthz", "/livez", "/openapi/v3", "/readyz", "/version"]})
}

/// Reads a body. What is beyond the limit is thrown away, but read: a client that still sends
/// would not see the answer.
async fn read(mut body: Body) -> Answer<Bytes> {
    let (mut kept, mut seen) = (BytesMut::new(), 0);
    while let Some(frame) = body.frame().await {
        let frame = frame
            .map_err(|error| Status::bad_request(format!("unable to read the body: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        seen += data.len();
        if seen > DISCARD {
            break;
        }
        if seen <= LIMIT {
            kept.extend_from_slice(&data);
        }
    }
    if seen > LIMIT { Err(Status::too_large(LIMIT)) } else { Ok(kept.freeze()) }
}

/// Finds what an address names.
fn resolve(registry: &Registry, path: &ResourcePath, method: &Method) -> Result<Target, Missing> {
    if path.group.is_empty() && path.plural == "bindings" && path.name.is_none() {
        return bindings(registry, path);
    }
    let Some(resource) = registry.lookup(&path.group, &path.version, &path.plural) else {
        let ours = registry.resources().any(|one| one.group == path.group && !one.is_custom());
        return Err(if ours { Status::no_such_resource().into() } else { Missing::Page });
    };
    let elsewhere = || {
        if resource.is_custom() { Missing::Page } else { Status::no_such_resource().into() }
    };
    let named = path.name.is_some();
    match (resource.namespaced, path.namespace.is_empty()) {
        (false, false) => return Err(elsewhere()),
        (true, true) if named => return Err(elsewhere()),
        (true, true) if *method != Method::GET => {
            return Err(if resource.is_custom() {
                Missing::Page
            } else {
                Status::method_not_allowed().into()
            });
        }
        (true, _) | (false, true) => {}
    }
    let name = path.name.clone().unwrap_or_default();
    let part = match &path.subresource {
        None => None,
        Some(wanted) => Some(find_part(resource, wanted, &name)?),
    };
    let resource = Arc::clone(resource);
    Ok(Target { resource, namespace: path.namespace.clone(), name, part })
}

fn find_part(resource: &Resource, wanted: &str, name: &str) -> Answer<Subresource> {
    let part = PARTS.into_iter().find(|part| part.name() == wanted);
    part.filter(|part| resource.subresources.has(*part)).ok_or_else(|| {
        if resource.is_custom() {
            Status::not_found(resource, name)
        } else {
            Status::no_such_resource()
        }
    })
}

/// The collection of bindings has no objects; posting to it binds the pod that the body names.
fn bindings(registry: &Registry, path: &ResourcePath) -> Result<Target, Missing> {
    let pods = registry.lookup("", &path.version, "pods").ok_or_else(Status::no_such_resource)?;
    Ok(Target {
        resource: Arc::clone(pods),
        namespace: path.namespace.clone(),
        name: String::new(),
        part: Some(Subresource::Binding),
    })
}

impl Call<'_> {
    async fn answer(&mut self) -> Answer<Response<Body>> {
        let method = self.method.clone();
        match (self.target.part, self.target.name.is_empty()) {
            (None, true) => match method {
                Method::GET => self.list_or_watch(),
                Method::POST => self.create().await,
                Method::DELETE if self.can("deletecollection") => self.delete_collection().await,
                _ => Err(self.not_allowed()),
            },
            (None, false) => match method {
                Method::GET => self.get(),
                Method::PUT => self.update().await,
                Method::PATCH => self.patch().await,
                Method::DELETE => self.delete().await,
                _ => Err(self.not_allowed()),
            },
            (Some(Subresource::Status), _) => match method {
                Method::GET => self.get(),
                Method::PUT => self.update().await,
                Method::PATCH => self.patch().await,
                _ => Err(self.not_allowed()),
            },
            (Some(Subresource::Scale), _) => self.scale(&method).await,
            (Some(Subresource::Eviction), _) if method == Method::POST => self.evict().await,
            (Some(Subresource::Binding), _) if method == Method::POST => self.bind().await,
            (Some(Subresource::Finalize), _) if method == Method::PUT => self.finalize().await,
            (
                Some(
                    Subresource::Eviction
                    | Subresource::Binding
                    | Subresource::Finalize
                    | Subresource::Token,
                ),
                _,
            ) => Err(self.not_allowed()),
        }
    }

    fn can(&self, verb: &str) -> bool {
        self.target.resource.verbs.contains(&verb)
    }

    fn not_allowed(&self) -> Box<Status> {
        let resource = &self.target.resource;
        let verb = match self.method {
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            _ => return Status::method_not_allowed(),
        };
        if resource.is_custom() {
            return Status::verb_not_supported(resource, verb);
        }
        Status::method_not_allowed()
    }

    fn shaper(&self) -> Answer<Shaper<'_>> {
        Ok(Shaper {
            resource: &self.target.resource,
            form: self.view.form,
            include: include(self.query.text("includeObject"))?,
            now: self.api.now(),
        })
    }

    /// Answers with an object of the resource.
    fn object(&self, code: StatusCode, object: Value) -> Answer<Response<Body>> {
        let object = self.shaper()?.object(object)?;
        Ok(respond::document(self.view.encoding, code, &object))
    }

    fn options(&self, kind: &str) -> Answer<WriteOptions> {
        WriteOptions::parse(self.query, kind)
    }

    fn decode_body(&self) -> Answer<body::Body> {
        body::decode(self.headers, &self.body)
    }

    fn list_or_watch(&self) -> Answer<Response<Body>> {
        let shaper = self.shaper()?;
        if self.query.flag("watch") == Some(true) {
            watch::check_encoding(self.view)?;
            let options = WatchOptions::parse(&self.target.resource, self.query)?;
            return self.api.watch(&self.target, options, self.view, shaper.include);
        }
        let options = ListOptions::parse(&self.target, self.query)?;
        shaper.check_list()?;
        let mut items = Vec::new();
        let listing = self.api.list(&self.target, &options, |object| {
            if !items.is_empty() {
                items.push(b',');
            }
            // A `Value` can always be written.
            serde_json::to_writer(&mut items, &shaper.item(object)).ok();
        })?;
        let metadata = listing.metadata(&self.target.resource, self.view.form);
        let text = shaper.list_text(&metadata, &items);
        Ok(respond::text(self.view.encoding, StatusCode::OK, text))
    }

    fn get(&self) -> Answer<Response<Body>> {
        let version = self.query.text("resourceVersion");
        if !matches!(version, "" | "0") {
            let wanted = version.parse().map_err(|_| write::invalid_version(version))?;
            self.api.reached(wanted)?;
        }
        self.object(StatusCode::OK, self.api.get(&self.target)?)
    }

    async fn create(&mut self) -> Answer<Response<Body>> {
        let options = self.options("CreateOptions")?;
        let body = self.decode_body()?;
        let resource = Arc::clone(&self.target.resource);
        let object = write::decode_sent(&resource, body, options, &mut self.warnings)?;
        write::check_namespace(&self.target, &object)?;
        let object = self.api.create(&self.target, object, options.dry_run).await?;
        self.object(StatusCode::CREATED, object)
    }

    async fn update(&mut self) -> Answer<Response<Body>> {
        let options = self.options("UpdateOptions")?;
        let body = self.decode_body()?;
        let resource = Arc::clone(&self.target.resource);
        let object = write::decode_sent(&resource, body, options, &mut self.warnings)?;
        write::check_namespace(&self.target, &object)?;
        write::check_name(&self.target, &object)?;
        let uid = meta_text(&object, "uid").to_owned();
        let changed = self
            .api
            .modify(&self.target, options.dry_run, |old| {
                check_uid(&resource, old, &uid)?;
                Ok(object.clone())
            })
            .await;
        match changed {
            Err(status) if status.code == 404 && self.creates_by_put() => {
                let object = self.api.create(&self.target, object, options.dry_run).await?;
                self.object(StatusCode::CREATED, object)
            }
            changed => self.object(StatusCode::OK, changed?),
        }
    }

    fn creates_by_put(&self) -> bool {
        self.target.part.is_none() && write::created_by_put(&self.target.resource)
    }

    async fn patch(&mut self) -> Answer<Response<Body>> {
        let resource = Arc::clone(&self.target.resource);
        let kind = PatchType::of(&resource, self.headers)?;
        let options = self.options("PatchOptions")?;
        if self.query.get("force").is_some() {
            return Err(force_without_apply());
        }
        let (body, target) = (self.body.clone(), self.target.clone());
        let warnings = &mut self.warnings;
        let mut read = None;
        let object = self
            .api
            .modify(&target, options.dry_run, |old| {
                // Whether the object is there is answered before whether the patch is one.
                let patch = match read.take() {
                    Some(patch) => patch,
                    None => Patch::parse(kind, &body)?,
                };
                let object = patch.result(&resource, old, options, warnings)?;
                write::check_name(&target, &object)?;
                write::check_namespace(&target, &object)?;
                read = Some(patch);
                Ok(object)
            })
            .await?;
        self.object(StatusCode::OK, object)
    }

    async fn delete(&self) -> Answer<Response<Body>> {
        let options = DeleteOptions::parse(self.headers, &self.body, self.query)?;
        let resource = &self.target.resource;
        match self.api.delete(&self.target, &options).await? {
            Deleted::Waiting(object) => self.object(StatusCode::OK, object),
            Deleted::Gone(object) if answers_with_object(resource) => {
                self.object(StatusCode::OK, object)
            }
            Deleted::Gone(object) => {
                let uid = meta_text(&object, "uid");
                let status = Status::deleted(resource, &self.target.name, uid);
                Ok(respond::status(self.view.encoding, &status))
            }
        }
    }

    async fn delete_collection(&self) -> Answer<Response<Body>> {
        let options = DeleteOptions::parse(self.headers, &self.body, self.query)?;
        let selection = ListOptions::parse(&self.target, self.query)?;
        let shaper = self.shaper()?;
        shaper.check_list()?;
        let listing = self.api.list(&self.target, &selection, |object| object)?;
        for object in &listing.items {
            let name = meta_text(object, "name");
            let one = self.target.sibling(meta_text(object, "namespace"), name);
            match self.api.delete(&one, &options).await {
                Err(status) if status.code != 404 => return Err(status),
                Ok(_) | Err(_) => {}
            }
        }
        let metadata = listing.metadata(&self.target.resource, self.view.form);
        let items: Vec<String> =
            listing.items.into_iter().map(|object| shaper.item(object).to_string()).collect();
        let text = shaper.list_text(&metadata, items.join(",").as_bytes());
        Ok(respond::text(self.view.encoding, StatusCode::OK, text))
    }

    async fn scale(&self, method: &Method) -> Answer<Response<Body>> {
        let target = &self.target;
        let scale = match *method {
            Method::GET => scale::scale_of(&target.resource, &self.api.get(target)?)?,
            Method::PUT => {
                let dry_run = self.options("UpdateOptions")?.dry_run;
                self.api.put_scale(target, &self.decode_body()?, dry_run).await?
            }
            Method::PATCH => {
                let kind = PatchType::of(&target.resource, self.headers)?;
                let dry_run = self.options("PatchOptions")?.dry_run;
                let patch = || Patch::parse(kind, &self.body);
                self.api.patch_scale(target, patch, dry_run).await?
            }
            _ => return Err(self.not_allowed()),
        };
        Ok(respond::document(self.view.encoding, StatusCode::OK, &scale))
    }

    async fn evict(&mut self) -> Answer<Response<Body>> {
        let dry_run = self.options("CreateOptions")?.dry_run;
        let body = self.decode_body()?;
        let eviction = Eviction::parse(&self.target, &body.value, dry_run, &mut self.warnings)?;
        let status = self.api.evict(&self.target, &eviction).await?;
        Ok(respond::status(self.view.encoding, &status))
    }

    async fn bind(&mut self) -> Answer<Response<Body>> {
        let dry_run = self.options("CreateOptions")?.dry_run;
        let binding = self.decode_body()?.value;
        if self.target.name.is_empty() {
            meta_text(&binding, "name").clone_into(&mut self.target.name);
        }
        write::check_name(&self.target, &binding)?;
        write::check_namespace(&self.target, &binding)?;
        let status = self.api.bind(&self.target, &binding, dry_run).await?;
        Ok(respond::status(self.view.encoding, &status))
    }

    async fn finalize(&mut self) -> Answer<Response<Body>> {
        let options = self.options("UpdateOptions")?;
        let body = self.decode_body()?;
        let resource = Arc::clone(&self.target.resource);
        let namespace = write::decode_sent(&resource, body, options, &mut self.warnings)?;
        write::check_name(&self.target, &namespace)?;
        let namespace = self.api.finalize(&self.target, &namespace, options.dry_run).await?;
        self.object(StatusCode::OK, namespace)
    }
}

impl Api {
    /// Reads an object.
    ///
    /// # Errors
    /// There is no such object (404).
    pub(crate) fn get(&self, target: &Target) -> Answer<Value> {
        let key = stored::key(&target.resource, &target.namespace, &target.name);
        match self.context.store.get(&key) {
            Some(record) => Ok(stored::load(&target.resource, &record)),
            None => Err(Status::not_found(&target.resource, &target.name)),
        }
    }
}

/// A PUT that names another uid was meant for another object.
fn check_uid(resource: &Resource, old: &Value, uid: &str) -> Answer<()> {
    let current = meta_text(old, "uid");
    if uid.is_empty() || uid == current {
        return Ok(());
    }
    let why =
        format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {current}");
    Err(Status::conflict(resource, meta_text(old, "name"), &why))
}

fn force_without_apply() -> Box<Status> {
    let error =
        crate::field::FieldError::forbidden("force", "may not be specified for non-apply patch");
    Status::invalid_kind("meta.k8s.io", "PatchOptions", "", &[error])
}
