//! The current and the previous ids of a cluster: whose an instance is, and which id is stored.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

/// The most ids that a cluster had before.
pub const MOST_PREVIOUS: usize = 8;
/// Longest id: it becomes the value of a tag, and most infrastructures allow no more.
const MAX_BYTES: usize = 128;
/// Key of the id in the ConfigMap.
const ID: &str = "clusterID";
/// Key of the ids before it, separated by commas, the oldest first.
const PREVIOUS: &str = "previousClusterIDs";

/// The data of the ConfigMap, by key.
type Data = BTreeMap<String, String>;

/// The ids that the instances of a cluster may be tagged with.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterIds {
    /// The current id.
    pub own: String,
    /// Previous ids, the oldest first.
    pub previous: Vec<String>,
}

impl ClusterIds {
    /// A cluster that never had another id.
    pub fn only(own: impl Into<String>) -> Self {
        Self { own: own.into(), previous: Vec::new() }
    }

    /// The recorded ids, if any.
    pub fn of(data: &Data) -> Option<Self> {
        let own = data.get(ID)?.clone();
        let all = data.get(PREVIOUS).map(String::as_str).unwrap_or_default().split(',');
        let previous = all.map(str::trim).filter(|id| !id.is_empty()).map(str::to_owned);
        Some(Self { own, previous: previous.collect() })
    }

    /// Writes the ids to the data.
    pub fn set(&self, data: &mut Data) {
        data.insert(ID.to_owned(), self.own.clone());
        match self.previous.as_slice() {
            [] => data.remove(PREVIOUS),
            all => data.insert(PREVIOUS.to_owned(), all.join(",")),
        };
    }

    /// Whether instances with the id belong to the cluster.
    pub fn has(&self, id: &str) -> bool {
        self.own == id || self.was(id)
    }

    /// Whether the cluster had this id before.
    pub fn was(&self, id: &str) -> bool {
        self.previous.iter().any(|previous| previous == id)
    }
}

/// Why ids cannot be worked with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdError {
    /// The id cannot be the value of a tag.
    Malformed(String),
    /// A previous id of the cluster is also its current id.
    PreviousIsOwn(String),
    /// More previous ids than are carried.
    TooMany(usize),
    /// Another id is written down, and the operator did not say that the cluster had it before.
    Differs {
        /// The given id.
        given: String,
        /// The stored id.
        stored: String,
    },
}

impl fmt::Display for IdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(id) => {
                write!(f, "cluster id {id:?} must have 1 to {MAX_BYTES} printable ASCII characters")
            }
            Self::PreviousIsOwn(id) => write!(
                f,
                "--previous-cluster-ids names {id:?}, which is the id of this cluster now; leave it out, or give \
                 another --cluster-id"
            ),
            Self::TooMany(count) => write!(
                f,
                "--previous-cluster-ids names {count} ids, and at most {MOST_PREVIOUS} are carried; leave out those \
                 that no instance is tagged with any more"
            ),
            Self::Differs { given, stored } => write!(
                f,
                "--cluster-id {given:?} differs from {stored:?}, which the instances of this cluster are tagged with; \
                 start without --cluster-id or with that value; or, if the cluster moved and its old core is \
                 stopped, with --previous-cluster-ids {stored}"
            ),
        }
    }
}

impl std::error::Error for IdError {}

/// Whether flags can be right.
///
/// # Errors
/// An id is malformed, the ids are too many, or a previous id is the given one.
pub fn check(given: Option<&str>, previous: &[String]) -> Result<(), IdError> {
    for id in given.into_iter().chain(previous.iter().map(String::as_str)) {
        well_formed(id)?;
    }
    let different: BTreeSet<&String> = previous.iter().collect();
    if different.len() > MOST_PREVIOUS {
        return Err(IdError::TooMany(different.len()));
    }
    match previous.iter().find(|id| given == Some(id.as_str())) {
        Some(id) => Err(IdError::PreviousIsOwn(id.clone())),
        None => Ok(()),
    }
}

