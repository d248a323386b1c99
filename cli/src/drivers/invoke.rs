//! `ostler drivers invoke`: one operation by hand.

use anyhow::{Context as _, bail};
use ostler_proto::json;
use ostler_proto::v1alpha1::{InvokeRequest, InvokeResponse, Operation, invoke_response};
use serde_json::{Map, Value, json};

use super::client::{Client, told};
use super::{Output, print};
use crate::log;

/// An operation, and the driver that gets it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ostler drivers invoke fake.ostler.dev getMachineStatus --machine fake-1
  ostler drivers invoke fake.ostler.dev listMachines --class fake
  ostler drivers invoke fake.ostler.dev getPoolStatus --pool workers
  ostler drivers invoke fake.ostler.dev deleteMachine --machine fake-1 --dry-run
  ostler drivers invoke fake.ostler.dev deleteMachine --target-uid UID \\
    --class fake --allow-mutation
  ostler drivers invoke fake.ostler.dev validateClass --class fake

The core fills in what a Machine or pool that it knows tells: UID, class, provider id. A mutation waits for \
no other one: while the core has one under way on the same target, it is refused.")]
pub(super) struct Args {
    /// The provider whose active driver is asked, or the id of its session
    #[arg(value_name = "PROVIDER|SESSION")]
    to: String,
    /// The operation by its JSON name, e.g. getMachineStatus
    operation: String,
    /// The Machine of the operation
    #[arg(long, value_name = "NAME", conflicts_with = "target_uid")]
    machine: Option<String>,
    /// The MachinePool of the operation
    #[arg(long, value_name = "NAME", conflicts_with_all = ["machine", "target_uid"])]
    pool: Option<String>,
    /// The UID of a Machine or pool that is gone, for what may be left of it
    #[arg(long, value_name = "UID")]
    target_uid: Option<String>,
    /// The class, if it is not that of the Machine or pool
    #[arg(long, value_name = "NAME")]
    class: Option<String>,
    /// The namespace of all; that of the core by default
    #[arg(long, value_name = "NAME", default_value = "")]
    namespace: String,
    /// The fields of the operation, as JSON
    #[arg(long, value_name = "JSON", default_value = "{}")]
    set: String,
    /// How long the driver may take, e.g. 30s; by default what the contract says
    #[arg(long, value_name = "DURATION")]
    timeout: Option<String>,
    /// Needed for operations that change something
    #[arg(long)]
    allow_mutation: bool,
    /// Only show what would be sent
    #[arg(long)]
    dry_run: bool,
}

pub(super) async fn run(mut client: Client, args: Args, output: Output) -> anyhow::Result<()> {
    let request = request(&args)?;
    let answer = client.invoke(request).await.map_err(told)?.into_inner();
    if output == Output::Json {
        print(&json::to_json(&answer));
        return Ok(());
    }
    report(&answer)
}

fn request(args: &Args) -> anyhow::Result<InvokeRequest> {
    let arms = json::arms::<Operation>("request");
    let operation = arms.iter().find(|arm| arm.eq_ignore_ascii_case(&args.operation));
    let Some(operation) = operation else {
        bail!("there is no operation `{}`; there are {}", args.operation, arms.join(", "));
    };
    let set: Value = serde_json::from_str(&args.set)
        .with_context(|| format!("--set {} is not JSON", args.set))?;
    if !set.is_object() {
        bail!("--set must be a JSON object, e.g. '{{\"providerId\":\"…\"}}'");
    }
    let namespace = args.namespace.as_str();
    let mut fields = Map::new();
    fields.insert(operation.clone(), set);
    let name = args.machine.as_ref().or(args.pool.as_ref());
    if name.is_some() || args.target_uid.is_some() {
        let target = json!({
            "namespace": namespace,
            "name": name.map(String::as_str).unwrap_or_default(),
            "uid": args.target_uid.as_deref().unwrap_or_default(),
        });
        fields.insert("target".to_owned(), target);
    }
    if let Some(class) = &args.class {
        let class = json!({ "namespace": namespace, "name": class });
        fields.insert("machineClass".to_owned(), class);
    }
    if let Some(timeout) = &args.timeout {
        fields.insert("timeout".to_owned(), json!(timeout));
    }
    let to = if uuid::Uuid::try_parse(&args.to).is_ok() { "sessionId" } else { "provider" };
    let whole = json!({
        "session": { to: args.to },
        "operation": fields,
        "allowMutation": args.allow_mutation,
        "dryRun": args.dry_run,
    });
    json::from_json(&whole).with_context(|| format!("{operation} cannot be asked like this"))
}

