//! The bootstrap data of a pool's instances: one text for all, read anew in each pass, since others renew its content.

use ostler_api::{MachinePool, SpecDigest, bootstrap::Bootstrap};

use crate::{digest, operation::UserData, snapshot::SecretView, user_data::MAX_USER_DATA};

/// The Secret that a template names, as far as it was looked up.
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

/// Name of the Secret that a template names.
pub fn secret_name(pool: &MachinePool) -> Option<&str> {
    let bootstrap = pool.spec.template.spec.bootstrap.as_ref()?;
    bootstrap.data_secret_name.as_deref().filter(|name| !name.is_empty())
}

/// The user data of the group, with their placeholder. `Err`: the missing part, for people.
pub(super) fn template(
    pool: &MachinePool,
    class: &SecretView,
    own: &DataSecret,
) -> Result<Option<UserData>, String> {
    let data = match pool.spec.template.spec.bootstrap.as_ref() {
        None => of_class(class)?,
        Some(Bootstrap { data: Some(text), .. }) => {
            Some(UserData::new(text.expose().as_bytes().to_vec())).filter(|data| !data.is_empty())
        }
        Some(Bootstrap { data_secret_name: Some(_), .. }) => match own {
            // An empty name: the step is left out, as in Cluster API.
            DataSecret::NotNamed => None,
            DataSecret::Missing(what) => return Err(what.clone()),
            DataSecret::Known(data) => Some(data.clone()),
        },
        Some(_) => {
            return Err("spec.template.spec.bootstrap needs data or dataSecretName: a pool asks no bootstrap provider"
                .to_owned());
        }
    };
    if let Some(data) = data.as_ref().filter(|data| data.len() > MAX_USER_DATA) {
        return Err(format!(
            "the user data have {} bytes, at most {MAX_USER_DATA} can be sent",
            data.len()
        ));
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
            let found = template(&pool, &SecretView::NotReferenced, &missing);
            let expected = expected.map(|it| it.map(|text| UserData::new(text.into())));
            assert_eq!(found, expected, "{bootstrap}");
        }
    }
}
