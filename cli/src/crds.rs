//! Ostler's CRDs, for `ostler crds` and `ostler up`.

use std::time::Duration;

use anyhow::{Context as _, bail};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::conditions::is_crd_established;
use kube::runtime::wait::await_condition;
use tokio::time::timeout;

use crate::log;

/// A CRD is established in milliseconds; longer than this means that it never will be.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Prints every CustomResourceDefinition as one YAML stream.
pub(crate) fn run() -> anyhow::Result<()> {
    for crd in ostler_api::crds() {
        log::page(format_args!("---\n{}", serde_saphyr::to_string(&crd)?.trim_end()));
    }
    Ok(())
}

/// Creates our CRDs, or brings them up to date, and waits until they are served.
pub(crate) async fn install(client: &Client) -> anyhow::Result<()> {
    let api = Api::<CustomResourceDefinition>::all(client.clone());
    for crd in ostler_api::crds() {
        let name = crd.metadata.name.clone().unwrap_or_default();
        if api.get_opt(&name).await?.is_some() {
            api.patch(&name, &PatchParams::default(), &Patch::Merge(&crd)).await
        } else {
            api.create(&PostParams::default(), &crd).await
        }
        .with_context(|| format!("CRD {name} was not accepted"))?;
        let established = await_condition(api.clone(), &name, is_crd_established());
        match timeout(PATIENCE, established).await {
            Ok(served) => {
                served.with_context(|| format!("CRD {name} cannot be watched"))?;
            }
            Err(_) => bail!("CRD {name} was accepted and is not served"),
        }
    }
    Ok(())
}
