//! Any deployment in a world that moves at random, of every strategy and as whole objects: no pass breaks a promise, and
//! everything ends.
//!
//! | strategy | Machines | availability |
//! |---|---|---|
//! | RollingUpdate, InPlaceUpdate Auto | replicas and surge | replicas − maxUnavailable (INV-12) |
//! | InPlaceUpdate Manual | replicas: no surge | the same, but for what users select |
//! | Recreate | those of one set | none is promised: all go before the first new one comes |

use std::collections::BTreeSet;

use ostler_api::MachineSet;
use ostler_api::names::annotation::{PRIORITY, REPLICAS_CHANGED_BY_SCALER, TRIGGER_DELETION};
use ostler_api::names::label::{
    CANDIDATE_FOR_UPDATE, SCALE_UP_DISABLED, SELECTED_FOR_UPDATE, UPDATE_RESULT,
};
use ostler_lifecycle::deployment::fenceposts;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::deployment::world::{World, deployment, has_label, owner, with_phase};

const CLASSES: [&str; 3] = ["one", "two", "three"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Rolling,
    Recreate,
    Auto,
    Manual,
}

impl Kind {
    fn strategy(self, surge: i32, unavailable: i32) -> Value {
        let block = |kind| json!({ "maxSurge": surge, "maxUnavailable": unavailable, "orchestrationType": kind });
        match self {
            Self::Rolling => {
                json!({ "type": "RollingUpdate", "rollingUpdate": block(Value::Null) })
            }
            Self::Recreate => json!({ "type": "Recreate" }),
            Self::Auto => json!({ "type": "InPlaceUpdate", "inPlaceUpdate": block(json!("Auto")) }),
            Self::Manual => {
                json!({ "type": "InPlaceUpdate", "inPlaceUpdate": block(json!("Manual")) })
            }
        }
    }
}

/// What happens in the world.
#[derive(Debug, Clone, Copy)]
enum Event {
    Pass,
    SetsWork,
    Drains,
    Agents(bool),
    Start,
    Go,
    Roll(usize),
    Scale(i32),
    Lose(usize),
    Preserve(usize),
    Prefer(usize),
    Recover,
    Select(usize),
    Choose(usize),
}

struct Life {
    kind: Kind,
    world: World,
    chosen: BTreeSet<String>,
    /// New Machines that went although no autoscaler chose them and none was too many.
    wasted: BTreeSet<String>,
}

impl Life {
    fn of(kind: Kind, replicas: i32, (surge, unavailable): (i32, i32)) -> Self {
        let mut object = deployment(replicas);
        object["spec"]["strategy"] = kind.strategy(surge, unavailable);
        let mut world = World::of(object);
        world.settle();
        Self { kind, world, chosen: BTreeSet::new(), wasted: BTreeSet::new() }
    }

    /// Machines that stay available after the decided writes. The choice of an autoscaler waits for none.
    fn sure(&self) -> i32 {
        let mut later = self.world.clone();
        later.machines.retain(|name, _| !self.chosen.contains(name));
        later.nodes.retain(|name, _| !self.chosen.contains(name));
        later.sets_work();
        later.drains();
        i32::try_from(later.available()).unwrap()
    }

    fn wanted(&self) -> i32 {
        self.world.sets.values().map(|set| set.spec.replicas()).sum()
    }

    /// How many Machines stay when the sets have done what they can, and how many come.
    fn possible(&self) -> (i32, i32) {
        let of_set = |set: &MachineSet| {
            let own = || {
                let all = self.world.machines.values();
                all.filter(|it| owner(it) == set.name() && !it.is_deleting())
            };
            let count = |many: usize| i32::try_from(many).unwrap();
            let (living, wanted) = (count(own().count()), set.spec.replicas());
            let handed = count(own().filter(|it| it.label(UPDATE_RESULT).is_some()).count());
            let creates = set.label(SCALE_UP_DISABLED).is_none();
            let come = if creates { (wanted - living).max(0) } else { 0 };
            (living.min(wanted.max(handed)), come)
        };
        let of_sets = self.world.sets.values().map(of_set);
        of_sets.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
    }

