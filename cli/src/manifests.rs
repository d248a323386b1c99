//! `--apply`: YAML and JSON files sent to the API server, each object created or merged.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use kube::{Client, Resource as _, ResourceExt as _};
use ostler_api::names::annotation::LAST_APPLIED_CONFIGURATION;
use serde::Deserialize as _;
use serde_json::{Value, json};

/// One object of a file, with its place in the file.
#[derive(Debug)]
pub(crate) struct Manifest {
    source: String,
    object: DynamicObject,
}

/// A file of objects, in which places may have to be filled in.
#[derive(Debug)]
pub(crate) struct ManifestFile {
    path: PathBuf,
    text: String,
}

/// The URL of the API server, as machines reach it.
pub(crate) const API_SERVER: &str = "<<API_SERVER>>";
/// The certificate of its authority: base64 of the PEM.
pub(crate) const CA_DATA: &str = "<<CA_DATA>>";

impl ManifestFile {
    /// Where the file is, for messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a place is in it.
    pub(crate) fn names(&self, place: &str) -> bool {
        self.text.contains(place)
    }

    /// Puts texts into places.
    pub(crate) fn fill(&mut self, place: &str, text: &str) {
        if self.names(place) {
            self.text = self.text.replace(place, text);
        }
    }

    /// The objects in it.
    ///
    /// # Errors
    /// It is no YAML, or holds what is no object.
    pub(crate) fn manifests(&self) -> anyhow::Result<Vec<Manifest>> {
        let documents = parse(&self.text)
            .with_context(|| format!("--apply: {} is not valid YAML", self.path.display()))?;
        let mut manifests = Vec::new();
        for (index, document) in documents.into_iter().enumerate() {
            let source = format!("{} (document {})", self.path.display(), index + 1);
            let object = DynamicObject::deserialize(document).with_context(|| {
                format!("--apply: {source} is no Kubernetes object: it needs apiVersion, kind and metadata.name")
            })?;
            manifests.push(Manifest { source, object });
        }
        Ok(manifests)
    }
}

/// Reads a file, or every `.yaml`, `.yml` and `.json` file of a directory in the order of their names.
///
/// # Errors
/// One cannot be read, or holds what is no object: that is told before anything is started.
pub(crate) fn read(path: &Path) -> anyhow::Result<Vec<ManifestFile>> {
    let mut read = Vec::new();
    for path in files(path)? {
        let text = fs::read_to_string(&path)
            .with_context(|| format!("--apply: {} cannot be read", path.display()))?;
        let file = ManifestFile { path, text };
        file.manifests()?;
        read.push(file);
    }
    Ok(read)
}

/// Creates the object, or changes the one that is there as `kubectl apply` does. Returns what was done, for people.
pub(crate) async fn apply(client: &Client, manifest: Manifest) -> anyhow::Result<String> {
    let Manifest { source, object } = manifest;
    send(client, object).await.with_context(|| format!("--apply: {source} was not accepted"))
}

async fn send(client: &Client, mut object: DynamicObject) -> anyhow::Result<String> {
    let types = object.types.clone().context("apiVersion and kind are missing")?;
    let name = object.metadata.name.clone().context("metadata.name is missing")?;
    let kind = GroupVersionKind::try_from(&types)?;
    let (resource, capabilities) = pinned_kind(client, &kind)
        .await
        .with_context(|| format!("{} {} is not served here", types.api_version, types.kind))?;
    let api = api(client, &object, &resource, &capabilities.scope);
    let label = format!("{} {name}", resource.kind.to_lowercase());
    // The annotation would show the secret; so all keys of a Secret count as applied.
    let is_secret = types.kind == "Secret";
    if !is_secret {
        let applied = serde_json::to_string(&object)?;
        object.annotations_mut().insert(LAST_APPLIED_CONFIGURATION.to_owned(), applied);
    }
    if let Some(found) = api.get_opt(&name).await? {
        let mut patch = serde_json::to_value(&object)?;
        let last = match found.annotations().get(LAST_APPLIED_CONFIGURATION) {
            _ if is_secret => Some(json!({ "data": found.data.get("data") })),
            Some(text) => serde_json::from_str(text).ok(),
            None => None,
        };
        if let Some(last) = last {
            remove_missing(&mut patch, &last);
        }
        api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        return Ok(format!("{label} configured"));
    }
    api.create(&PostParams::default(), &object).await?;
    Ok(format!("{label} created"))
}

/// Removes what was applied last and is not wanted any more; what others wrote stays.
fn remove_missing(patch: &mut Value, last: &Value) {
    let (Some(patch), Some(last)) = (patch.as_object_mut(), last.as_object()) else { return };
    for (key, value) in last {
        match patch.get_mut(key) {
            Some(wanted) => remove_missing(wanted, value),
            None => drop(patch.insert(key.clone(), Value::Null)),
        }
    }
}

