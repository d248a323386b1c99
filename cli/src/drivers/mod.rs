//! `ostler drivers`: connected drivers, operations under way, and one operation by hand.
//!
//! Everything here asks the admin listener of a running core; see `docs/debugging.md`.

mod client;
mod invoke;
mod orphans;
pub(crate) mod show;
mod tail;

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};
use ostler_dial::Trusted;
use ostler_proto::json;
use ostler_proto::v1alpha1::{
    CloseSessionRequest, CoreState, DrainSessionRequest, ListOperationsRequest,
    ListSessionsRequest, SessionSelector,
};

use self::client::{Admin, Client, told};
pub(crate) use self::client::{AdminArgs, Known};
use crate::cluster::Place;
use crate::data_dir::own_uid;
use crate::log;

/// The core to ask, and the question.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ostler drivers ls                       who is connected
  ostler drivers ops                      what is under way
  ostler drivers invoke fake.ostler.dev getMachineStatus --machine fake-1
  ostler drivers orphans                  instances that nothing stands for
  ostler drivers tail                     frames as they pass
  ostler drivers drain fake.ostler.dev    ask its driver to dial again
  ostler drivers close fake.ostler.dev    cut the connection

Without --admin they ask the `ostler up` whose kubeconfig is $KUBECONFIG, else that of this folder.")]
pub(crate) struct Args {
    /// The admin listener of the core: unix:PATH or an address on loopback
    #[arg(long, global = true, value_name = "ENDPOINT", env = "OSTLER_ADMIN")]
    admin: Option<String>,
    /// The token of an admin listener on loopback (its `--admin-token-file`)
    #[arg(long, global = true, value_name = "FILE", env = "OSTLER_ADMIN_TOKEN_FILE")]
    admin_token_file: Option<PathBuf>,
    /// User id that the core runs as on this host, if it is not yours: no other user is shown the token
    #[arg(long, global = true, value_name = "UID", env = "OSTLER_CORE_UID")]
    core_uid: Option<u32>,
    /// How to print
    #[arg(long, short, global = true, value_enum, default_value_t = Output::Table)]
    output: Output,
    #[command(subcommand)]
    command: Command,
}

/// How answers are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people.
    Table,
    /// The answer of the core, as grpcurl prints it.
    Json,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the sessions: which drivers are connected, and their state
    ///
    /// Example: ostler drivers ls
    Ls {
        /// Only the sessions of this provider
        provider: Option<String>,
    },
    /// List operations that are queued, under way, or not recorded yet
    ///
    /// Example: ostler drivers ops --target fake-1
    Ops {
        /// Only sessions of this provider
        provider: Option<String>,
        /// Only those of the target with this name or UID
        #[arg(long)]
        target: Option<String>,
        /// Only operations of this session
        #[arg(long)]
        session: Option<String>,
    },
    /// Send one operation to a driver, and print the answer
    Invoke(invoke::Args),
    /// List instances without a Machine; after a restore, allow their deletion with --accept
    Orphans(orphans::Args),
    /// Show the frames between core and drivers as they pass, without user data and secrets
    Tail(tail::Args),
    /// Ask the driver of a session to reconnect; a ready standby takes over immediately
    ///
    /// Example: ostler drivers drain fake.ostler.dev
    Drain(Which),
    /// End a session immediately; its driver reconnects and resumes
    ///
    /// Example: ostler drivers close fake.ostler.dev
    Close(Which),
}

/// Names a session.
#[derive(Debug, clap::Args)]
struct Which {
    /// A session, as `ls` prints it, or a provider: its active session
    #[arg(value_name = "SESSION|PROVIDER")]
    session: String,
    /// Why, for the log of the core
    #[arg(long, default_value = "")]
    reason: String,
}

