//! Machines and pools of providers that no driver serves, as after an `up` with other drivers. Machines that run do not say so.

use std::collections::{BTreeMap, BTreeSet};

use kube::{Client, ResourceExt as _};
use ostler_api::{Machine, MachineClass, MachinePool};

use super::narrate::Story;
use crate::cluster::list;

/// Tells of each provider without a driver what needs one. `connected`: the providers of the drivers that are ready.
pub(super) async fn tell(
    story: Story,
    client: &Client,
    aliases: &BTreeMap<String, String>,
    connected: &[String],
) -> kube::Result<()> {
    let classes = list::<MachineClass>(client, None).await?;
    let key = |namespace: &str, name: &str| (namespace.to_owned(), name.to_owned());
    let providers: BTreeMap<_, _> =
        classes.iter().map(|it| (key(it.namespace(), &it.name_any()), it.provider())).collect();
    let machines = list::<Machine>(client, None).await?;
    let pools = list::<MachinePool>(client, None).await?;
    let machines = machines
        .iter()
        .map(|it| ("machine", it.name_any(), key(it.namespace(), &it.spec.class.name)));
    let pools = pools.iter().map(|it| {
        let class = &it.spec.template.spec.class.name;
        ("machinepool", it.name_any(), key(it.namespace(), class))
    });
    let mut needed = BTreeMap::<&str, Vec<(&str, String)>>::new();
    for (kind, name, class) in machines.chain(pools) {
        let Some(&written) = providers.get(&class) else { continue };
        let provider = aliases.get(written).map_or(written, String::as_str);
        if !connected.iter().any(|it| it == provider) {
            needed.entry(provider).or_default().push((kind, name));
        }
    }
    for (provider, needs) in &needed {
        story.tell(line(provider, needs));
    }
    Ok(())
}

/// Says that a provider has no driver, and how to start the driver.
fn line(provider: &str, needs: &[(&str, String)]) -> String {
    let kinds: BTreeSet<_> = needs.iter().map(|it| it.0).collect();
    let of_kind = |kind: &str| {
        let names: Vec<_> =
            needs.iter().filter(|it| it.0 == kind).map(|it| it.1.as_str()).collect();
        match names.as_slice() {
            [one] => format!("{kind} {one} needs it"),
            all => {
                format!("{} {kind}s, such as {}, need it", all.len(), all.first().unwrap_or(&""))
            }
        }
    };
    let needs: Vec<_> = kinds.into_iter().map(of_kind).collect();
    let driver = match provider {
        ostler_driver_fake::PROVIDER => "fake".to_owned(),
        ostler_driver_docker::PROVIDER => "docker".to_owned(),
        other => format!("{other}=PATH"),
    };
    format!(
        "! no driver for {provider} is connected, and {}: add --driver {driver} to `ostler up`, or delete all with `ostler reset`",
        needs.join("; ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_needs_a_driver_is_named_with_the_flag_that_starts_it() {
        let needs = |all: &[(&'static str, &str)]| -> Vec<(&str, String)> {
            all.iter().map(|it| (it.0, it.1.to_owned())).collect()
        };
        assert_eq!(
            line(
                "fake.ostler.dev",
                &needs(&[("machine", "a"), ("machine", "b"), ("machinepool", "p")])
            ),
            "! no driver for fake.ostler.dev is connected, and 2 machines, such as a, need it; machinepool p needs it: \
             add --driver fake to `ostler up`, or delete all with `ostler reset`"
        );
        let other = line("aws.example.com", &needs(&[("machine", "a")]));
        assert!(other.contains("--driver aws.example.com=PATH"), "{other}");
    }
}
