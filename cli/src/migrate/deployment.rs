//! `--from deployment.yaml`: the command lines of machine-controller-manager, and what becomes of their flags.

use std::path::Path;

use anyhow::{Context as _, bail};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Container;
use ostler_server::{Becomes, command_line};
use serde::Serialize;
use serde_json::Value;

/// The process that goes on beside Ostler.
const STAYS: &str = "machine-controller-manager";
/// What the names of both processes, and of their containers and images, contain.
const OURS: &str = "machine-controller";

/// The command lines of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CommandLines(Vec<CommandLine>);

/// The command line of one container.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CommandLine {
    /// Of the container, behind that of the Deployment.
    name: String,
    /// Whether the container runs the process of sets, which stays.
    stays: bool,
    args: Vec<String>,
}

/// The fate of a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Fate {
    pub(super) container: String,
    /// The container may go on as it is: it runs sets, and no machines.
    pub(super) goes_on: bool,
    pub(super) flags: Vec<FlagFate>,
    /// Why the core does not take the flags together.
    pub(super) refused: Option<String>,
}

/// The fate of a flag.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FlagFate {
    pub(super) flag: String,
    pub(super) value: Option<String>,
    /// `the same`, `no effect`, `refused` or `unknown`.
    pub(super) becomes: &'static str,
    pub(super) note: String,
    pub(super) stands_in_the_way: bool,
}

impl CommandLines {
    /// Reads the Deployments of a file. The text of an error has its causes: of a wrong flag, nothing else is shown.
    pub(super) fn read(path: &str) -> Result<Self, String> {
        let text = std::fs::read_to_string(Path::new(path)).context("it cannot be read");
        text.and_then(|text| Self::parse(&text)).map_err(|error| format!("{error:#}"))
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let documents: Vec<Value> = serde_saphyr::from_multiple(text).context("it is no YAML")?;
        let mut found = Vec::new();
        for document in documents {
            if document.get("kind").and_then(Value::as_str) != Some("Deployment") {
                continue;
            }
            let deployment: Deployment =
                serde_json::from_value(document).context("it holds a Deployment that is none")?;
            found.extend(command_lines(deployment));
        }
        if found.is_empty() {
            bail!("it holds no Deployment with a container of machine-controller-manager");
        }
        Ok(Self(found))
    }

    /// The fate of the containers and their flags.
    pub(super) fn fates(&self) -> Vec<Fate> {
        self.0.iter().map(fate).collect()
    }
}

fn command_lines(deployment: Deployment) -> Vec<CommandLine> {
    let name = deployment.metadata.name.unwrap_or_default();
    let pod = deployment.spec.and_then(|spec| spec.template.spec);
    let containers = pod.map(|pod| pod.containers).unwrap_or_default();
    containers.iter().filter_map(|container| runs(&name, container)).collect()
}

/// The command line of a container of machine-controller-manager.
fn runs(deployment: &str, container: &Container) -> Option<CommandLine> {
    let command = container.command.clone().unwrap_or_default();
    let program = command.first().and_then(|path| path.rsplit('/').next()).map(str::to_owned);
    let image = container.image.clone().unwrap_or_default();
    let is_named = |text: &str| text.contains(OURS);
    if ![program.as_deref().unwrap_or_default(), &container.name, &image]
        .map(is_named)
        .contains(&true)
    {
        return None;
    }
    let stays = program.as_deref().unwrap_or(&container.name) == STAYS;
    let words = command.into_iter().skip(1).chain(container.args.clone().unwrap_or_default());
    let args = words.map(|word| filled(word, container)).collect();
    Some(CommandLine { name: format!("{deployment}/{}", container.name), stays, args })
}

/// Puts the variables of a container into a word as the kubelet does. One whose value only the cluster knows is
/// put there by its name, which is as good a word as any.
fn filled(mut word: String, container: &Container) -> String {
    for variable in container.env.iter().flatten() {
        let value = variable.value.clone().unwrap_or_else(|| variable.name.to_lowercase());
        word = word.replace(&format!("$({})", variable.name), &value);
    }
    word
}

