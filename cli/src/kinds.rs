//! The kinds that people name, by every name that kubectl and Cluster API have for them.

use std::str::FromStr;

use anyhow::{Context as _, bail};
use kube::api::ApiResource;
use ostler_api::{
    Machine, MachineClass, MachineDeployment, MachineHealthCheck, MachinePool, MachineReserve,
    MachineSet,
};

/// A kind of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Machine,
    Class,
    Deployment,
    HealthCheck,
    Pool,
    Reserve,
    Set,
}

/// Kinds with their name, plural, and short names.
const NAMES: [(Kind, &str, &str, &[&str]); 7] = [
    (Kind::Machine, "machine", "machines", &["mc", "ma"]),
    (Kind::Class, "machineclass", "machineclasses", &["mcc"]),
    (Kind::Deployment, "machinedeployment", "machinedeployments", &["mcd", "md"]),
    (Kind::HealthCheck, "machinehealthcheck", "machinehealthchecks", &["mhc"]),
    (Kind::Pool, "machinepool", "machinepools", &["mp"]),
    (Kind::Reserve, "machinereserve", "machinereserves", &["mr"]),
    (Kind::Set, "machineset", "machinesets", &["mcs", "ms"]),
];

impl Kind {
    /// The singular, as kubectl writes it.
    pub(crate) fn singular(self) -> &'static str {
        NAMES.iter().find(|it| it.0 == self).map_or("", |it| it.1)
    }

    /// Its name for lists.
    pub(crate) fn plural(self) -> &'static str {
        NAMES.iter().find(|it| it.0 == self).map_or("", |it| it.2)
    }

    /// Where the API has it.
    pub(crate) fn resource(self) -> ApiResource {
        match self {
            Self::Machine => ApiResource::erase::<Machine>(&()),
            Self::Class => ApiResource::erase::<MachineClass>(&()),
            Self::Deployment => ApiResource::erase::<MachineDeployment>(&()),
            Self::HealthCheck => ApiResource::erase::<MachineHealthCheck>(&()),
            Self::Pool => ApiResource::erase::<MachinePool>(&()),
            Self::Reserve => ApiResource::erase::<MachineReserve>(&()),
            Self::Set => ApiResource::erase::<MachineSet>(&()),
        }
    }
}

impl FromStr for Kind {
    type Err = anyhow::Error;

    /// `machines`, `mc`, `Machine` or `machines.v1alpha1.machine.sapcloud.io`.
    fn from_str(text: &str) -> anyhow::Result<Self> {
        let name = text.split('.').next().unwrap_or_default().to_lowercase();
        let found = NAMES.iter().find(|(_, singular, plural, short)| {
            [*singular, *plural].contains(&name.as_str()) || short.contains(&name.as_str())
        });
        let all: Vec<_> = NAMES.iter().map(|it| it.1).collect();
        let found =
            found.with_context(|| format!("{text} is none of the kinds {}", all.join(", ")))?;
        Ok(found.0)
    }
}

/// What `KIND NAME…`, `KIND/NAME…` or `KIND` name; no name: all objects of the kind.
///
/// # Errors
/// A kind is not known, or both ways are mixed.
pub(crate) fn named(words: &[String]) -> anyhow::Result<Vec<(Kind, Option<String>)>> {
    let Some((first, names)) = words.split_first() else { bail!("no kind is given") };
    if first.contains('/') {
        let one = |word: &String| {
            let (kind, name) = word
                .split_once('/')
                .with_context(|| format!("{word} is not KIND/NAME, as {first} before it"))?;
            Ok((kind.parse()?, Some(name.to_owned())))
        };
        return words.iter().map(one).collect();
    }
    let kind: Kind = first.parse()?;
    if let Some(mixed) = names.iter().find(|name| name.contains('/')) {
        bail!("{mixed} is not a name: after {first} come names without a kind");
    }
    if names.is_empty() {
        return Ok(vec![(kind, None)]);
    }
    Ok(names.iter().map(|name| (kind, Some(name.clone()))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_named_as_for_kubectl() {
        let named = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            named(&words)
        };
        let one = |kind, name: &str| (kind, Some(name.to_owned()));
        for (line, expected) in [
            ("machine a", vec![one(Kind::Machine, "a")]),
            ("machines a b", vec![one(Kind::Machine, "a"), one(Kind::Machine, "b")]),
            ("md/a mp/b", vec![one(Kind::Deployment, "a"), one(Kind::Pool, "b")]),
            ("MachineSet/a", vec![one(Kind::Set, "a")]),
            ("machineclasses.v1alpha1.machine.sapcloud.io c", vec![one(Kind::Class, "c")]),
            ("mhc", vec![(Kind::HealthCheck, None)]),
        ] {
            assert_eq!(named(line).unwrap(), expected, "{line}");
        }
        for (line, part) in [
            ("pod a", "pod is none of the kinds machine, machineclass"),
            ("mc/a b", "b is not KIND/NAME"),
            ("mc a/b", "a/b is not a name"),
        ] {
            let said = named(line).unwrap_err().to_string();
            assert!(said.contains(part), "{said}");
        }
    }

    #[test]
    fn every_kind_has_the_names_of_its_definition() {
        for (kind, singular, plural, _) in NAMES {
            assert_eq!(kind.resource().plural, plural);
            assert_eq!(kind.resource().kind.to_lowercase(), singular);
        }
    }
}
