//! The findings, for people and for programs.

use serde::Serialize;

use super::class::Finding;
use super::deployment::Fate;
use super::fleet::FleetRow;
use super::verdict::Verdict;
use crate::table::{Table, render};
use crate::terminal;

/// The fate of the process that runs sets.
const GOES_ON: &str = "it works beside a core with --controllers=machine; a core with all controllers, the default, does its work";

/// Everything that was found.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    pub(super) namespace: String,
    /// The tag that instances would carry.
    pub(super) cluster_id: String,
    /// Providers whose drivers were asked.
    pub(super) drivers: Vec<String>,
    pub(super) machines: Vec<MachineRow>,
    pub(super) classes: Vec<ClassRow>,
    /// The fate of deployments and sets, if the core runs them.
    pub(super) fleet: Vec<FleetRow>,
    /// Instances with the tag of this cluster that no Machine is for.
    pub(super) without_machine: Vec<String>,
    /// Machines that Gardener's autoscaler fails at, with the reason.
    pub(super) beside_autoscaler: Vec<(String, String)>,
    /// Faults of the CustomResourceDefinitions.
    pub(super) definitions: Vec<String>,
    /// Rights that are missing.
    pub(super) rights: Vec<String>,
    /// The fate of the given command lines.
    pub(super) command_lines: Vec<Fate>,
}

/// One Machine.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MachineRow {
    pub(super) name: String,
    pub(super) class: String,
    /// `found`, `adoptable`, `not ours`, `absent` or `unknown`.
    pub(super) verdict: &'static str,
    /// The provider id of the instance that is there.
    pub(super) instance: String,
    pub(super) note: String,
    pub(super) stands_in_the_way: bool,
}

impl MachineRow {
    pub(super) fn new(name: &str, class: &str, verdict: &Verdict, instance: String) -> Self {
        Self {
            name: name.to_owned(),
            class: class.to_owned(),
            verdict: verdict.word(),
            instance,
            note: verdict.note().to_owned(),
            stands_in_the_way: verdict.stands_in_the_way(),
        }
    }
}

/// One class.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClassRow {
    pub(super) name: String,
    pub(super) provider: String,
    pub(super) findings: Vec<Finding>,
}

impl Report {
    /// How many things have to be done first.
    pub(super) fn in_the_way(&self) -> usize {
        let machines = self.machines.iter().filter(|it| it.stands_in_the_way).count();
        let findings = self.classes.iter().flat_map(|it| &it.findings);
        let flags = self.command_lines.iter().flat_map(|it| &it.flags);
        let together = self.command_lines.iter().filter(|it| it.refused.is_some()).count();
        machines
            + findings.filter(|it| it.stands_in_the_way).count()
            + flags.filter(|it| it.stands_in_the_way).count()
            + together
            + self.fleet.iter().filter(|it| it.stands_in_the_way).count()
            + self.definitions.len()
            + self.rights.len()
    }

