//! Classes that share one list: their secret and the driver's name for the list are the same.

use ostler_api::Revision;
use std::collections::{BTreeMap, BTreeSet};

/// The basis of a list with a class.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Basis {
    /// Revision of the class.
    pub class: Revision,
    /// The class's secrets, and their common revision; `None`: a secret is missing.
    pub secret: Option<(Vec<String>, Revision)>,
}

/// The driver's name for the list of a class.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    basis: Basis,
    scope: String,
}

/// The names that one driver process gave to the lists of classes, by namespace and name. It lives as long as the
/// process of the core; without it each class is asked for itself.
#[derive(Debug, Default)]
pub struct Scopes {
    process: String,
    known: BTreeMap<String, Known>,
}

impl Scopes {
    /// Puts classes that share a list together: indices, in order. `process`: the driver that is asked.
    pub fn groups(&self, process: &str, classes: &[(String, Basis)]) -> Vec<Vec<usize>> {
        let mut groups: Vec<Vec<usize>> = Vec::new();
        let mut of: BTreeMap<(&str, &(Vec<String>, Revision)), usize> = BTreeMap::new();
        for (index, (name, basis)) in classes.iter().enumerate() {
            let alone = groups.len();
            let group = match (self.scope(process, name, basis), &basis.secret) {
                (Some(scope), Some(secret)) => *of.entry((scope, secret)).or_insert(alone),
                (None, _) | (_, None) => alone,
            };
            match groups.get_mut(group) {
                Some(group) => group.push(index),
                None => groups.push(vec![index]),
            }
        }
        groups
    }

    /// The driver's name for the current list of the class; `None`: unknown.
    pub fn scope(&self, process: &str, class: &str, basis: &Basis) -> Option<&str> {
        let known = self.known.get(class).filter(|_| self.process == process)?;
        (known.basis == *basis && !known.scope.is_empty()).then_some(known.scope.as_str())
    }

    /// Records the driver's name for the list of a class. Names from another process of the driver are forgotten.
    pub fn learn(&mut self, process: &str, class: &str, basis: Basis, scope: String) {
        if self.process != process {
            self.known.clear();
            process.clone_into(&mut self.process);
        }
        self.known.insert(class.to_owned(), Known { basis, scope });
    }

    /// Forgets all other classes.
    pub fn keep(&mut self, classes: &BTreeSet<&str>) {
        self.known.retain(|name, _| classes.contains(name.as_str()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn basis(class: &str, secret: Option<(&str, &str)>) -> Basis {
        let secret = secret.map(|(name, revision)| (vec![name.to_owned()], revision.into()));
        Basis { class: class.into(), secret }
    }

    const SECRET: Option<(&str, &str)> = Some(("default/s", "1"));

    /// Classes `a`, `b`, `c` of the same secret, with what the driver said of each.
    fn scopes(said: [&str; 3]) -> Scopes {
        let mut scopes = Scopes::default();
        for (name, scope) in ["a", "b", "c"].iter().zip(said) {
            scopes.learn("p", name, basis("1", SECRET), scope.to_owned());
        }
        scopes
    }

    fn groups(scopes: &Scopes, process: &str, bases: [Basis; 3]) -> Vec<Vec<usize>> {
        let names = ["a", "b", "c"].map(str::to_owned);
        let classes: Vec<_> = names.into_iter().zip(bases).collect();
        scopes.groups(process, &classes)
    }

    #[test]
    fn classes_share_a_list_only_if_the_driver_says_so_and_their_secret_has_one_revision() {
        let same = || basis("1", SECRET);
        let each = vec![vec![0], vec![1], vec![2]];
        let two = vec![vec![0, 1], vec![2]];
        let cases = [
            ("one scope", ["x", "x", "x"], "p", [same(), same(), same()], vec![vec![0, 1, 2]]),
            ("two scopes", ["x", "x", "y"], "p", [same(), same(), same()], two.clone()),
            ("nothing said", ["", "", ""], "p", [same(), same(), same()], each.clone()),
            (
                "another process of the driver",
                ["x", "x", "x"],
                "q",
                [same(), same(), same()],
                each.clone(),
            ),
            (
                "a class that changed",
                ["x", "x", "x"],
                "p",
                [same(), same(), basis("2", SECRET)],
                two.clone(),
            ),
            (
                "a secret that changed",
                ["x", "x", "x"],
                "p",
                [same(), same(), basis("1", Some(("default/s", "2")))],
                two.clone(),
            ),
            (
                "another secret of the same revision",
                ["x", "x", "x"],
                "p",
                [same(), same(), basis("1", Some(("default/t", "1")))],
                two.clone(),
            ),
            (
                "a secret that is missing",
                ["x", "x", "x"],
                "p",
                [same(), same(), basis("1", None)],
                two,
            ),
        ];
        for (name, said, process, bases, wanted) in cases {
            assert_eq!(groups(&scopes(said), process, bases), wanted, "{name}");
        }
    }

    #[test]
    fn what_another_process_said_and_of_classes_that_are_gone_is_forgotten() {
        let mut scopes = scopes(["x", "x", "x"]);
        scopes.keep(&["a", "b"].into());
        assert_eq!(scopes.scope("p", "c", &basis("1", SECRET)), None);
        scopes.learn("q", "a", basis("1", SECRET), "x".to_owned());
        assert_eq!(scopes.scope("q", "a", &basis("1", SECRET)), Some("x"));
        assert_eq!(scopes.scope("q", "b", &basis("1", SECRET)), None);
    }
}
