//! The table in words: in the author's manual and in the documentation, drawn from the data.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ostler_api::driver::{Certainty, ErrorCode, OperationKind};

use super::table::{MOST_LOSSES, Precondition, RetryAction, Rule, reasons, rule};

const CONTRACT: &str = "../../proto/ostler/driver/v1alpha1/operation.proto";
const PAGE: &str = "../../docs/retry-policy.md";
const BEGIN: &str = "// The table below is drawn from `server/lifecycle/src/retry/table.rs`.\n//\n";
const END: &str = "// End of the table.\n";
const STALE: &str = "stale: UPDATE_DOCS=1 cargo test -p ostler-lifecycle --lib";

fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn time(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds >= 60 { format!("{} min", seconds / 60) } else { format!("{seconds} s") }
}

fn between(first: Duration, max: Duration) -> String {
    format!("{} to {}", time(first), time(max))
}

/// The core's next step, worded as in the tables at the operations.
fn phrase(then: &RetryAction) -> String {
    match then {
        RetryAction::Backoff { first, max } => format!("tries again in {}", between(*first, *max)),
        RetryAction::OnClassChange => "waits until class or secret change".to_owned(),
        RetryAction::OnSecretChange { first, max } => {
            format!("tries again in {}, and at once when the secret changes", between(*first, *max))
        }
        RetryAction::WhenThereIsRoom => {
            "tries again after `retry_after`, else after `--resource-exhausted-retry` (10m)"
                .to_owned()
        }
        RetryAction::GiveUp(_) => "the machine has failed".to_owned(),
        RetryAction::Accept => "as good as a result".to_owned(),
        RetryAction::Refuse(_) => {
            "leaves the running instance as it is until class or driver change".to_owned()
        }
        RetryAction::LookAgain { first, max } => {
            format!("finds or makes it, in {}", between(*first, *max))
        }
        RetryAction::MakeAgain { first, max } => format!(
            "makes it again, at once the first time, then in {}; a machine has failed the {MOST_LOSSES}th time",
            between(*first, *max)
        ),
        RetryAction::Absent => "takes it as absent: creates, or goes on with a deletion".to_owned(),
        RetryAction::NotInitialized => "InitializeMachine".to_owned(),
        RetryAction::GoOn => "goes on without".to_owned(),
    }
}

fn waits(then: &RetryAction) -> bool {
    !matches!(
        then,
        RetryAction::Accept | RetryAction::Absent | RetryAction::NotInitialized | RetryAction::GoOn
    )
}

