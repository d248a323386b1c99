//! Server-side apply: an object made of the fields that its managers want.

use serde_json::Value;

use super::{
    Api, Target,
    admission::Admission,
    body::Body,
    patching::LARGE,
    stored::{meta_text, metadata_mut},
    unevaluated,
    write::{self, By},
};
use crate::kinds::{
    Resource,
    apply::{Author, Refusal},
    query::WriteOptions,
    status::{Answer, Status},
};

/// How often it is tried where the object comes and goes meanwhile.
const ATTEMPTS: usize = 8;

/// Something to apply.
pub(crate) struct Applying {
    pub(crate) api: Api,
    pub(crate) target: Target,
    pub(crate) admission: Admission,
    pub(crate) author: Author,
    pub(crate) options: WriteOptions,
    /// What is applied.
    pub(crate) config: Value,
}

/// The result of an apply.
pub(crate) enum Applied {
    /// There was no such object.
    Created(Value),
    /// There was one.
    Changed(Value),
}

impl Applying {
    /// Applies it, and says of what a warning is due. A body of `size` bytes that is large is worked on aside.
    ///
    /// # Errors
    /// The configuration does not fit (400 or 500), other managers own its fields (409), or the result is invalid.
    pub(crate) async fn run(self, size: usize) -> (Answer<Applied>, Vec<String>) {
        if size <= LARGE {
            return self.work().await;
        }
        let runtime = tokio::runtime::Handle::current();
        let work = tokio::task::spawn_blocking(move || runtime.block_on(self.work()));
        work.await.unwrap_or_else(|error| (Err(Status::internal(error.to_string())), Vec::new()))
    }

    async fn work(self) -> (Answer<Applied>, Vec<String>) {
        let mut warnings = Vec::new();
        let applied = self.apply(&mut warnings).await;
        (applied, warnings)
    }

    async fn apply(&self, warnings: &mut Vec<String>) -> Answer<Applied> {
        let config = &self.config;
        check_kind(&self.target.resource, config)?;
        let by = By { author: None, dry_run: self.options.dry_run };
        for _ in 0..ATTEMPTS {
            let changed = self
                .api
                .modify(&self.target, by, |old| {
                    let new = self.result(Some(old), warnings)?;
                    self.admission.admit(Some(old), new)
                })
                .await;
            match changed {
                Err(status) if status.code == 404 && self.creates(&status) => {}
                changed => return changed.map(Applied::Changed),
            }
            self.check_new(config)?;
            let mut new = self.result(None, warnings)?;
            if let Some(metadata) = metadata_mut(&mut new) {
                metadata.remove("resourceVersion");
            }
            let new = self.admission.admit(None, new)?;
            match self.api.create(&self.target, new, by).await {
                Err(status) if status.code == 409 && !by.dry_run => {}
                created => {
                    let created = created?;
                    self.admission.stored(&created);
                    return Ok(Applied::Created(created));
                }
            }
        }
        Err(Status::stale(&self.target.resource, &self.target.name))
    }

    fn creates(&self, status: &Status) -> bool {
        let named = status.details.as_ref().is_some_and(|it| it.name == self.target.name);
        named && self.target.part.is_none()
    }

    /// A configuration with a uid is for that existing object alone.
    fn check_new(&self, config: &Value) -> Answer<()> {
        let uid = meta_text(config, "uid");
        if uid.is_empty() {
            return Ok(());
        }
        let why = format!(
            "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        );
        Err(Status::conflict(&self.target.resource, &self.target.name, &why))
    }

    fn result(&self, old: Option<&Value>, warnings: &mut Vec<String>) -> Answer<Value> {
        let resource = &self.target.resource;
        let fields = resource.fields();
        let writes = resource.writes(&fields, self.target.part);
        let new = writes
            .apply(old, &self.config, &self.author, self.options.force)
            .map_err(|refusal| self.refused(refusal))?;
        let body = Body { value: new, duplicates: Vec::new() };
        let new = write::decode(resource, body).map_err(Status::bad_request)?.object;
        write::check_name(&self.target, &new)?;
        write::check_namespace(&self.target, &new)?;
        *warnings = super::metadata::finalizer_warnings(resource, &new, old);
        warnings.extend(unevaluated::warnings(resource, &new));
        Ok(new)
    }

    fn refused(&self, refusal: Refusal) -> Box<Status> {
        match refusal {
            Refusal::Conflicts(conflicts) => Status::apply_conflict(&conflicts),
            Refusal::NamesManagers => Status::bad_request("metadata.managedFields must be nil"),
            Refusal::Malformed(errors) => {
                let Resource { group, version, kind, .. } = &*self.target.resource;
                let [namespace, name] =
                    ["namespace", "name"].map(|field| meta_text(&self.config, field));
                let errors = match errors.as_slice() {
                    [one] => one.clone(),
                    many => format!("errors:\n  {}", many.join("\n  ")),
                };
                Status::unknown(format!(
                    "failed to create typed patch object ({namespace}/{name}; {group}/{version}, Kind={kind}): {errors}"
                ))
            }
        }
    }
}

/// Refuses what is no object of the kind.
fn check_kind(resource: &Resource, config: &Value) -> Answer<()> {
    let text = |name: &str| config.get(name).and_then(Value::as_str).unwrap_or_default();
    if text("kind").is_empty() {
        let why = format!("error decoding YAML: Object 'Kind' is missing in '{config}'");
        return Err(Status::bad_request(why));
    }
    if text("apiVersion").is_empty() {
        let kind = text("kind");
        return Err(Status::bad_request(format!("invalid object type: /, Kind={kind}")));
    }
    let version = resource.api_version();
    if text("apiVersion") != version {
        return Err(Status::bad_request(format!(
            "Incorrect version specified in apply patch. Specified patch version: {}, expected: {version}",
            text("apiVersion")
        )));
    }
    if text("kind") != resource.kind {
        return Err(Status::bad_request(format!(
            "the kind in the data ({}) does not match the expected kind ({})",
            text("kind"),
            resource.kind
        )));
    }
    Ok(())
}