    /// For programs.
    pub(super) fn json(&self) -> anyhow::Result<String> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Whole<'a> {
            stands_in_the_way: usize,
            #[serde(flatten)]
            report: &'a Report,
        }
        let whole = Whole { stands_in_the_way: self.in_the_way(), report: self };
        Ok(serde_json::to_string_pretty(&whole)?)
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let drivers = if self.drivers.is_empty() {
            "no driver".to_owned()
        } else {
            format!("drivers of {}", self.drivers.join(", "))
        };
        let head =
            format!("namespace {}, cluster id {}, {drivers}", self.namespace, self.cluster_id);
        let parts = [
            Some(terminal::line(&head)),
            self.machines(),
            self.classes(),
            self.fleet(),
            self.back(),
            self.rest(),
            self.flags(),
        ];
        let mut text: Vec<String> = parts.into_iter().flatten().collect();
        text.push(match self.in_the_way() {
            0 => "Nothing stands in the way.".to_owned(),
            1 => "1 line with a ! stands in the way.".to_owned(),
            number => format!("{number} lines with a ! stand in the way."),
        });
        text.join("\n\n")
    }

    fn machines(&self) -> Option<String> {
        let heading = vec!["", "MACHINE", "CLASS", "INSTANCE IS", "PROVIDER ID", "NOTE"];
        let rows = self.machines.iter().map(|it| {
            let cells = [&it.name, &it.class, it.verdict, &it.instance, &it.note];
            marked(it.stands_in_the_way, cells)
        });
        table(heading, rows.collect())
    }

    fn classes(&self) -> Option<String> {
        let mut rows = Vec::new();
        for class in &self.classes {
            let cells = |about, text| [class.name.as_str(), class.provider.as_str(), about, text];
            if class.findings.is_empty() {
                rows.push(marked(false, cells("nothing", "")));
            }
            rows.extend(class.findings.iter().map(|it| {
                let about = if it.stands_in_the_way { it.about } else { "nothing" };
                marked(it.stands_in_the_way, cells(about, it.text.as_str()))
            }));
        }
        table(vec!["", "CLASS", "PROVIDER", "LACKS", "NOTE"], rows)
    }

    fn fleet(&self) -> Option<String> {
        let rows = self.fleet.iter().map(|it| {
            marked(it.stands_in_the_way, [it.kind, it.name.as_str(), it.becomes, it.note.as_str()])
        });
        table(vec!["", "KIND", "NAME", "BECOMES", "NOTE"], rows.collect())
    }

    fn back(&self) -> Option<String> {
        let notes = |it: &'_ FleetRow| {
            let row = |note: &String| marked(false, [it.kind, it.name.as_str(), note.as_str()]);
            it.back.iter().map(row).collect::<Vec<_>>()
        };
        table(
            vec!["", "KIND", "NAME", "ON THE WAY BACK"],
            self.fleet.iter().flat_map(notes).collect(),
        )
    }

    fn rest(&self) -> Option<String> {
        let definitions = self
            .definitions
            .iter()
            .map(|field| marked(true, ["definitions", field, "ostler crds | kubectl apply -f -"]));
        let rights = self.rights.iter().map(|right| {
            marked(
                true,
                [
                    "rights",
                    right,
                    "kubectl apply -k deploy/base, or a --kubeconfig of the core's own",
                ],
            )
        });
        let instances = self.without_machine.iter().map(|id| {
            let note = "it has the tag of this cluster, and no machine: an orphan";
            marked(false, ["instance", id, note])
        });
        let strangers = self
            .beside_autoscaler
            .iter()
            .map(|(machine, why)| marked(false, ["autoscaler", machine, why]));
        let all = definitions.chain(rights).chain(instances).chain(strangers).collect();
        table(vec!["", "CLUSTER", "WHAT", "NOTE"], all)
    }

    fn flags(&self) -> Option<String> {
        let mut rows = Vec::new();
        for line in &self.command_lines {
            let name = line.container.as_str();
            if line.goes_on {
                rows.push(marked(false, [name, "", "goes on", GOES_ON]));
            }
            rows.extend(line.flags.iter().map(|it| {
                let flag = it.value.as_ref().map(|value| format!("{}={value}", it.flag));
                let flag = flag.unwrap_or_else(|| it.flag.clone());
                marked(it.stands_in_the_way, [name, &flag, it.becomes, &it.note])
            }));
            rows.extend(line.refused.iter().map(|why| marked(true, [name, "", "refused", why])));
        }
        table(vec!["", "CONTAINER", "FLAG", "BECOMES", "NOTE"], rows)
    }
}

/// A row, with a mark if it stands in the way.
fn marked<const N: usize>(stands_in_the_way: bool, cells: [&str; N]) -> Vec<String> {
    let mark = if stands_in_the_way { "!" } else { " " };
    std::iter::once(mark).chain(cells).map(str::to_owned).collect()
}

fn table(heading: Vec<&'static str>, rows: Vec<Vec<String>>) -> Option<String> {
    (!rows.is_empty()).then(|| render(&Table { heading, rows }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(verdict: &Verdict) -> Report {
        Report {
            namespace: "shoot".to_owned(),
            cluster_id: "uid/shoot".to_owned(),
            drivers: vec!["aws.example.com".to_owned()],
            machines: vec![MachineRow::new("m", "c", verdict, "aws:///i-1".to_owned())],
            classes: vec![ClassRow {
                name: "c".to_owned(),
                provider: "AWS".to_owned(),
                findings: Vec::new(),
            }],
            fleet: Vec::new(),
            without_machine: vec!["aws:///i-2".to_owned()],
            beside_autoscaler: vec![("alone".to_owned(), "it has no owner".to_owned())],
            definitions: Vec::new(),
            rights: Vec::new(),
            command_lines: Vec::new(),
        }
    }

    #[test]
    fn what_stands_in_the_way_is_marked_and_counted_and_the_rest_is_not() {
        let fine = report(&Verdict::Adoptable);
        assert_eq!(fine.in_the_way(), 0);
        let text = fine.text();
        assert!(text.ends_with("Nothing stands in the way.") && !text.contains('!'), "{text}");
        let mut wrong = report(&Verdict::NotOurs);
        wrong.definitions.push("machines (not served)".to_owned());
        assert_eq!(wrong.in_the_way(), 2);
        let text = wrong.text();
        let marked: Vec<_> = text.lines().filter(|line| line.starts_with('!')).collect();
        assert_eq!(marked.len(), 2, "{text}");
        assert!(marked[0].contains("not ours") && marked[1].contains("not served"), "{text}");
    }

    #[test]
    fn programs_get_the_same_by_name() {
        let json: serde_json::Value =
            serde_json::from_str(&report(&Verdict::AbsentUnproven).json().unwrap()).unwrap();
        assert_eq!(json["standsInTheWay"], 1);
        assert_eq!(json["machines"][0]["verdict"], "absent");
        assert_eq!(json["machines"][0]["standsInTheWay"], true);
        assert_eq!(json["withoutMachine"][0], "aws:///i-2");
    }
}
