//! Frames that come twice.

use ostler_proto::v1alpha1 as proto;
use proto::RoleKind;
use proto::register_response::Frame;
use uuid::Uuid;

use crate::bench::Bench;
use crate::core::session::heartbeat;
use crate::machine::NAMESPACE;
use crate::outcome::{Outcome, ensure};

pub(super) async fn duplicate_frames(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let machine = bench.slow_machine();
    let asked = driver.start(machine.create())?;
    bench.step("sent the same operation twice more without a wait");
    for delivery in [2, 3] {
        let operation = proto::Operation { delivery, ..asked.operation.clone() };
        bench.harness.core().dispatch(&driver.session, &operation)?;
    }
    let made = asked.settled().await?.machine()?;
    for frame in unsolicited(bench, &asked.operation.operation_id) {
        driver.session.send(frame.clone())?;
        driver.session.send(frame)?;
    }
    bench.step("sent heartbeats, acknowledgements, cancels, roles and invalidations twice, some about unknown operations");
    let listed = driver.has_one(&machine).await?;
    crate::answer::same_instance(&made, &listed)?;
    driver.delete(&machine).await?;
    driver.has_none(&machine).await?;
    ensure(driver.session.is_live(), "a session that goes on", "it ended")
}

/// Frames that a driver may get at any time.
fn unsolicited(bench: &Bench, done: &str) -> Vec<Frame> {
    let stranger = Uuid::new_v4().to_string();
    let ack = |operation_id: &str| {
        Frame::ResultAck(proto::OperationResultAck { operation_ids: vec![operation_id.to_owned()] })
    };
    let cancel = |operation_id: &str| {
        let reason = "STRAY".to_owned();
        Frame::Cancel(proto::OperationCancel { operation_id: operation_id.to_owned(), reason })
    };
    let stale = vec![
        proto::ObjectRevision {
            uid: String::new(),
            namespace: NAMESPACE.to_owned(),
            name: "nobody-knows".to_owned(),
            revision: String::new(),
        },
        proto::ObjectRevision { revision: String::new(), ..bench.class() },
    ];
    let role = proto::SessionRole {
        role: RoleKind::Active.into(),
        fencing_term: bench.harness.core().term(),
    };
    vec![
        heartbeat(),
        ack(done),
        ack(&stranger),
        cancel(done),
        cancel(&stranger),
        Frame::Invalidate(proto::CacheInvalidation { stale }),
        Frame::Invalidate(proto::CacheInvalidation::default()),
        Frame::Role(role),
    ]
}
