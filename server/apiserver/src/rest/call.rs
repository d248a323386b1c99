//! Finds the requested operation of a request to a target.

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode, header};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{
    Api, Named, Target,
    admission::Admission,
    applying::{Applied, Applying},
    body,
    delete::Deleted,
    delete_options::DeleteOptions,
    eviction::Eviction,
    form::{Shaper, include},
    list::{ListOptions, Listing},
    listing::Written,
    metadata,
    negotiate::View,
    patching::{Patch, PatchType, Patching},
    respond, scale,
    stored::meta_text,
    unevaluated,
    watch::{self, WatchOptions},
    write::{self, By},
};
use crate::kinds::{
    Resource, Rule, Subresource,
    apply::Author,
    field::FieldError,
    identity::Identity,
    query::{FieldValidation, Query, WriteOptions},
    status::{Answer, Status},
};

/// Letters of the name of a field manager.
const LONGEST_MANAGER: usize = 128;

/// A request to a target.
pub(crate) struct Call<'a> {
    pub(crate) api: &'a Api,
    pub(crate) target: Target,
    /// The requester; none where the handlers stand alone, without authentication before them.
    pub(crate) requester: Option<&'a Identity>,
    pub(crate) method: Method,
    pub(crate) query: &'a Query,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) view: View,
    pub(crate) warnings: &'a mut Vec<String>,
}