    fn pass(&mut self) {
        let (sure, before) = (self.sure(), self.possible());
        self.world.pass();
        let spec = &self.world.deployment.spec;
        let posts = fenceposts::of(spec);
        let (stay, come) = self.possible();
        let fits = come <= before.1 || stay + come <= spec.replicas() + posts.surge;
        assert!(fits, "INV-11: {stay} and {come}: {self:#?}");
        let floor = sure.min(spec.replicas() - posts.unavailable);
        assert!(self.kind == Kind::Recreate || self.sure() >= floor, "INV-12: {self:#?}");
    }

    fn sets_work(&mut self) {
        let before = self.world.living();
        self.world.sets_work();
        let class = &self.world.deployment.spec.template.spec.class.name;
        let is_new = |name: &&String| self.world.machines[*name].spec.class.name == *class;
        let after = self.world.living();
        let lost = |name: &String| !after.contains(name) && !self.chosen.contains(name);
        let rest = i32::try_from(after.iter().filter(is_new).count()).unwrap();
        if rest < self.world.deployment.spec.replicas() {
            self.wasted.extend(before.iter().filter(is_new).filter(|name| lost(name)).cloned());
        }
        let sets: BTreeSet<_> = self.world.machines.values().map(owner).collect();
        assert!(self.kind != Kind::Recreate || sets.len() <= 1, "beside old ones: {sets:?}");
    }

    fn nth(&self, index: usize) -> Option<String> {
        let all = self.world.living();
        (!all.is_empty()).then(|| all[index % all.len()].clone())
    }

    /// As the autoscaler writes it.
    fn choose(&mut self, name: String) {
        let now = format!("{:.0}", self.world.now);
        let before = self.world.deployment.annotation(TRIGGER_DELETION).map(|it| format!("{it},"));
        let list = format!("{}{name}~{now}", before.unwrap_or_default());
        let replicas = self.world.deployment.spec.replicas() - 1;
        self.world.edit(&json!({
            "metadata": { "annotations": { TRIGGER_DELETION: list, REPLICAS_CHANGED_BY_SCALER: now } },
            "spec": { "replicas": replicas },
        }));
        self.chosen.insert(name);
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Pass => self.pass(),
            Event::SetsWork => self.sets_work(),
            Event::Drains => self.world.drains(),
            Event::Agents(well) => self.world.agents_work(well),
            Event::Start => self.world.machines_start(),
            Event::Go => self.world.machines_go(),
            Event::Roll(class) => self.world.roll_to(CLASSES[class]),
            Event::Scale(replicas) => self.world.edit(&json!({ "spec": { "replicas": replicas } })),
            Event::Lose(index) => {
                let name = self.nth(index).filter(|it| self.world.nodes.contains_key(it));
                if let Some(name) = name {
                    let lost = with_phase(&self.world.machines[&name], "Unknown");
                    self.world.machines.insert(name, lost);
                }
            }
            Event::Preserve(index) => {
                let until = json!({ "preserveExpiryTime": "2036-01-01T00:00:00Z" });
                let name = self.nth(index).filter(|it| self.world.nodes.contains_key(it));
                if let Some(name) = name {
                    self.world
                        .edit_machine(&name, &json!({ "status": { "currentStatus": until } }));
                }
            }
            Event::Prefer(index) => {
                let first = json!({ "metadata": { "annotations": { PRIORITY: "1" } } });
                if let Some(name) = self.nth(index) {
                    self.world.edit_machine(&name, &first);
                }
            }
            Event::Recover => self.world.recover(),
            Event::Select(index) => {
                // Where users select, a selectable Node; else a Node whose turn has not come. More than the controller
                // selects are the user's to answer for.
                let Some(name) = self.nth(index) else { return };
                let Some(node) = self.world.nodes.get_mut(&name) else { return };
                if (self.kind == Kind::Manual) == has_label(node, CANDIDATE_FOR_UPDATE) {
                    let selected = (SELECTED_FOR_UPDATE.to_owned(), "true".to_owned());
                    node.metadata.labels.get_or_insert_default().extend([selected]);
                }
            }
            Event::Choose(index) => {
                let name = self.nth(index).filter(|it| !self.chosen.contains(it));
                if let Some(name) = name.filter(|_| self.world.deployment.spec.replicas() > 0) {
                    self.choose(name);
                }
            }
        }
    }

    /// Everything comes true, until nothing changes.
    fn ends(&mut self) {
        for _ in 0..200 {
            let before = self.world.clone();
            for index in 0..self.world.machines.len() {
                if self.kind == Kind::Manual {
                    self.happens(Event::Select(index));
                }
            }
            self.world.recover();
            self.pass();
            self.sets_work();
            self.world.drains();
            self.world.agents_work(true);
            self.world.machines_start();
            self.world.machines_go();
            if self.world == before {
                break;
            }
        }
        let spec = &self.world.deployment.spec;
        let classes = self.world.machines.values().map(|it| it.spec.class.name.as_str());
        let replicas = usize::try_from(spec.replicas()).unwrap();
        let expected = vec![spec.template.spec.class.name.as_str(); replicas];
        assert_eq!(classes.collect::<Vec<_>>(), expected, "it never ends: {self:#?}");
        assert_eq!(self.wanted(), spec.replicas());
    }
}