impl Which {
    /// Session ids are UUIDs, and no provider looks like one.
    fn selector(&self) -> SessionSelector {
        if uuid::Uuid::try_parse(&self.session).is_ok() {
            SessionSelector { session_id: self.session.clone(), ..SessionSelector::default() }
        } else {
            SessionSelector { provider: self.session.clone(), ..SessionSelector::default() }
        }
    }
}

/// Asks the core, and prints its answer.
///
/// # Errors
/// There is no core, it refused, or the driver did.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let trusted = args.core_uid.map_or_else(|| Trusted::Own(own_uid()), Trusted::Given);
    let home = || Place::default().home().unwrap_or_else(|| "./.ostler".into());
    let endpoint = args.admin.unwrap_or_else(|| format!("unix:{}/admin.sock", home().display()));
    let admin = Admin { endpoint, token_file: args.admin_token_file, trusted };
    let client = admin.connect().await?;
    match args.command {
        Command::Ls { provider } => ls(client, provider, args.output).await,
        Command::Ops { provider, target, session } => {
            let wanted = ListOperationsRequest {
                provider: provider.unwrap_or_default(),
                target: target.unwrap_or_default(),
                session_id: session.unwrap_or_default(),
                limit: 0,
            };
            ops(client, wanted, args.output).await
        }
        Command::Invoke(wanted) => invoke::run(client, wanted, args.output).await,
        Command::Orphans(wanted) => orphans::run(client, wanted, args.output).await,
        Command::Tail(wanted) => tail::run(client, wanted, args.output).await,
        Command::Drain(which) => drain(client, which, args.output).await,
        Command::Close(which) => close(client, which, args.output).await,
    }
}

async fn ls(mut client: Client, provider: Option<String>, output: Output) -> anyhow::Result<()> {
    let request = ListSessionsRequest { provider: provider.unwrap_or_default() };
    let answer = client.list_sessions(request).await.map_err(told)?.into_inner();
    if output == Output::Json {
        print(&json::to_json(&answer));
        return Ok(());
    }
    note_follower(answer.core.as_ref());
    log::page(crate::table::render(&show::sessions(&answer.sessions)));
    Ok(())
}

async fn ops(
    mut client: Client,
    wanted: ListOperationsRequest,
    output: Output,
) -> anyhow::Result<()> {
    let answer = client.list_operations(wanted).await.map_err(told)?.into_inner();
    if output == Output::Json {
        print(&json::to_json(&answer));
        return Ok(());
    }
    note_follower(answer.core.as_ref());
    log::page(crate::table::render(&show::operations(&answer.operations)));
    if answer.left_out > 0 {
        log::note(format_args!("and {} more; --target and --session narrow it", answer.left_out));
    }
    Ok(())
}

async fn drain(mut client: Client, which: Which, output: Output) -> anyhow::Result<()> {
    let session = Some(which.selector());
    let request = DrainSessionRequest { session, reason: which.reason };
    let answer = client.drain_session(request).await.map_err(told)?.into_inner();
    match output {
        Output::Json => print(&json::to_json(&answer)),
        Output::Table => log::say(format_args!(
            "session {} drains; its driver was asked to dial again",
            answer.session_id
        )),
    }
    Ok(())
}

async fn close(mut client: Client, which: Which, output: Output) -> anyhow::Result<()> {
    let session = Some(which.selector());
    let request = CloseSessionRequest { session, reason: which.reason };
    let answer = client.close_session(request).await.map_err(told)?.into_inner();
    match output {
        Output::Json => print(&json::to_json(&answer)),
        Output::Table => log::say(format_args!("closed session {}", answer.session_id)),
    }
    Ok(())
}

fn print(value: &serde_json::Value) {
    log::page(format_args!("{value:#}"));
}

/// An empty list of a core that does not lead says nothing of the drivers.
fn note_follower(core: Option<&CoreState>) {
    if let Some(core) = core.filter(|core| !core.leading) {
        log::note(format_args!(
            "core {} does not lead, so no driver is connected to it; ask the one that does",
            core.instance
        ));
    }
}
