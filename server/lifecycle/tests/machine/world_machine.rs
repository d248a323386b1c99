//! Changes of the machine, and of the object with its bootstrap data.

use std::sync::Arc;

use ostler_api::{ProviderName, names};
use ostler_lifecycle::{
    bootstrap::{ConfigFacts, ConfigView},
    hint::{HintUse, HintView},
    machine::holder,
    plan::{BootstrapPatch, MachinePatch, OwnConfig},
    snapshot::{DriverFacts, DriverView},
};

use crate::machine::world::World;

impl World {
    /// The provider spec of the class as it is now.
    pub(crate) fn spec_of_class(&self) -> String {
        let spec = self.class.as_ref().map(|class| class.spec.provider_spec.to_string());
        spec.unwrap_or_default()
    }

    /// The provider that has the instance, if the class is one of another.
    pub(crate) fn elsewhere(&self) -> Option<ProviderName> {
        let of_class = self.class.as_ref()?.provider();
        holder(self.machine()).filter(|it| it.as_str() != of_class)
    }

    /// The driver, as the core sees it now.
    pub(crate) fn driver(&self) -> DriverView {
        match self.not_ready {
            _ if self.connected => DriverView::Ready(DriverFacts {
                identity: self.driver_version.clone(),
                process: self.driver_process.to_owned(),
                kinds: self.kinds.clone(),
                by_name: self.by_name,
                list_lag: self.list_lag,
                ..DriverFacts::default()
            }),
            Some(why) => DriverView::NotReady(why.to_owned()),
            None => DriverView::Unavailable,
        }
    }

    /// What a pass did about the hint of the driver.
    pub(crate) fn use_hint(&mut self, how: Option<HintUse>) {
        if let Some(how) = how {
            self.hint = HintView::used(self.hint.take(), how);
        }
    }

    /// Our finalizer goes, and with the last one the machine.
    pub(crate) fn let_go(&mut self) {
        let finalizers = self.machine_mut().metadata.finalizers.get_or_insert_default();
        finalizers.retain(|name| name != names::finalizer::MACHINE);
        if finalizers.is_empty() {
            self.machine = None;
        }
    }

    pub(crate) fn patch_machine(&mut self, patch: &MachinePatch) {
        if patch.add_finalizer {
            self.hold();
        }
        let machine = self.machine_mut();
        if patch.forget_managers {
            machine.metadata.managed_fields = None;
        }
        if let Some(id) = &patch.provider_id {
            machine.spec.provider_id = Some(id.clone());
        }
        machine.metadata.labels.get_or_insert_default().extend(patch.labels.clone());
        match &patch.bootstrap {
            Some(BootstrapPatch::Data(text)) => {
                machine.spec.bootstrap.as_mut().unwrap().data = Some(text.clone());
            }
            Some(BootstrapPatch::DataSecretName(name)) => {
                let bootstrap = machine.spec.bootstrap.as_mut().unwrap();
                bootstrap.data_secret_name = Some(name.clone());
            }
            None => {}
        }
        let annotations = machine.metadata.annotations.get_or_insert_default();
        for (key, value) in &patch.annotations {
            match value {
                Some(value) => annotations.insert(key.clone(), value.clone()),
                None => annotations.remove(key),
            };
        }
    }

    pub(crate) fn delete_config(&mut self) {
        let ConfigView::Known(facts) = &self.bootstrap.config else { panic!("no config") };
        let going = ConfigFacts { is_deleting: true, ..facts.as_ref().clone() };
        let held = !going.finalizers.is_empty();
        self.bootstrap.config =
            if held { ConfigView::Known(Arc::new(going)) } else { ConfigView::Absent };
    }

    pub(crate) fn own_config(&mut self, own: &OwnConfig) {
        let ConfigView::Known(facts) = &self.bootstrap.config else { panic!("no config") };
        let owners = serde_json::from_value(own.owner_references.clone()).unwrap();
        let owned = ConfigFacts { owner_references: owners, ..facts.as_ref().clone() };
        self.bootstrap.config = ConfigView::Known(Arc::new(owned));
    }
}