/// The verdict on stdout; a refusal of the driver is an error of the command too.
fn report(answer: &InvokeResponse) -> anyhow::Result<()> {
    match &answer.outcome {
        None => {
            log::note("nothing was sent; this is what would be:");
            print(&answer.sent.as_ref().map(json::to_json).unwrap_or_default());
            Ok(())
        }
        Some(invoke_response::Outcome::Result(result)) => {
            // The name of the arm says nothing that was not asked for.
            let shown = json::to_json(result);
            let arms = shown.as_object().and_then(|arms| arms.values().next().cloned());
            print(&arms.unwrap_or(shown));
            Ok(())
        }
        Some(invoke_response::Outcome::Error(error)) => {
            print(&json::to_json(error));
            let code = error.code().as_str_name().trim_start_matches("MACHINE_ERROR_CODE_");
            bail!("the driver answered {code}: {}", error.message)
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use ostler_proto::v1alpha1::operation::Request;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn args(line: &[&str]) -> Args {
        Line::try_parse_from(std::iter::once("invoke").chain(line.iter().copied())).unwrap().args
    }

    #[test]
    fn a_line_becomes_the_same_request_that_grpcurl_would_send() {
        let request = request(&args(&[
            "fake.ostler.dev",
            "deleteMachine",
            "--machine",
            "fake-1",
            "--class",
            "other",
            "--set",
            r#"{"providerId":"fake:///1"}"#,
            "--timeout",
            "30s",
            "--allow-mutation",
        ]))
        .unwrap();
        assert_eq!(request.session.unwrap().provider, "fake.ostler.dev");
        assert!(request.allow_mutation && !request.dry_run);
        let operation = request.operation.unwrap();
        assert_eq!(operation.target.unwrap().name, "fake-1");
        assert_eq!(operation.machine_class.unwrap().name, "other");
        assert_eq!(operation.timeout.unwrap().seconds, 30);
        let Some(Request::DeleteMachine(delete)) = operation.request else { panic!() };
        assert_eq!(delete.provider_id, "fake:///1");
    }

    #[test]
    fn a_pool_is_a_target_like_a_machine() {
        let request = request(&args(&["p", "getPoolStatus", "--pool", "workers"])).unwrap();
        assert_eq!(request.operation.unwrap().target.unwrap().name, "workers");
    }

    #[test]
    fn a_session_goes_by_its_id() {
        let id = "0e9f4a86-2d2b-4a54-9d1c-7d3d1a5e6f70";
        let request = request(&args(&[id, "listMachines"])).unwrap();
        assert_eq!(request.session.unwrap().session_id, id);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let said = |line: &[&str]| format!("{:#}", request(&args(line)).unwrap_err());
        let operation = said(&["p", "rebootMachine"]);
        assert!(operation.contains("`rebootMachine`") && operation.contains("getMachineStatus"));
        assert!(said(&["p", "listMachines", "--set", "x"]).contains("not JSON"));
        assert!(said(&["p", "listMachines", "--set", "[]"]).contains("object"));
        let field = said(&["p", "getMachineStatus", "--set", r#"{"provider":"x"}"#]);
        assert!(field.contains("provider"), "{field}");
    }
}
