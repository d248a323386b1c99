//! What is said of a machine and may change: a file in its container.
//!
//! Docker never changes a label. So what changes is here: the tags of container, networks and
//! volumes, and whether the machine is initialized.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::spec::{Resource, Tags};

type Map = BTreeMap<String, String>;

/// The file. People may add tags to the first three maps, and they stay.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TagFile {
    /// Tags of the container.
    pub container: Map,
    /// Tags of its own networks.
    pub network: Map,
    /// Tags of its own volumes.
    pub volume: Map,
    /// The driver's notes.
    pub driver: Notes,
}

/// The driver's notes on a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Notes {
    /// Keys of tags that came from the class, by resource.
    pub keys: OwnKeys,
    /// All is done that is done once.
    pub initialized: bool,
    /// The last started initialization command, until its end is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<Started>,
    /// Of an instance of a group that was brought to another model than the one that it was made from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// A command that was started in a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Started {
    /// The number of the initialization command, from 0 on. All earlier commands ended well.
    pub number: usize,
    /// The engine's id of the command.
    pub id: String,
}

/// Keys of tags that came from the class.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnKeys {
    container: BTreeSet<String>,
    network: BTreeSet<String>,
    volume: BTreeSet<String>,
}

impl TagFile {
    /// The tags of a new machine.
    pub fn new(tags: &Tags, initialized: bool) -> Self {
        let mut file = Self::default();
        for resource in Resource::ALL {
            file.bring(resource, tags.of(resource));
        }
        file.driver.initialized = initialized;
        file
    }

    /// The tags of a resource.
    pub fn of(&self, resource: Resource) -> &Map {
        match resource {
            Resource::Container => &self.container,
            Resource::Network => &self.network,
            Resource::Volume => &self.volume,
        }
    }

    /// The tags of a resource, to change them.
    pub(crate) fn of_mut(&mut self, resource: Resource) -> &mut Map {
        match resource {
            Resource::Container => &mut self.container,
            Resource::Network => &mut self.network,
            Resource::Volume => &mut self.volume,
        }
    }

    /// Brings a resource to the tags of the class: what the class had and has not any more goes,
    /// what others put there stays. Whether anything changed.
    pub fn bring(&mut self, resource: Resource, desired: &Map) -> bool {
        let before = self.clone();
        let keys = match resource {
            Resource::Container => &mut self.driver.keys.container,
            Resource::Network => &mut self.driver.keys.network,
            Resource::Volume => &mut self.driver.keys.volume,
        };
        let stale = std::mem::replace(keys, desired.keys().cloned().collect());
        let tags = self.of_mut(resource);
        tags.retain(|key, _| !stale.contains(key));
        tags.extend(desired.clone());
        *self != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> Map {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn tags_of_the_class_come_and_go_and_those_of_others_stay() {
        let tags = Tags { container: map(&[("a", "1"), ("b", "1")]), ..Tags::default() };
        let mut file = TagFile::new(&tags, false);
        file.container.insert("stranger".to_owned(), "s".to_owned());
        assert!(file.bring(Resource::Container, &map(&[("b", "2"), ("c", "1")])));
        assert_eq!(file.container, map(&[("b", "2"), ("c", "1"), ("stranger", "s")]));
        assert!(!file.bring(Resource::Container, &map(&[("b", "2"), ("c", "1")])));
        assert!(file.bring(Resource::Container, &Map::new()));
        assert_eq!(file.container, map(&[("stranger", "s")]));
    }

    #[test]
    fn a_resource_has_tags_of_its_own() {
        let mut file = TagFile::default();
        file.bring(Resource::Volume, &map(&[("v", "1")]));
        assert_eq!((file.container.len(), file.network.len(), file.volume.len()), (0, 0, 1));
    }

    #[test]
    fn the_file_is_read_as_it_was_written() {
        let file = TagFile::new(&Tags { network: map(&[("n", "1")]), ..Tags::default() }, true);
        let text = serde_json::to_string(&file).unwrap();
        assert_eq!(serde_json::from_str::<TagFile>(&text).unwrap(), file);
    }

    #[test]
    fn a_file_that_somebody_shortened_is_read() {
        let file = serde_json::from_str::<TagFile>(r#"{"container": {"a": "b"}}"#).unwrap();
        assert_eq!(file.container, map(&[("a", "b")]));
        assert!(!file.driver.initialized);
    }
}
