//! `ostler drivers orphans`: instances and groups that no machine or pool stands for, and the word that they may go.

use std::collections::BTreeMap;

use anyhow::bail;
use ostler_proto::json;
use ostler_proto::v1alpha1::{AcceptOrphansRequest, ListOrphansRequest, ListOrphansResponse};

use super::client::{Client, told};
use super::{Output, note_follower, print, show};
use crate::log;

/// Which orphans to show, and whether the core may delete them.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ostler drivers orphans                    all, and what becomes of them
  ostler drivers orphans fake.ostler.dev    those of one provider
  ostler drivers orphans --accept           they may be deleted

An orphan is an instance with the cluster id of this cluster that no Machine stands for, or a group that no \
MachinePool stands for, with all its instances. Name and uid are those that its tags say. Two scans must show it, \
then it is deleted; one with a previous cluster id, or without tags of ours, is only reported, see \
--delete-untagged-orphans of the core. After a restore, and whenever the API may not be the one that made the instances, orphans \
are only reported: what was made after the backup is an orphan to it. See docs/backup.md for how to keep one.")]
pub(super) struct Args {
    /// Only orphans of this provider
    #[arg(conflicts_with = "accept")]
    provider: Option<String>,
    /// Have all that are shown deleted, and orphans again from now on
    #[arg(long)]
    accept: bool,
}

pub(super) async fn run(mut client: Client, args: Args, output: Output) -> anyhow::Result<()> {
    let provider = args.provider.unwrap_or_default();
    // All, if they are to be accepted: what is left out was not seen.
    let limit = if args.accept { u32::MAX } else { 0 };
    let wanted = ListOrphansRequest { provider, limit };
    let answer = client.list_orphans(wanted).await.map_err(told)?.into_inner();
    match output {
        Output::Json => print(&json::to_json(&answer)),
        Output::Table => tell(&answer),
    }
    if !args.accept {
        return Ok(());
    }
    refuse_unseen(&answer)?;
    let Some(hold) = answer.hold else {
        bail!("there is nothing to accept: orphans are not held");
    };
    let accepted = client.accept_orphans(AcceptOrphansRequest { since: hold.since }).await;
    let accepted = accepted.map_err(told)?.into_inner();
    match output {
        Output::Json => print(&json::to_json(&accepted)),
        Output::Table if accepted.orphans == 0 => {
            log::say("accepted: orphans are deleted again; there are none now");
        }
        Output::Table => log::say(format_args!(
            "accepted: {} are checked once more and then deleted",
            accepted.orphans
        )),
    }
    Ok(())
}

/// Only what was shown may be accepted.
fn refuse_unseen(answer: &ListOrphansResponse) -> anyhow::Result<()> {
    if !answer.not_listed.is_empty() {
        bail!(
            "not accepted: the instances and groups of {} are not all listed yet, so you have not seen what would be deleted; `ostler drivers ls` shows whether its driver is connected, an event of its class says why it cannot list, and without a class nothing is listed: apply one",
            answer.not_listed.join(", ")
        );
    }
    if answer.left_out > 0 {
        bail!(
            "not accepted: {} more orphans are not shown, so you have not seen what would be deleted",
            answer.left_out
        );
    }
    Ok(())
}

fn tell(answer: &ListOrphansResponse) {
    note_follower(answer.core.as_ref());
    log::page(crate::table::render(&show::orphans(&answer.orphans)));
    for line in notes(answer) {
        log::note(line);
    }
}

/// Notes that explain the table.
fn notes(answer: &ListOrphansResponse) -> Vec<String> {
    let mut notes = Vec::new();
    if answer.left_out > 0 {
        notes.push(format!("and {} more; name a provider to see fewer", answer.left_out));
    }
    if let Some(hold) = &answer.hold {
        let since =
            if hold.since.is_empty() { String::new() } else { format!(" since {}", hold.since) };
        notes.push(format!(
            "orphans are only reported{since}: {}. --accept has them deleted",
            hold.reason
        ));
    }
    let held = answer.hold.is_some() || answer.report_only;
    let mut kept: BTreeMap<&str, usize> = BTreeMap::new();
    for orphan in answer.orphans.iter().filter(|it| !held && !it.kept.is_empty()) {
        *kept.entry(&orphan.kept).or_default() += 1;
    }
    notes.extend(kept.into_iter().map(|(why, count)| format!("{count} kept {why}")));
    if answer.report_only {
        let flag = "--machine-safety-orphan-vms-mode=report";
        notes.push(format!("the core runs with {flag}: it deletes no orphan"));
    }
    if !answer.not_listed.is_empty() {
        let providers = answer.not_listed.join(", ");
        notes.push(format!("not listed yet, so not shown: instances and groups of {providers}"));
    }
    notes
}

#[cfg(test)]
mod tests {
    use ostler_proto::v1alpha1::{OrphanHold, OrphanInfo};

    use super::*;

    #[test]
    fn what_is_not_shown_is_not_accepted() {
        let seen = ListOrphansResponse::default();
        assert!(refuse_unseen(&seen).is_ok());
        let more = ListOrphansResponse { left_out: 7, ..seen.clone() };
        assert!(refuse_unseen(&more).unwrap_err().to_string().contains("7 more orphans"));
        let not_listed = vec!["a.example.com".to_owned(), "b.example.com".to_owned()];
        let unlisted = ListOrphansResponse { not_listed, ..seen };
        let said = refuse_unseen(&unlisted).unwrap_err().to_string();
        assert!(said.contains("a.example.com, b.example.com are not"), "{said}");
    }

    #[test]
    fn the_notes_say_why_orphans_are_kept_and_what_is_not_shown() {
        assert_eq!(notes(&ListOrphansResponse::default()), Vec::<String>::new());
        let bare = OrphanInfo { kept: "because it is bare".to_owned(), ..OrphanInfo::default() };
        let orphans = vec![bare.clone(), bare, OrphanInfo::default()];
        let answer = ListOrphansResponse { orphans, ..ListOrphansResponse::default() };
        assert_eq!(notes(&answer), ["2 kept because it is bare"]);
        let hold = OrphanHold { since: "noon".to_owned(), reason: "restored".to_owned() };
        let answer = ListOrphansResponse {
            hold: Some(hold),
            not_listed: vec!["aws.example.com".to_owned()],
            ..ListOrphansResponse::default()
        };
        let said = notes(&answer).join("\n");
        for part in ["since noon: restored", "--accept", "groups of aws.example.com"] {
            assert!(said.contains(part), "{said}");
        }
    }
}
