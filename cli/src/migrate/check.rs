//! `ostler migrate check`: a core without a Lease asks drivers what it would find. Neither the API nor the infrastructure
//! is written.

use ostler_api::ProviderId;
use ostler_api::ProviderName;
use ostler_api::Uid;
use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::ValueEnum;
use futures::StreamExt as _;
use ostler_api::{Machine, MachineClass};
use ostler_controllers::GivenIds;
use ostler_lifecycle::snapshot::{AdoptByName, ClassFacts, Settings};
use ostler_server::LookOptions;

use super::ask::{self, Review};
use super::class::{Facts, findings};
use super::cluster::Cluster;
use super::deployment::CommandLines;
use super::drivers::{DriverArgs, Drivers};
use super::fleet;
use super::report::{ClassRow, MachineRow, Report};
use super::verdict::{Answers, Verdict, absence, judge, under_another_id};
use crate::cluster::Place;
use crate::log;

/// Concurrent questions; a driver takes no more than it said.
const AT_ONCE: usize = 16;

/// Whose machines are looked at, and who is asked.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ostler migrate check -n shoot--a --kubeconfig seed.kubeconfig \\
    --driver aws.example.com=./my-driver --provider-alias AWS=aws.example.com \\
    --from machine-controller-manager.yaml
  ostler migrate check --drivers-listen 127.0.0.1:5001 \\
    --driver-token aws.example.com=token --output json

machine-controller-manager may run meanwhile: this is a core without a Lease. It sends GetMachineStatus, ListMachines and \
ValidateClass and nothing else, leaves to drivers what they hold for another core, and reads the API. All that it creates \
there are questions that are stored nowhere: SelfSubjectAccessReviews, which are about the account of the kubeconfig, so take \
the one that the core will have; and with --driver-access TokenReviews.

A line with a ! prevents the migration. Exit code: 0 if there is none, 1 if there are some or the check failed, 2 for \
a wrong command line.")]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    drivers: DriverArgs,
    /// The core's flag of this name: another name that classes use for a provider, e.g. AWS=aws.example.com; repeatable
    #[arg(long = "provider-alias", value_name = "NAME=PROVIDER", value_parser = ostler_server::alias)]
    aliases: Vec<(String, String)>,
    /// The core's flag of this name: whether instances without a UID are taken over by name
    #[arg(long, value_enum, default_value_t)]
    adopt_by_name: ostler_server::AdoptByName,
    /// The core's flag of this name: the tag of all instances, if it is not that of this cluster and namespace
    #[arg(long)]
    cluster_id: Option<String>,
    /// The core's flag of this name: ids that the cluster had before; repeatable
    #[arg(long, value_name = "ID[,ID]", value_delimiter = ',')]
    previous_cluster_ids: Vec<String>,
    /// Deployments of machine-controller-manager, YAML: tells what becomes of their flags; repeatable
    #[arg(long, value_name = "FILE", value_parser = CommandLines::read)]
    from: Vec<CommandLines>,
    /// How it is told
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
}

/// How the report is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people.
    #[default]
    Table,
    /// For programs.
    Json,
}

/// Prints the report.
///
/// # Errors
/// The cluster cannot be read, or no driver can be taken.
pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let config = args.place.config().await?;
    let namespace = config.default_namespace.clone();
    let client = ostler_dial::cluster::client(config).context("the kubeconfig cannot be used")?;
    let given = GivenIds { id: args.cluster_id, previous: args.previous_cluster_ids };
    let cluster = Cluster::read(&client, &namespace, &given).await?;
    let aliases = args.aliases.into_iter().map(|(alias, name)| (alias.into(), name.into()));
    let aliases: BTreeMap<ProviderName, ProviderName> = aliases.collect();
    let settings = Settings { adopt_by_name: args.adopt_by_name.for_all(), ..Settings::default() };
    let options = LookOptions {
        cluster: cluster.ids.clone(),
        namespace: namespace.clone(),
        aliases: aliases.clone(),
        classes: cluster.classes.clone(),
        secrets: cluster.secrets.clone(),
        ..LookOptions::default()
    };
    let canonical = |class: &MachineClass| {
        let written = class.provider();
        aliases.get(written).cloned().unwrap_or_else(|| written.into())
    };
    let wanted: BTreeSet<ProviderName> = cluster.classes.iter().map(canonical).collect();
    let drivers = Drivers::start(client, args.drivers, options, &wanted).await?;
    let check = Check { cluster: &cluster, drivers: &drivers, settings: &settings };
    let mut report = check.report(namespace, canonical).await;
    drivers.stop().await?;
    report.command_lines = args.from.iter().flat_map(CommandLines::fates).collect();
    match args.output {
        Output::Table => log::page(report.text()),
        Output::Json => log::page(report.json()?),
    }
    Ok(if report.in_the_way() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The cluster, drivers and settings of a check.
struct Check<'a> {
    cluster: &'a Cluster,
    drivers: &'a Drivers,
    settings: &'a Settings,
}

