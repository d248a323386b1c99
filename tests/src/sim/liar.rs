//! A driver that claims in its Hello to hold operations that no core sent, and goes on claiming for a while.
//!
//! It has a token of a provider and knows what a driver can learn, and more: the Machines, their UIDs,
//! what is written down of their operations. Nothing of that may be worth anything: no verdict KEEP, no
//! class of another provider, no secret.

use std::sync::Arc;
use std::time::Duration;

use ostler_api::driver::OperationKind as Kind;
use ostler_proto::v1alpha1::{HeldOperation, HeldState, Verdict};
use tokio::time::{Instant, sleep, timeout};

use super::dice::Dice;
use super::users::provider_of;
use super::world::{PROVIDERS, Surroundings, TOKENS};
use crate::hostile::{Hostile, claim, hello};

/// How long it stays.
const STAYS: Duration = Duration::from_secs(20);
/// How long the driver waits for a leader.
const PATIENCE: Duration = Duration::from_secs(15);

/// Sends a lying driver of `provider` to the leading core.
pub fn send(around: &Arc<Surroundings>, provider: usize, dice: Dice) {
    let around = Arc::clone(around);
    tokio::spawn(async move {
        let name = format!("liar-{provider}");
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            let visit = visit(&around, &name, provider, &dice);
            if timeout(STAYS + PATIENCE, visit).await.is_ok_and(|visited| visited.is_some()) {
                break;
            }
            sleep(Duration::from_secs(1)).await;
        }
        around.network.gone(&name);
    });
}

/// `None`: no core that leads was met.
async fn visit(around: &Surroundings, name: &str, provider: usize, dice: &Dice) -> Option<()> {
    let trace = &around.trace;
    let channel = around.network.channel(name).await?;
    let claims = claims(around, provider, dice);
    let instance = format!("00000000-0000-4000-8000-{:012x}", dice.next() >> 16);
    let hello = hello(PROVIDERS[provider], instance, claims.clone());
    let mut liar = Hostile::greet(channel, TOKENS[provider], hello).await?;
    trace.note(name, format_args!("claims {}", claims.len()));
    trace.count("claims of a liar".to_owned());
    for verdict in &liar.welcome.verdicts {
        if verdict.verdict() == Verdict::Keep {
            let id = &verdict.operation_id;
            trace.violation(format_args!("INV-1: {name} is believed to hold {id}"));
        }
    }
    for claim in &claims {
        let Some(class) = claim.machine_class.clone() else { continue };
        // The class of its own provider is no secret while the honest driver, which has the same token, works.
        let foreign = provider_of(&class.name) != Some(provider);
        let class_given = liar.gets_class(class.clone()).await && foreign;
        if class_given || liar.gets_secret(class, &claim.operation_id).await {
            let id = &claim.operation_id;
            trace.violation(format_args!("INV-7: {name} gets what belongs to {id}"));
        }
    }
    for claim in &claims {
        liar.complete(claim).await;
    }
    liar.stay(STAYS).await;
    Some(())
}

/// Something for each Machine: of another provider all that is written down of its operation, of its
/// own provider the same with something wrong in it, and of each what was never intended.
fn claims(around: &Surroundings, provider: usize, dice: &Dice) -> Vec<HeldOperation> {
    let mut claims = Vec::new();
    for (number, life) in around.oracle.lives().into_values().enumerate() {
        let machine = &life.machine;
        let state = dice.pick(&[HeldState::Running, HeldState::Completed]);
        let kind = dice.pick(&[Kind::CreateMachine, Kind::DeleteMachine, Kind::UpdateMachine]);
        let key = format!("{}:{}", machine.uid(), kind.letter());
        let made_up = claim(machine, &format!("lie-{number}"), (kind, &key), state);
        let intent = machine.intent();
        let Some((intent, known)) =
            intent.and_then(|it| it.operation_kind().map(|kind| (it, kind)))
        else {
            claims.push(made_up);
            continue;
        };
        let own = provider_of(&machine.spec.class.name) == Some(provider);
        let (id, key) = (intent.id.as_str(), intent.idempotency_key.as_str());
        claims.push(match (own, dice.between(0, 3)) {
            (_, 0) => made_up,
            (false, _) => claim(machine, id, (known, key), state),
            (true, 1) => claim(machine, id, (another(known), key), state),
            (true, _) => claim(machine, id, (known, "another-key"), state),
        });
    }
    claims
}

fn another(kind: Kind) -> Kind {
    if kind == Kind::DeleteMachine { Kind::CreateMachine } else { Kind::DeleteMachine }
}