fn name(code: ErrorCode) -> String {
    let mut name = String::new();
    for letter in code.name().chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

fn plain(kind: OperationKind, code: ErrorCode, reason: &str) -> Rule {
    rule(kind, code, reason, Certainty::NotApplied)
}

/// Code, operations, action, and name of the wait. Operations with the same rule share a row.
fn rows(code: ErrorCode, reason: &str) -> Vec<(Vec<OperationKind>, Rule)> {
    let mut rows: Vec<(Vec<OperationKind>, Rule)> = Vec::new();
    for kind in OperationKind::ALL {
        let rule = plain(kind, code, reason);
        if !reason.is_empty() && rule == plain(kind, code, "") {
            continue;
        }
        match rows.iter_mut().find(|(_, other)| *other == rule) {
            Some((kinds, _)) => kinds.push(kind),
            None => rows.push((vec![kind], rule)),
        }
    }
    rows.sort_by_key(|(kinds, _)| kinds.len());
    rows
}

fn table() -> String {
    let mut text = "| code | operation | what the core does next | the machine waits for |\n|---|---|---|---|\n".to_owned();
    let mut write = |code: &str, reason: &str, rows: Vec<(Vec<OperationKind>, Rule)>| {
        let several = rows.len() > 1;
        let last = rows.len().saturating_sub(1);
        for (index, (kinds, rule)) in rows.into_iter().enumerate() {
            let kinds = match (index == last && reason.is_empty(), several) {
                (true, true) => "others".to_owned(),
                (true, false) => "any".to_owned(),
                (false, _) if kinds.len() == OperationKind::ALL.len() => "any".to_owned(),
                (false, _) => kinds.iter().map(|it| it.name()).collect::<Vec<_>>().join(", "),
            };
            let wait = if waits(&rule.then) { rule.reason.as_str() } else { "" };
            let _infallible =
                writeln!(text, "| {code}{reason} | {kinds} | {} | {wait} |", phrase(&rule.then));
        }
    };
    for code in ErrorCode::ALL {
        for (reason, codes) in reasons() {
            if codes.contains(&code) {
                write(&name(code), &format!(" `{reason}`"), rows(code, reason));
            }
        }
        write(&name(code), "", rows(code, ""));
    }
    text
}

fn certainties() -> String {
    let mut text = "| certainty of a failed mutation | before that |\n|---|---|\n".to_owned();
    for (certainty, name) in [
        (Certainty::NotApplied, "NOT_APPLIED"),
        (Certainty::Partial, "PARTIAL"),
        (Certainty::Unknown, "UNKNOWN, or not set"),
    ] {
        let first = rule(OperationKind::CreateMachine, ErrorCode::Internal, "", certainty).first;
        let what = match first {
            Precondition::Nothing => "nothing: the same request is safe",
            Precondition::Checkpoint => {
                "nothing: the same request finishes what was begun, and brings the checkpoint"
            }
            Precondition::Read => {
                "GetMachineStatus, or GetPoolStatus, whatever the code: nothing is repeated blindly"
            }
        };
        let _infallible = writeln!(text, "| {name} | {what} |");
    }
    text
}

fn page() -> String {
    format!(
        "# What follows from a failure, and the states of a Machine\n\n\
         *For operators and driver authors.* The table says what the core does after each failure. [How a failed Machine is\n\
         replaced](#certainty-and-replacement) and the [states of a Machine](#states-of-a-machine) follow.\n\n\
         \"5 s to 3 min\" means: the core waits 5 s, and twice as long after every further failure, up to 3 min. `retry_after` of\n\
         the driver, an hour at most, replaces such a wait, and a change of the class or of its secret ends it. After INTERNAL or\n\
         UNIMPLEMENTED a new process of the driver ends it too, once for each process. A pool also tries again when\n\
         `failureDomains`, version or bootstrap data change and, if the driver refused a request, `replicas`. Only the core\n\
         retries a mutation; \"Retries\" in `driver.proto` says which calls a driver may repeat. The last column is\n\
         `status.waitingFor.reason` of the Machine (column `WAITING` of `kubectl get machines`).\n\n\
         Codes come from the driver. The core itself makes the `CORE_*` words: no driver answered, or the core knows more than\n\
         the answer says. All other words are values of `MachineErrorReason` in the contract.\n\n\
         {}\n\
         ## Certainty and replacement\n\n\
         A failure also says what it left behind:\n\n{}\n\
         A Machine whose creation timeout passes is Failed whatever it waits for, and a deletion begins whatever the Machine\n\
         waits for: both ask the driver first what is there.\n\n\
         A MachineSet or a pool replaces a Failed Machine immediately if it had run for 10 min. Otherwise the pauses after\n\
         `CORE_LOST` apply, as long as Machines fail in turn: `status.replacementRetry` counts them until a new Machine has run\n\
         for 10 min. A Machine that is deleted by hand is replaced immediately.\n\n\
         ## States of a Machine\n\n\
         Every pass of a debug build checks itself against this diagram (`server/lifecycle/src/machine/diagram.rs`).\n\n\
         ```mermaid\n{}```\n",
        table(),
        certainties(),
        crate::machine::mermaid()
    )
}

fn block() -> String {
    let text = format!("{}\n{}", table(), certainties());
    let lines = text.lines().map(|line| format!("// {line}").trim_end().to_owned() + "\n");
    format!("{BEGIN}{}{END}", lines.collect::<String>())
}

/// The file is replaced as a whole: another test may be reading it.
fn update(path: &str, text: &str) -> String {
    let stored = || std::fs::read_to_string(file(path)).unwrap_or_default();
    if std::env::var_os("UPDATE_DOCS").is_some() && stored() != text {
        let part = file(path).with_extension("part");
        std::fs::write(&part, text).unwrap();
        std::fs::rename(&part, file(path)).unwrap();
    }
    stored()
}

#[test]
fn the_page_and_the_table_in_the_contract_are_fresh() {
    let page = page();
    assert!(update(PAGE, &page) == page, "{PAGE} is {STALE}");
    let stored = std::fs::read_to_string(file(CONTRACT)).unwrap();
    let (before, rest) = stored.split_once(BEGIN).expect("the first line of the table");
    let (_, after) = rest.split_once(END).expect("the last line of the table");
    let contract = format!("{before}{}{after}", block());
    assert!(update(CONTRACT, &contract) == contract, "{CONTRACT} is {STALE}");
}

/// Rows of the table in the comment of an operation's request: code, and what the core does next.
fn rows_at(kind: OperationKind, contract: &str) -> Vec<(String, String)> {
    let message = format!("\nmessage {}Request ", kind.name());
    let (before, _) = contract.split_once(&message).expect("the message of the operation");
    let comment = before.rsplit("\n\n").next().unwrap_or_default();
    let cells = |line: &str| -> Option<(String, String)> {
        let mut cells = line.strip_prefix("// |")?.trim_end_matches('|').split('|').skip(1);
        Some((cells.next()?.trim().to_owned(), cells.next()?.trim().to_owned()))
    };
    comment.lines().filter_map(cells).collect()
}

#[test]
fn what_the_tables_at_the_operations_promise_is_what_the_table_says() {
    let contract = std::fs::read_to_string(file(CONTRACT)).unwrap();
    let mut seen = 0;
    for kind in OperationKind::ALL {
        let rows = rows_at(kind, &contract);
        assert!(!rows.is_empty(), "{kind} has no table");
        for (answer, next) in rows {
            let words: Vec<&str> =
                answer.split(|c: char| !c.is_ascii_uppercase() && c != '_').collect();
            let reason = reasons().map(|(reason, _)| reason).find(|it| words.contains(it));
            for code in ErrorCode::ALL.into_iter().filter(|it| words.contains(&name(*it).as_str()))
            {
                // "UNKNOWN" in these tables is the certainty.
                if code == ErrorCode::Unknown || answer.contains("not UNINITIALIZED") {
                    continue;
                }
                let expected = phrase(&plain(kind, code, reason.unwrap_or_default()).then);
                assert!(next.contains(&expected), "{kind}, {answer}: {next:?} lacks {expected:?}");
                seen += 1;
            }
        }
    }
    assert!(seen > 15, "only {seen} rows were compared");
}