impl std::fmt::Debug for Life {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let World { deployment, sets, machines, nodes, .. } = &self.world;
        writeln!(f, "{:?} of {}", self.kind, deployment.spec.replicas())?;
        for set in sets.values() {
            writeln!(f, "{} {} {:?}", set.name(), set.spec.replicas(), set.metadata.labels)?;
        }
        for (name, it) in machines {
            let labels = nodes.get(name).map(|it| &it.metadata.labels);
            let (set, goes) = (owner(it), it.is_deleting());
            writeln!(f, "{name} of {set} {} {goes} {labels:?}", it.phase())?;
        }
        Ok(())
    }
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![Just(Kind::Rolling), Just(Kind::Recreate), Just(Kind::Auto), Just(Kind::Manual)]
}

/// What the controllers and the machines do, and agents.
fn work() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => Just(Event::Pass),
        3 => Just(Event::SetsWork),
        2 => Just(Event::Drains),
        2 => Just(Event::Agents(true)),
        2 => Just(Event::Start),
        2 => Just(Event::Go),
    ]
}

/// What users do, and failures.
fn trouble() -> impl Strategy<Value = Event> {
    prop_oneof![
        (0..CLASSES.len()).prop_map(Event::Roll),
        (0..6_i32).prop_map(Event::Scale),
        (0..6_usize).prop_map(Event::Lose),
        (0..6_usize).prop_map(Event::Select),
        Just(Event::Agents(false)),
        Just(Event::Recover),
    ]
}

/// Events with an effect on the deletion order of sets.
fn orders() -> impl Strategy<Value = Event> {
    prop_oneof![
        (0..CLASSES.len()).prop_map(Event::Roll),
        (0..6_usize).prop_map(Event::Lose),
        (0..6_usize).prop_map(Event::Preserve),
        (0..6_usize).prop_map(Event::Prefer),
        Just(Event::Recover),
    ]
}

