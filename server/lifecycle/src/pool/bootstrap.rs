//! The bootstrap data of a pool's instances: one text for all, read anew in each pass, since others renew its content.

use ostler_api::{MachinePool, SpecDigest, bootstrap::Bootstrap, machine::WaitReason};

use super::config::{self, ConfigsView};
use crate::{
    bootstrap::RefFault, digest, operation::UserData, snapshot::SecretView,
    user_data::MAX_USER_DATA,
};

const WITHOUT_DATA: &str = "the copy of the template is ready, and has neither status.dataSecretName nor status.bootstrapData";

/// The Secret with the user data, as far as it was looked up.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum DataSecret {
    /// None is named.
    #[default]
    NotNamed,
    /// The Secret does not exist, or has no key `value`.
    Missing(String),
    /// The value of key `value`.
    Known(UserData),
}

/// Name of the Secret with the user data that a template names.
pub fn secret_name(pool: &MachinePool) -> Option<&str> {
    let bootstrap = pool.spec.template.spec.bootstrap.as_ref()?;
    bootstrap.data_secret_name.as_deref().filter(|name| !name.is_empty())
}

/// The Secret with the data of a pool: of its template, or of the copy of its bootstrap template.
pub fn data_secret<'a>(pool: &'a MachinePool, configs: &'a ConfigsView) -> Option<&'a str> {
    let of_copy = || config::ready(pool, configs).ok()??.data_secret_name.as_deref();
    secret_name(pool).or_else(of_copy)
}

fn missing(message: String) -> RefFault {
    RefFault { reason: WaitReason::BootstrapDataMissing, message }
}

/// The user data of the group, with their placeholder. `Err`: what is missing.
pub(super) fn template(
    pool: &MachinePool,
    class: &SecretView,
    (configs, own): (&ConfigsView, &DataSecret),
) -> Result<Option<UserData>, RefFault> {
    let of_secret = || match own {
        // An empty name: the step is left out, as in Cluster API.
        DataSecret::NotNamed => Ok(None),
        DataSecret::Missing(what) => Err(missing(what.clone())),
        DataSecret::Known(data) => Ok(Some(data.clone())),
    };
    let text = |text: &ostler_api::bootstrap::BootstrapText| {
        Some(UserData::new(text.expose().as_bytes().to_vec())).filter(|data| !data.is_empty())
    };
    let data = match pool.spec.template.spec.bootstrap.as_ref() {
        None => of_class(class).map_err(missing)?,
        Some(Bootstrap { data: Some(data), .. }) => text(data),
        Some(Bootstrap { data_secret_name: Some(_), .. }) => of_secret()?,
        Some(_) => match config::ready(pool, configs)? {
            None => {
                let needs = "spec.template.spec.bootstrap needs data, dataSecretName or configRef";
                return Err(missing(needs.to_owned()));
            }
            Some(facts) if facts.data_secret_name.is_some() => of_secret()?,
            Some(facts) => match &facts.data {
                Some(data) => text(data),
                None => return Err(missing(WITHOUT_DATA.to_owned())),
            },
        },
    };
    if let Some(data) = data.as_ref().filter(|data| data.len() > MAX_USER_DATA) {
        let length = data.len();
        let message =
            format!("the user data have {length} bytes, at most {MAX_USER_DATA} can be sent");
        return Err(RefFault { reason: WaitReason::UserDataTooLarge, message });
    }
    Ok(data)
}

/// By which user data are told from others: they may be renewed while the model stays, as when a token in them ends. No two
/// pools have the same digest, so it says nothing to who does not have the data.
pub fn hash(pool: &MachinePool, data: Option<&UserData>) -> SpecDigest {
    let mut text = pool.uid().as_bytes().to_vec();
    text.extend(data.into_iter().flat_map(UserData::bytes));
    digest::of_bytes(&text).into()
}

fn of_class(class: &SecretView) -> Result<Option<UserData>, String> {
    match class {
        SecretView::NotReferenced => Ok(None),
        SecretView::Known(secret) => Ok(secret.user_data.clone()),
        SecretView::Unknown => Err("the secrets of the class have not been read yet".to_owned()),
        // The stored copy of the secrets has no user data.
        SecretView::Missing(names) | SecretView::LastKnown(_, names) => {
            Err(format!("secret {} does not exist", names.join(", ")))
        }
        SecretView::NamespaceDenied(names) => {
            Err(format!("secret {} is in another namespace", names.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use ostler_api::machine_pool::MachinePoolSpec;
    use serde_json::json;

    use super::*;

    #[test]
    fn data_wins_over_a_secret_and_an_empty_one_is_none() {
        let missing = DataSecret::Missing("join".to_owned());
        for (bootstrap, expected) in [
            (json!({ "data": "text", "dataSecretName": "join" }), Ok(Some("text"))),
            (json!({ "data": "", "dataSecretName": "join" }), Ok(None)),
            (json!({ "dataSecretName": "join" }), Err("join".to_owned())),
        ] {
            let mut pool = MachinePool::new("p", MachinePoolSpec::default());
            pool.spec.template.spec.bootstrap = serde_json::from_value(bootstrap.clone()).unwrap();
            let seen = (&ConfigsView::default(), &missing);
            let found = template(&pool, &SecretView::NotReferenced, seen).map_err(|it| it.message);
            let expected = expected.map(|it| it.map(|text| UserData::new(text.into())));
            assert_eq!(found, expected, "{bootstrap}");
        }
    }
}
