//! The list of checks, for people.

use std::fmt::Write;

use crate::adapters::is_of_the_stream;
use crate::check::{Gate, Needs, Tier};
use crate::checks;

/// What there is to know of a check without running it.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// `group/name`.
    pub name: &'static str,
    /// How binding the rule is.
    pub tier: Tier,
    /// The rule.
    pub sentence: &'static str,
    /// What goes wrong when it does not hold.
    pub why: &'static str,
    /// It is about unary drivers alone.
    pub unary: bool,
    /// It needs the suite between driver and cloud.
    pub faults: bool,
}

/// All checks, in the order in which they run.
pub fn catalogue() -> Vec<Entry> {
    let entry = |check: crate::check::Check| Entry {
        name: check.name,
        tier: check.tier,
        sentence: check.sentence,
        why: check.why,
        unary: check.needs == Needs::Adapter,
        faults: check.needs == Needs::Faults,
    };
    checks::all().into_iter().map(entry).collect()
}

/// The table of the README.
pub fn markdown() -> String {
    let mut text = String::from(
        "| check | tier | the driver | why it matters | needs |\n|---|---|---|---|---|\n",
    );
    for check in checks::all() {
        let mut needs: Vec<String> = check.gates.iter().map(|gate| gate_word(*gate)).collect();
        match check.needs {
            Needs::Process => needs.push("`--driver-cmd`".to_owned()),
            Needs::Adapter => needs.push("`--unary`".to_owned()),
            Needs::Cloud => needs.push("`break`".to_owned()),
            Needs::Faults => needs.push("`--cloud`".to_owned()),
            Needs::Session | Needs::Link => {}
        }
        if is_of_the_stream(check.name) {
            needs.push("stream".to_owned());
        }
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} | {} |",
            check.name,
            check.tier.word(),
            check.sentence,
            check.why,
            needs.join(", ")
        );
    }
    text
}

fn gate_word(gate: Gate) -> String {
    match gate {
        Gate::Creates => "may create".to_owned(),
        Gate::Capability(capability) => {
            capability.as_str_name().trim_start_matches("DRIVER_CAPABILITY_").to_owned()
        }
        Gate::Kind(kind) => kind.as_str_name().trim_start_matches("OPERATION_KIND_").to_owned(),
        Gate::Tags => "no IDENTITY_BY_NAME".to_owned(),
        Gate::Secret => "`--secret`".to_owned(),
        Gate::AltClass => "`--alt-class`".to_owned(),
        Gate::BadClass => "`--bad-class`".to_owned(),
        Gate::BadSecret => "`--bad-secret`".to_owned(),
        Gate::HotClass => "`--hot-class`".to_owned(),
        Gate::McmClass => "`--mcm-class`".to_owned(),
        Gate::Many => "`--many`".to_owned(),
        Gate::Probe => "`--probe-cmd`".to_owned(),
    }
}