fn api(
    client: &Client,
    object: &DynamicObject,
    resource: &ApiResource,
    scope: &Scope,
) -> Api<DynamicObject> {
    match scope {
        Scope::Cluster => Api::all_with(client.clone(), resource),
        Scope::Namespaced => Api::namespaced_with(
            client.clone(),
            object.meta().namespace.as_deref().unwrap_or("default"),
            resource,
        ),
    }
}

fn files(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in
        fs::read_dir(path).with_context(|| format!("--apply: {} cannot be read", path.display()))?
    {
        let file = entry?.path();
        if file.extension().is_some_and(|kind| kind == "yaml" || kind == "yml" || kind == "json") {
            files.push(file);
        }
    }
    if files.is_empty() {
        bail!("--apply: {} holds no .yaml, .yml or .json file", path.display());
    }
    files.sort();
    Ok(files)
}

fn parse(text: &str) -> anyhow::Result<Vec<serde_json::Value>> {
    let documents: Vec<serde_json::Value> = serde_saphyr::from_multiple(text)?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Secret;
    use kube::{Api, Client};
    use ostler_apiserver::serve::{ApiServer, Options};
    use serde_json::json;

    use super::{apply, read};

    const TWO: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n---\n# only a comment\n---\napiVersion: v1\nkind: Secret\nmetadata:\n  name: b\n";

    #[test]
    fn a_directory_is_read_in_the_order_of_its_file_names_and_empty_documents_are_skipped() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("2.yaml"), TWO).unwrap();
        std::fs::write(
            dir.path().join("1.json"),
            r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"}}"#,
        )
        .unwrap();
        std::fs::write(dir.path().join("README.md"), "no manifest").unwrap();
        let kinds: Vec<String> = read(dir.path())
            .unwrap()
            .iter()
            .flat_map(|file| file.manifests().unwrap())
            .map(|manifest| manifest.object.types.unwrap().kind)
            .collect();
        assert_eq!(kinds, ["Node", "ConfigMap", "Secret"]);
    }

    #[test]
    fn places_are_filled_in_before_the_text_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let text = "apiVersion: v1\nkind: Secret\nmetadata:\n  name: a\nstringData:\n  a: <<API_SERVER>>\n  b: |\n    ca: <<CA_DATA>>, <<API_SERVER>>, <<BOOTSTRAP_TOKEN>>\n";
        std::fs::write(dir.path().join("a.yaml"), text).unwrap();
        let mut files = read(dir.path()).unwrap();
        let file = &mut files[0];
        assert!(file.names(super::API_SERVER) && file.names(super::CA_DATA));
        file.fill(super::API_SERVER, "https://172.17.0.1:16440");
        file.fill(super::CA_DATA, "Q0E=");
        let object = file.manifests().unwrap().remove(0).object;
        assert_eq!(object.data["stringData"]["a"], "https://172.17.0.1:16440");
        assert_eq!(
            object.data["stringData"]["b"],
            "ca: Q0E=, https://172.17.0.1:16440, <<BOOTSTRAP_TOKEN>>\n"
        );
    }

    #[test]
    fn a_broken_file_is_named_in_the_error() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("broken.yaml");
        std::fs::write(&file, "a: [1,").unwrap();
        assert!(format!("{:#}", read(&file).unwrap_err()).contains("broken.yaml"));
    }

    #[tokio::test]
    async fn a_key_that_the_file_of_a_secret_has_no_more_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let server = ApiServer::open(Options::directory(dir.path().join("api"))).await.unwrap();
        let client = Client::new(server.local_service(), "default");
        let file = dir.path().join("secret.yaml");
        for (data, keys) in [
            ("stringData: {a: first, old: gone}", vec!["a", "old"]),
            ("stringData: {a: second}\ndata: {b: eA==}", vec!["a", "b"]),
            ("stringData: {a: second}", vec!["a"]),
        ] {
            let text = format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\n{data}\n");
            std::fs::write(&file, text).unwrap();
            let manifest = read(&file).unwrap()[0].manifests().unwrap().remove(0);
            apply(&client, manifest).await.unwrap();
            let secret = Api::<Secret>::default_namespaced(client.clone()).get("s").await.unwrap();
            let found = secret.data.unwrap();
            assert_eq!(found.keys().collect::<Vec<_>>(), keys, "{data}");
            assert!(secret.metadata.annotations.is_none(), "nothing shows what is secret");
        }
        server.close().await;
    }

    #[test]
    fn what_was_applied_before_and_is_not_wanted_any_more_goes_and_the_rest_stays() {
        let last = json!({ "spec": { "tags": { "a": "1", "b": "2" }, "zone": "z" }, "kind": "K" });
        let mut patch = json!({ "spec": { "tags": { "a": "3" }, "size": 1 }, "kind": "K" });
        super::remove_missing(&mut patch, &last);
        let expected = json!({ "spec": { "tags": { "a": "3", "b": null }, "size": 1, "zone": null }, "kind": "K" });
        assert_eq!(patch, expected);
    }
}