/// The answers of a class's driver.
#[derive(Default)]
struct Said {
    review: Review,
    unlisted: Option<String>,
    /// Instances: provider id and UID.
    instances: Vec<(ProviderId, Uid)>,
}

impl Check<'_> {
    async fn report(
        &self,
        namespace: String,
        canonical: impl Fn(&MachineClass) -> ProviderName,
    ) -> Report {
        let (connected, lacking) = (self.drivers.connected(), self.drivers.without_updates());
        let machines = futures::stream::iter(&self.cluster.machines);
        let machines = machines.map(|machine| self.machine(machine)).buffered(AT_ONCE);
        let judged: Vec<(&Machine, Verdict, String)> = machines.collect().await;
        let secrets = self.cluster.secret_names();
        let (mut classes, mut unclaimed) = (Vec::new(), BTreeSet::new());
        for class in &self.cluster.classes {
            let provider = canonical(class);
            let said = if connected.contains(&provider) {
                self.said(class).await
            } else {
                Said::default()
            };
            let name = class.metadata.name.clone().unwrap_or_default();
            let waits = |(machine, verdict, _): &&(&Machine, Verdict, String)| {
                machine.spec.class.name == name && *verdict == Verdict::AdoptableIfAllowed
            };
            let facts = Facts {
                class,
                provider: provider.as_str(),
                connected: &connected,
                secrets: &secrets,
                allowed: self.allowed(class),
                waiting: judged.iter().filter(waits).count(),
                review: said.review,
                updates: !lacking.contains(&provider),
                unlisted: said.unlisted.as_deref(),
            };
            let findings = findings(&facts);
            unclaimed.extend(without_machine(&judged, &said.instances));
            classes.push(ClassRow { name, provider: class.provider().to_owned(), findings });
        }
        let rows = judged.into_iter().map(|(machine, verdict, instance)| {
            MachineRow::new(machine.name(), &machine.spec.class.name, &verdict, instance)
        });
        Report {
            namespace,
            cluster_id: self.cluster.ids.own.clone(),
            drivers: connected.into_iter().map(String::from).collect(),
            machines: rows.collect(),
            classes,
            fleet: fleet::rows(
                &self.cluster.deployments,
                &self.cluster.sets,
                &self.cluster.machines,
            ),
            without_machine: unclaimed.into_iter().collect(),
            beside_autoscaler: fleet::beside_autoscaler(&self.cluster.sets, &self.cluster.machines),
            definitions: self.cluster.definitions.clone(),
            rights: self.cluster.rights.clone(),
            command_lines: Vec::new(),
        }
    }

    fn allowed(&self, class: &MachineClass) -> AdoptByName {
        self.settings.adopt_by_name(&ClassFacts::of(class))
    }

    async fn machine<'a>(&self, machine: &'a Machine) -> (&'a Machine, Verdict, String) {
        let name = &machine.spec.class.name;
        let class = self.cluster.classes.iter();
        let class = class.into_iter().find(|class| class.metadata.name.as_ref() == Some(name));
        let Some(class) = class else {
            let why = format!("its class {name} is not there");
            return (machine, Verdict::Unknown(why), String::new());
        };
        let allowed = self.allowed(class);
        let answers: Answers =
            ask::machine(self.drivers.sessions(), machine, &ClassFacts::of(class), allowed).await;
        let absence = absence(machine, &self.cluster.ids, allowed);
        let (verdict, instance) = judge(machine.uid(), absence, allowed, &answers);
        let other = under_another_id(machine.provider_id(), &self.cluster.ids, &answers.as_it_is);
        (machine, other.unwrap_or(verdict), instance)
    }

    async fn said(&self, class: &MachineClass) -> Said {
        let sessions = self.drivers.sessions();
        let review = ask::review(sessions, class).await;
        match ask::list(sessions, class).await {
            Ok(records) => {
                let instances = records.into_iter().map(|it| (it.provider_id, it.machine_uid));
                Said { review, unlisted: None, instances: instances.collect() }
            }
            Err(why) => Said { review, unlisted: Some(why), instances: Vec::new() },
        }
    }
}

/// Instances that no Machine is for: neither by their UID nor by their id, nor found by the name of one.
fn without_machine(
    judged: &[(&Machine, Verdict, String)],
    instances: &[(ProviderId, Uid)],
) -> Vec<String> {
    let is_for = |(id, uid): &(ProviderId, Uid),
                  (machine, _, found): &(&Machine, Verdict, String)| {
        *uid == *machine.uid() || machine.provider_id() == Some(id) || id.as_str() == found
    };
    let unclaimed = instances.iter().filter(|one| !judged.iter().any(|it| is_for(one, it)));
    unclaimed.map(|(id, _)| id.to_string()).collect()
}
