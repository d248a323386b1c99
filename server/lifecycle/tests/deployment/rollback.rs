//! Rollbacks and the fields that clients of machine-controller-manager do not know.

use ostler_api::bootstrap::Bootstrap;
use serde_json::json;

use crate::deployment::world::World;

/// The CRD refuses a write without these fields.
#[test]
fn a_rollback_to_a_template_without_user_data_empties_them_and_does_not_drop_them() {
    let mut world = World::running(1);
    let own = json!({ "version": "v1", "bootstrap": { "dataSecretName": "user-data" } });
    world.edit(&json!({ "spec": { "template": { "spec": own } } }));
    world.settle();
    assert_eq!(world.sets.len(), 2);
    world.edit(&json!({ "spec": { "rollbackTo": { "revision": 0 } } }));
    world.settle();
    let template = &world.deployment.spec.template.spec;
    assert_eq!(template.version.as_deref(), Some(""));
    assert_eq!(template.bootstrap, Some(Bootstrap::default()));
    assert_eq!(world.sets.len(), 2, "it is the template of the first set");
    world.roll_to("two");
    world.settle();
    let template = &world.set("two").spec.template.spec;
    assert_eq!((&template.bootstrap, &template.version), (&None, &None), "no machine waits for it");
}
