//! What "there is no group" proves after a creation whose outcome is not known.

use std::time::Duration;

use jiff::SignedDuration;
use ostler_api::{
    driver::{Certainty, ErrorCode, OperationKind},
    operation::{OperationView, Request, Success},
};
use ostler_lifecycle::{class::FinalizerChange, operation::Failure, snapshot::DriverView};
use serde_json::json;

use crate::pool::world::{World, request};

#[test]
fn a_group_that_lists_show_late_is_deleted_before_its_pool_goes() {
    for (lag, seconds) in [(None, 60), (Some(Duration::from_secs(20)), 20)] {
        let mut world = World::new(2, json!({}));
        let DriverView::Ready(driver) = &mut world.driver else { panic!() };
        driver.list_lag = lag;
        world.pass();
        let unknown = Failure::new(ErrorCode::Unavailable, Certainty::Unknown, "lost");
        world.answer(OperationKind::CreatePool, Err(unknown));
        world.pass();
        world.operation = OperationView::Idle;
        world.absent_looks = 9;
        world.pool.metadata.deletion_timestamp = Some(world.now.into());
        let plan = world.pass();
        assert_eq!(plan.finalizer, FinalizerChange::Keep);
        assert!(matches!(request(&plan), Some(Request::DeletePool { .. })), "by its identity");
        world.answer(OperationKind::DeletePool, Ok(Success::Deleted { was_absent: true }));
        let plan = world.pass();
        world.operation = OperationView::Idle;
        assert_eq!((plan.finalizer, plan.dispatch), (FinalizerChange::Keep, None));
        let until = world.now + SignedDuration::from_secs(seconds + 1);
        assert_eq!(plan.retry_at, Some(until));
        let conditions = &world.pool.status.as_ref().unwrap().conditions;
        let said = conditions.iter().find(|it| it.type_ == "InfrastructureReady").unwrap();
        assert_eq!(said.reason, "AbsenceUnconfirmed");
        assert!(said.message.contains(&until.to_string()), "{said:?}");
        assert_eq!(world.plan().dispatch, None, "too early");
        world.now = until;
        let plan = world.pass();
        assert!(matches!(request(&plan), Some(Request::DeletePool { .. })));
        world.answer(OperationKind::DeletePool, Ok(Success::Deleted { was_absent: true }));
        assert_eq!(world.plan().finalizer, FinalizerChange::Remove);
    }
}

#[test]
fn a_group_is_not_made_again_before_a_driver_whose_lists_lag_may_show_it() {
    for (lag, again) in [(None, true), (Some(Duration::from_mins(2)), false)] {
        let mut world = World::new(2, json!({}));
        let DriverView::Ready(driver) = &mut world.driver else { panic!() };
        driver.list_lag = lag;
        world.pass();
        let unknown = Failure::new(ErrorCode::Unavailable, Certainty::Unknown, "lost");
        world.answer(OperationKind::CreatePool, Err(unknown));
        world.pass();
        world.operation = OperationView::Idle;
        world.absent_looks = 1;
        world.now += SignedDuration::from_secs(61);
        let plan = world.pass();
        assert_eq!(plan.dispatch.is_some(), again, "{lag:?}");
        world.now += SignedDuration::from_secs(60);
        assert!(again || world.plan().dispatch.is_some(), "{lag:?}");
    }
}
