//! The event stream of the engine.

use std::collections::HashMap;
use std::time::SystemTime;

use bollard::models::EventMessage;
use bollard::query_parameters::EventsOptions;
use futures::{Stream, StreamExt as _};

use super::{Call, Engine, EngineError, Labels};
use crate::identity::INSTANCE;

/// Something happened to a container of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Happened {
    /// What.
    pub what: What,
    /// Name of the container.
    pub container: String,
    /// Its labels.
    pub labels: Labels,
}

/// An event of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// It was removed.
    Removed,
    /// A container was started, or ended.
    Changed,
}

/// The actions that are watched.
const ACTIONS: [(&str, What); 3] =
    [("destroy", What::Removed), ("die", What::Changed), ("start", What::Changed)];

impl Engine {
    /// What has happened to containers of machines since then, and what happens until the engine goes.
    pub async fn events(
        &self,
        since: SystemTime,
    ) -> Result<impl Stream<Item = Result<Happened, EngineError>> + Send + Unpin + use<>, EngineError>
    {
        let docker = self.docker().await?;
        let actions = ACTIONS.iter().map(|(action, _)| (*action).to_owned()).collect();
        let filters = HashMap::from([
            ("type".to_owned(), vec!["container".to_owned()]),
            ("label".to_owned(), vec![INSTANCE.to_owned()]),
            ("event".to_owned(), actions),
        ]);
        let since = since.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let options = EventsOptions {
            since: Some(format!("{}.{:09}", since.as_secs(), since.subsec_nanos())),
            filters: Some(filters),
            ..EventsOptions::default()
        };
        let this = self.clone();
        let told = docker.events(Some(options)).filter_map(move |told| {
            let told = this.checked(Call::Look, told).map(happened).transpose();
            std::future::ready(told)
        });
        Ok(Box::pin(told))
    }
}

fn happened(message: EventMessage) -> Option<Happened> {
    let action = message.action?;
    let what = ACTIONS.iter().find(|(word, _)| *word == action).map(|(_, what)| *what)?;
    let mut labels: Labels = message.actor?.attributes?.into_iter().collect();
    // Beside the labels stand the name, the image and the exit code.
    let container = labels.remove("name")?;
    Some(Happened { what, container, labels })
}

#[cfg(test)]
mod tests {
    use bollard::models::EventActor;

    use super::*;

    fn message(action: &str, attributes: &[(&str, &str)]) -> EventMessage {
        let attributes =
            attributes.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let actor = EventActor { attributes: Some(attributes.collect()), ..EventActor::default() };
        EventMessage {
            action: Some(action.to_owned()),
            actor: Some(actor),
            ..EventMessage::default()
        }
    }

    #[test]
    fn a_message_of_the_engine_says_what_happened_to_which_container() {
        let attributes = [("name", "m-1"), (INSTANCE, "m-1"), ("exitCode", "137")];
        let what =
            |action| happened(message(action, &attributes)).map(|it| (it.what, it.container));
        assert_eq!(what("destroy"), Some((What::Removed, "m-1".to_owned())));
        assert_eq!(what("die"), Some((What::Changed, "m-1".to_owned())));
        assert_eq!(what("exec_start: sh"), None);
        assert_eq!(happened(message("destroy", &[])), None);
    }
}