fn choices() -> impl Strategy<Value = Event> {
    prop_oneof![(0..6_usize).prop_map(Event::Choose), (0..6_usize).prop_map(Event::Select)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_deployment_of_any_strategy_keeps_its_promises_and_ends(
        kind in kinds(), replicas in 0..6, posts in (0..3, 0..3),
        events in vec(prop_oneof![4 => work(), 1 => trouble()], 0..80),
    ) {
        let mut life = Life::of(kind, replicas, posts);
        for event in events {
            life.happens(event);
        }
        life.ends();
    }

    /// Users scale in no matter what that order is, so none does here.
    #[test]
    fn a_rollout_keeps_its_promises_in_whatever_order_its_sets_delete(
        kind in kinds(), replicas in 1..6, posts in (0..3, 0..3),
        events in vec(prop_oneof![3 => work(), 1 => orders()], 0..80),
    ) {
        let mut life = Life::of(kind, replicas, posts);
        for event in events {
            life.happens(event);
        }
        life.ends();
    }

    /// #1078. Without a surge an update in place replaces no Machine. A rolling update replaces all old ones, and of the new
    /// of the new Machines only chosen ones or surplus go.
    #[test]
    fn exactly_the_machines_go_that_an_autoscaler_chose(
        kind in kinds(), (surge, unavailable) in (0..3, 1..3), rolls in option::of(0..30_usize),
        events in vec(prop_oneof![8 => work(), 1 => choices()], 0..60),
    ) {
        let mut life = Life::of(kind, 6, (if kind == Kind::Rolling { surge } else { 0 }, unavailable));
        let mut expected: BTreeSet<_> = life.world.living().into_iter().collect();
        let rolls = rolls.filter(|at| *at < events.len() && kind != Kind::Recreate);
        for (index, event) in events.into_iter().enumerate() {
            if rolls == Some(index) {
                life.happens(Event::Roll(1));
            }
            life.happens(event);
        }
        life.ends();
        let living: BTreeSet<_> = life.world.living().into_iter().collect();
        if kind == Kind::Rolling && rolls.is_some() {
            prop_assert!(living.is_disjoint(&life.chosen), "{:?} of {:#?}", life.chosen, life);
            prop_assert!(life.wasted.is_empty(), "{:?} of {:#?}", life.wasted, life);
        } else {
            expected.retain(|name| !life.chosen.contains(name));
            prop_assert_eq!(living, expected);
        }
    }
}

/// A strategy, the replicas, surge and unavailable, and what happens.
type Case<'a> = (Kind, i32, (i32, i32), &'a [Event]);

/// Hand-overs that other changes follow: a set and its Machine waited for each other; what was handed over counted nowhere; the set
/// of before, wanted again, kept a Machine that was being updated and deleted one that was available.
#[test]
fn an_update_in_place_that_is_changed_as_machines_are_handed_over_keeps_its_promises_and_ends() {
    use Event::{Agents, Drains, Lose, Pass, Roll, Scale, Select, SetsWork, Start};
    let well = Agents(true);
    let deadlock = [
        Scale(2),
        Pass,
        SetsWork,
        Roll(1),
        Pass,
        SetsWork,
        Start,
        Pass,
        well,
        Pass,
        Roll(2),
        Scale(0),
    ];
    let back = [Roll(1), Pass, SetsWork, Scale(2), Start, Pass, Pass, Drains, Roll(0), Pass];
    let again = [Roll(1), Pass, Scale(4), well, Pass, Roll(2), SetsWork, Scale(3)];
    let fewer = [Scale(2), Roll(1), Pass, Scale(1)];
    let more = [Roll(1), Pass, Scale(1), Select(5), Pass, well, Scale(2), Lose(5), Pass];
    let cases: [Case<'_>; 7] = [
        (Kind::Manual, 2, (0, 0), &more),
        (Kind::Auto, 4, (2, 0), &fewer),
        (Kind::Auto, 2, (0, 2), &again),
        (Kind::Auto, 0, (1, 0), &deadlock),
        (Kind::Auto, 5, (1, 0), &back),
        (Kind::Auto, 1, (0, 0), &[Roll(1), Pass, Scale(2), well, Pass, Roll(2)]),
        (Kind::Auto, 1, (0, 0), &[Roll(1), Pass, well, Scale(2), Pass, Roll(0), Pass]),
    ];
    for (kind, replicas, posts, events) in cases {
        let mut life = Life::of(kind, replicas, posts);
        for event in events {
            life.happens(*event);
        }
        life.ends();
    }
    let mut paused = Life::of(Kind::Auto, 4, (2, 0));
    for event in &fewer[..3] {
        paused.happens(*event);
    }
    paused.world.edit(&json!({ "spec": { "paused": true, "replicas": 1 } }));
    paused.pass();
    paused.world.edit(&json!({ "spec": { "paused": false } }));
    paused.ends();
}