impl Call<'_> {
    /// Does what is asked for.
    ///
    /// # Errors
    /// It cannot be done: the Status says why.
    pub(crate) async fn answer(mut self) -> Answer<Response<Body>> {
        let method = self.method.clone();
        match (self.target.part, self.target.name.is_empty()) {
            (None, true) => self.collection(&method).await,
            (None, false) => match method {
                Method::GET => self.get(),
                Method::PUT => self.update().await,
                Method::PATCH => self.patch().await,
                Method::DELETE => self.delete().await,
                _ => Err(self.not_allowed()),
            },
            (Some(Subresource::Status | Subresource::Approval), _) => match method {
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

    async fn collection(&mut self, method: &Method) -> Answer<Response<Body>> {
        match *method {
            Method::GET => self.list_or_watch().await,
            Method::POST => self.create().await,
            Method::DELETE if self.can("deletecollection") => self.delete_collection().await,
            _ => Err(self.not_allowed()),
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

    fn admission(&self) -> Admission {
        Admission {
            requester: self.requester.cloned(),
            resource: Arc::clone(&self.target.resource),
            part: self.target.part,
            now: self.api.now(),
            quota: self.api.quota.clone(),
            held: Mutex::default(),
        }
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

    /// Who writes, as managedFields name it: the manager that the request names, or the program.
    fn author(&self) -> Author {
        let named = self.query.text("fieldManager");
        let agent = self.headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok());
        let program = agent.and_then(|agent| agent.split('/').next()).unwrap_or_default();
        let manager = [named, program, "unknown"].into_iter().find(|name| !name.is_empty());
        let manager = manager.unwrap_or_default().chars().take(LONGEST_MANAGER).collect();
        let now = self.api.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        Author { manager, now }
    }

    fn options(&self, kind: &str) -> Answer<WriteOptions> {
        WriteOptions::parse(self.query, kind)
    }

    fn decode_body(&self) -> Answer<body::Body> {
        body::decode(self.headers, &self.body)
    }

    async fn list_or_watch(&self) -> Answer<Response<Body>> {
        let shaper = self.shaper()?;
        if self.query.flag("watch") == Some(true) {
            watch::check_encoding(self.view)?;
            let options = WatchOptions::parse(&self.target.resource, self.query)?;
            return self.api.watch(&self.target, options, self.view, shaper.include);
        }
        let options = ListOptions::parse(&self.target, self.query)?;
        shaper.check_list()?;
        let listing = self.api.list(&self.target, &options).await?;
        Ok(self.listed(listing, &shaper))
    }

    fn listed(&self, listing: Listing, shaper: &Shaper<'_>) -> Response<Body> {
        let resource = Arc::clone(&self.target.resource);
        respond::list(Written::new(listing, resource, shaper, self.view.encoding))
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
        write::check_type_given(&resource, &body)?;
        let object = write::decode_sent(&resource, body, options, self.warnings)?;
        write::check_namespace(&self.target, &object)?;
        self.warnings.extend(metadata::finalizer_warnings(&resource, &object, None));
        self.warnings.extend(unevaluated::warnings(&resource, &object));
        let admission = self.admission();
        let object = admission.admit(None, object)?;
        let author = self.author();
        let by = By { author: Some(&author), dry_run: options.dry_run };
        let object = self.api.create(&self.target, object, by).await?;
        admission.stored(&object);
        let name = Named(meta_text(&object, "name").to_owned());
        let mut response = self.object(StatusCode::CREATED, object)?;
        response.extensions_mut().insert(name);
        Ok(response)
    }

    async fn update(&mut self) -> Answer<Response<Body>> {
        let options = self.options("UpdateOptions")?;
        let body = self.decode_body()?;
        let resource = Arc::clone(&self.target.resource);
        write::check_type_given(&resource, &body)?;
        let object = write::decode_sent(&resource, body, options, self.warnings)?;
        write::check_namespace(&self.target, &object)?;
        write::check_name(&self.target, &object)?;
        self.warnings.extend(unevaluated::warnings(&resource, &object));
        let mut prefer = Vec::new();
        let uid = meta_text(&object, "uid").to_owned();
        let admission = self.admission();
        let author = self.author();
        let by = By { author: Some(&author), dry_run: options.dry_run };
        let changed = self
            .api
            .modify(&self.target, by, |old| {
                check_uid(&resource, old, &uid)?;
                prefer = metadata::finalizer_warnings(&resource, &object, Some(old));
                admission.admit(Some(old), object.clone())
            })
            .await;
        self.warnings.extend(prefer);
        match changed {
            Err(status) if status.code == 404 && self.creates_by_put() => {
                // A uid or version names an object that was read, and not a new object: that object is gone.
                let nothing = json!({"metadata": {"name": self.target.name}});
                check_uid(&resource, &nothing, &uid)?;
                if !matches!(meta_text(&object, "resourceVersion"), "" | "0") {
                    return Err(Status::stale(&resource, &self.target.name));
                }
                let object = admission.admit(None, object)?;
                let object = self.api.create(&self.target, object, by).await?;
                admission.stored(&object);
                self.object(StatusCode::CREATED, object)
            }
            changed => self.object(StatusCode::OK, changed?),
        }
    }

    fn creates_by_put(&self) -> bool {
        self.target.part.is_none() && self.target.resource.has(Rule::PutCreates)
    }

    async fn patch(&mut self) -> Answer<Response<Body>> {
        let kind = PatchType::of(&self.target.resource, self.headers)?;
        if kind == PatchType::Apply {
            return self.apply().await;
        }
        let options = self.options("PatchOptions")?;
        if self.query.get("force").is_some() {
            return Err(force_without_apply());
        }
        let patching = Patching {
            api: self.api.clone(),
            target: self.target.clone(),
            admission: self.admission(),
            author: self.author(),
            body: self.body.clone(),
            kind,
            options,
        };
        let (object, warnings) = patching.run_aside_if_large().await;
        self.warnings.extend(warnings);
        self.object(StatusCode::OK, object?)
    }

    /// Applies something, and notes of what a warning is due.
    async fn run(&mut self, config: Value, options: WriteOptions) -> Answer<Applied> {
        let applying = Applying {
            api: self.api.clone(),
            target: self.target.clone(),
            admission: self.admission(),
            author: self.author(),
            options,
            config,
        };
        let (applied, warnings) = applying.run(self.body.len()).await;
        self.warnings.extend(warnings);
        applied
    }

    async fn apply(&mut self) -> Answer<Response<Body>> {
        let options = WriteOptions::of_apply(self.query)?;
        let config = self.applied(options)?;
        match self.run(config, options).await? {
            Applied::Changed(object) => self.object(StatusCode::OK, object),
            Applied::Created(object) => {
                let name = Named(meta_text(&object, "name").to_owned());
                let mut response = self.object(StatusCode::CREATED, object)?;
                response.extensions_mut().insert(name);
                Ok(response)
            }
        }
    }

    /// What is to be applied; fields that occur twice are warned of, or refused.
    fn applied(&mut self, options: WriteOptions) -> Answer<Value> {
        let (config, twice) = body::decode_applied(&self.body)?;
        match options.field_validation {
            FieldValidation::Strict if !twice.is_empty() => {
                Err(Status::bad_request(format!("error decoding YAML: {}", twice.join(", "))))
            }
            FieldValidation::Warn => {
                self.warnings.extend(twice);
                Ok(config)
            }
            FieldValidation::Ignore | FieldValidation::Strict => Ok(config),
        }
    }

    async fn delete(&self) -> Answer<Response<Body>> {
        let options = DeleteOptions::parse(self.headers, &self.body, self.query)?;
        let resource = &self.target.resource;
        match self.api.delete(&self.target, &options).await? {
            Deleted::Waiting(object) if options.collects => {
                self.object(StatusCode::ACCEPTED, object)
            }
            Deleted::Waiting(object) => self.object(StatusCode::OK, object),
            Deleted::Gone(object) if resource.has(Rule::ShownWhenDeleted) => {
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
        let listing = self.api.list(&self.target, &selection).await?;
        for record in &listing.items {
            let one = self.target.sibling(record.key.namespace(), record.key.name());
            match self.api.delete(&one, &options).await {
                Err(status) if status.code != 404 => return Err(status),
                Ok(_) | Err(_) => {}
            }
        }
        Ok(self.listed(listing, &shaper))
    }

    async fn scale(&mut self, method: &Method) -> Answer<Response<Body>> {
        if *method == Method::PATCH
            && PatchType::of(&self.target.resource, self.headers)? == PatchType::Apply
        {
            let options = WriteOptions::of_apply(self.query)?;
            let sent = self.applied(options)?;
            let config = scale::applied(&self.target, &sent)?;
            let (Applied::Changed(object) | Applied::Created(object)) =
                self.run(config, options).await?;
            let scale = scale::scale_of(&self.target.resource, &object)?;
            return Ok(respond::document(self.view.encoding, StatusCode::OK, &scale));
        }
        let author = self.author();
        let by = |options: WriteOptions| By { author: Some(&author), dry_run: options.dry_run };
        let target = &self.target;
        let scale = match *method {
            Method::GET => scale::scale_of(&target.resource, &self.api.get(target)?)?,
            Method::PUT => {
                let by = by(self.options("UpdateOptions")?);
                self.api.put_scale(target, &self.decode_body()?, by).await?
            }
            Method::PATCH => {
                let kind = PatchType::of(&target.resource, self.headers)?;
                let by = by(self.options("PatchOptions")?);
                let patch = || Patch::parse(kind, &self.body);
                self.api.patch_scale(target, patch, by).await?
            }
            _ => return Err(self.not_allowed()),
        };
        Ok(respond::document(self.view.encoding, StatusCode::OK, &scale))
    }

    async fn evict(&mut self) -> Answer<Response<Body>> {
        let dry_run = self.options("CreateOptions")?.dry_run;
        let body = self.decode_body()?;
        write::check_namespace(&self.target, &body.value)?;
        let eviction = Eviction::parse(&self.target, &body.value, dry_run, self.warnings)?;
        let status = self.api.evict(&self.target, &eviction).await?;
        Ok(respond::status(self.view.encoding, &status))
    }

    async fn bind(&mut self) -> Answer<Response<Body>> {
        let dry_run = self.options("CreateOptions")?.dry_run;
        let binding = self.decode_body()?.value;
        write::check_types("io.k8s.api.core.v1.Binding", &binding)?;
        if self.target.name.is_empty() {
            meta_text(&binding, "name").clone_into(&mut self.target.name);
        }
        if meta_text(&binding, "name") != self.target.name {
            let text = "name in URL does not match name in Binding object";
            return Err(Status::bad_request(text));
        }
        write::check_namespace(&self.target, &binding)?;
        let status = self.api.bind(&self.target, &binding, dry_run).await?;
        Ok(respond::status(self.view.encoding, &status))
    }

    async fn finalize(&mut self) -> Answer<Response<Body>> {
        let options = self.options("UpdateOptions")?;
        let body = self.decode_body()?;
        let resource = Arc::clone(&self.target.resource);
        let namespace = write::decode_sent(&resource, body, options, self.warnings)?;
        write::check_name(&self.target, &namespace)?;
        let namespace = self.api.finalize(&self.target, &namespace, options.dry_run).await?;
        self.object(StatusCode::OK, namespace)
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
    let error = FieldError::forbidden("force", "may not be specified for non-apply patch");
    Status::invalid_kind("meta.k8s.io", "PatchOptions", "", &[error])
}