fn fate(line: &CommandLine) -> Fate {
    let judged = command_line(line.args.clone());
    let flags = judged.flags.into_iter().map(|flag| {
        let (becomes, note, stands_in_the_way) = match flag.becomes {
            Becomes::Same(help) => ("the same", help, false),
            Becomes::NoEffect => ("no effect", "it may stay, or go".to_owned(), false),
            Becomes::Refused(why) => ("refused", why, true),
            Becomes::Unknown => {
                ("unknown", "the core does not start with it: leave it out".to_owned(), true)
            }
        };
        // The process of sets may keep the flag, as long as the process goes on.
        let stands_in_the_way = stands_in_the_way && !line.stays;
        FlagFate { flag: flag.name, value: flag.value, becomes, note, stands_in_the_way }
    });
    Fate {
        container: line.name.clone(),
        goes_on: line.stays,
        flags: flags.collect(),
        refused: judged.refused.filter(|_| !line.stays),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOOT: &str = "
apiVersion: v1
kind: ServiceAccount
metadata: {name: mcm}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: mcm}
spec:
  selector: {}
  template:
    spec:
      containers:
      - name: machine-controller-manager
        command: [./machine-controller-manager, --safety-up=2, --v=3]
      - name: machine-controller-manager-provider-aws
        image: registry.example.com/machine-controller-manager-provider-aws:v1
        command: [./machine-controller]
        args: [--machine-drain-timeout=2h, '--namespace=$(SPACE)', --min-resync-period=12h, --profiling, --novel=1]
        env: [{name: SPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}]
      - name: proxy
        image: registry.example.com/proxy:v1
        args: [--listen=1]
";

    #[test]
    fn flags_of_the_machine_controller_are_judged_and_the_other_process_goes_on() {
        let fates = CommandLines::parse(SHOOT).unwrap().fates();
        let names: Vec<_> =
            fates.iter().map(|fate| (fate.container.as_str(), fate.goes_on)).collect();
        let provider = "mcm/machine-controller-manager-provider-aws";
        assert_eq!(names, [("mcm/machine-controller-manager", true), (provider, false)]);
        let of_sets: Vec<_> =
            fates[0].flags.iter().map(|it| (it.flag.as_str(), it.becomes)).collect();
        assert_eq!(of_sets, [("--safety-up", "the same"), ("--v", "the same")]);
        let becomes: Vec<_> = fates[1]
            .flags
            .iter()
            .map(|it| (it.flag.as_str(), it.becomes, it.stands_in_the_way))
            .collect();
        let expected = [
            ("--machine-drain-timeout", "the same", false),
            ("--namespace", "the same", false),
            ("--min-resync-period", "no effect", false),
            ("--profiling", "refused", true),
            ("--novel", "unknown", true),
        ];
        assert_eq!(becomes, expected);
        assert_eq!(fates[1].flags[1].value.as_deref(), Some("space"));
    }

    #[test]
    fn a_file_without_a_machine_controller_is_refused() {
        for text in
            ["kind: Service", "a: [", "kind: Deployment\nspec: {selector: {}, template: {}}"]
        {
            CommandLines::parse(text).unwrap_err();
        }
    }

    #[test]
    fn what_is_wrong_with_a_file_is_told_with_its_place() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        for (text, parts) in [
            ("kind: Deployment\nspec: [\n", ["it is no YAML: ", "line 2"]),
            (
                "kind: Deployment\nspec: 5\n",
                ["it holds a Deployment that is none: ", "invalid type"],
            ),
        ] {
            std::fs::write(path, text).unwrap();
            let told = CommandLines::read(path).unwrap_err();
            assert!(parts.iter().all(|part| told.contains(part)), "{told}");
        }
        let told = CommandLines::read("/nowhere/at/all").unwrap_err();
        assert!(told.contains("cannot be read: ") && told.contains("No such file"), "{told}");
    }
}