fn well_formed(id: &str) -> Result<(), IdError> {
    let fits =
        (1..=MAX_BYTES).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic());
    if fits { Ok(()) } else { Err(IdError::Malformed(id.to_owned())) }
}

/// The id for this core: the given id, or the stored one unless the flag names it as a previous id.
/// `None`: the default id.
pub fn wanted<'a>(
    stored: Option<&'a ClusterIds>,
    given: Option<&'a str>,
    previous: &[String],
) -> Option<&'a str> {
    let stored = stored.map(|ids| ids.own.as_str());
    given.or_else(|| stored.filter(|id| !previous.iter().any(|one| one == id)))
}

/// The wanted content of the ConfigMap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    /// The ids to work with.
    pub ids: ClusterIds,
    /// The previously stored id, if the id changed.
    pub moved_from: Option<String>,
    /// Previous ids that there is no room for any more.
    pub dropped: Vec<String>,
}

/// The ids to work with: `own`, and all that were ever named as previous. A flag that is left out
/// later makes no instance a stranger.
///
/// # Errors
/// Another id is written down, or an id cannot be one.
pub fn settle(
    stored: Option<&ClusterIds>,
    own: &str,
    previous: &[String],
) -> Result<Settled, IdError> {
    check(Some(own), previous)?;
    let before = stored.map(|ids| ids.own.clone());
    let moved_from = before.filter(|before| before != own);
    if let Some(stored) = moved_from.as_ref().filter(|id| !previous.contains(id)) {
        return Err(IdError::Differs { given: own.to_owned(), stored: stored.clone() });
    }
    let mut all: Vec<String> = Vec::new();
    let known = stored.into_iter().flat_map(|ids| &ids.previous);
    for id in known.filter(|id| *id != own && !previous.contains(id)).chain(previous) {
        well_formed(id)?;
        if !all.contains(id) {
            all.push(id.clone());
        }
    }
    let kept = all.split_off(all.len().saturating_sub(MOST_PREVIOUS));
    let ids = ClusterIds { own: own.to_owned(), previous: kept };
    Ok(Settled { ids, moved_from, dropped: all })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(own: &str, previous: &[&str]) -> ClusterIds {
        let previous = previous.iter().map(|id| (*id).to_owned()).collect();
        ClusterIds { own: own.to_owned(), previous }
    }

    fn list(all: &[&str]) -> Vec<String> {
        all.iter().map(|id| (*id).to_owned()).collect()
    }

    /// As the core comes to it, with `default` where the operator does not say which.
    fn settled(
        stored: Option<&ClusterIds>,
        given: Option<&str>,
        previous: &[&str],
    ) -> Result<Settled, IdError> {
        let previous = list(previous);
        settle(stored, wanted(stored, given, &previous).unwrap_or("default"), &previous)
    }

    #[test]
    fn the_id_written_down_counts_unless_it_is_said_to_be_a_previous_one() {
        let stored = ids("a", &[]);
        let table = [
            (None, None, vec![], ids("default", &[]), None),
            (None, Some("x"), vec!["a"], ids("x", &["a"]), None),
            (Some(&stored), None, vec![], ids("a", &[]), None),
            (Some(&stored), Some("a"), vec![], ids("a", &[]), None),
            (Some(&stored), Some("a"), vec!["z"], ids("a", &["z"]), None),
            (Some(&stored), Some("b"), vec!["a"], ids("b", &["a"]), Some("a")),
            (Some(&stored), Some("b"), vec!["z", "a"], ids("b", &["z", "a"]), Some("a")),
            (Some(&stored), None, vec!["a"], ids("default", &["a"]), Some("a")),
            (Some(&stored), None, vec!["z"], ids("a", &["z"]), None),
        ];
        for (stored, given, previous, expected, from) in table {
            let settled = settled(stored, given, &previous).unwrap();
            assert_eq!(settled.ids, expected, "{given:?} {previous:?}");
            assert_eq!(settled.moved_from.as_deref(), from, "{given:?} {previous:?}");
        }
    }

    #[test]
    fn another_id_than_the_one_written_down_is_refused_with_what_to_do() {
        for (given, previous) in [("b", vec![]), ("b", vec!["z"])] {
            let refused = settled(Some(&ids("a", &[])), Some(given), &previous).unwrap_err();
            assert_eq!(refused, IdError::Differs { given: "b".into(), stored: "a".into() });
            assert!(refused.to_string().contains("--previous-cluster-ids a"), "{refused}");
        }
        let earlier = ids("a", &["b"]);
        let refused = settled(Some(&earlier), Some("b"), &[]).unwrap_err();
        assert!(matches!(refused, IdError::Differs { .. }), "the way back is said, too");
    }

    #[test]
    fn an_id_cannot_be_the_one_of_today_and_a_previous_one() {
        let same = || IdError::PreviousIsOwn("a".to_owned());
        assert_eq!(check(Some("a"), &list(&["b", "a"])), Err(same()));
        let stored = ids("default", &[]);
        let refused = settled(Some(&stored), None, &["default"]).unwrap_err();
        assert_eq!(refused, IdError::PreviousIsOwn("default".to_owned()), "nor by default");
    }

    #[test]
    fn previous_ids_stay_known_when_the_flag_is_gone_and_the_way_back_is_open() {
        let moved = settled(Some(&ids("a", &[])), Some("b"), &["a"]).unwrap().ids;
        let later = settled(Some(&moved), Some("b"), &[]).unwrap();
        assert_eq!((later.ids, later.moved_from), (ids("b", &["a"]), None));
        let back = settled(Some(&moved), Some("a"), &["b"]).unwrap().ids;
        assert_eq!(back, ids("a", &["b"]), "an id is not its own predecessor");
    }

    #[test]
    fn the_oldest_ids_give_way_to_those_of_the_flag() {
        let eight = ["1", "2", "3", "4", "5", "6", "7", "8"];
        let settled = settled(Some(&ids("a", &eight)), Some("b"), &["2", "a"]).unwrap();
        assert_eq!(settled.ids.previous, ["3", "4", "5", "6", "7", "8", "2", "a"]);
        assert_eq!(settled.dropped, ["1"]);
        let nine = list(&["1", "2", "3", "4", "5", "6", "7", "8", "9"]);
        assert_eq!(check(None, &nine), Err(IdError::TooMany(9)));
        assert_eq!(check(None, &list(&["1"; 9])), Ok(()), "the same one again is one");
    }

    #[test]
    fn an_id_that_cannot_be_a_tag_is_refused_wherever_it_stands() {
        for id in ["", "a b", "ü", &"x".repeat(129)] {
            let malformed = Err(IdError::Malformed(id.to_owned()));
            assert_eq!(check(Some(id), &[]), malformed);
            assert_eq!(check(None, &list(&[id])), malformed);
        }
        assert_eq!(check(Some(&"x".repeat(128)), &[]), Ok(()));
        let edited = ids("a", &["b c"]);
        assert!(settled(Some(&edited), None, &[]).is_err(), "not even written by hand");
    }

    #[test]
    fn ids_read_as_they_were_written_down() {
        for ids in [ids("a", &[]), ids("a", &["b"]), ids("a", &["b", "c"])] {
            let mut data = Data::new();
            ids.set(&mut data);
            assert_eq!(ClusterIds::of(&data), Some(ids));
        }
        let mut data = Data::from([(PREVIOUS.to_owned(), "old".to_owned())]);
        assert_eq!(ClusterIds::of(&data), None);
        ClusterIds::only("a").set(&mut data);
        assert!(!data.contains_key(PREVIOUS), "none is none");
        data.insert(PREVIOUS.to_owned(), " b , ,c\n".to_owned());
        assert_eq!(ClusterIds::of(&data).unwrap().previous, ["b", "c"], "by hand");
    }
}
