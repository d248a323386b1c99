//! `ostler sanity --init`: the files of a full run, to be filled with what one's own cloud has.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::Context as _;

use crate::output::new_file;

const PROBE: &str = r#"#!/bin/sh
# Reads the cloud without the driver: "Reading the cloud" in sdk/conformance/README.md has the words and what they print.
case "$1" in
# Print what your cloud has, with name, uid and clusterId from the tags:
#   instances)  echo '[{"providerId": "…", "name": "…", "uid": "…", "clusterId": "…", "tags": {}}]' ;;
#   resources)  echo '[{"id": "…", "kind": "disk", "uid": "…", "clusterId": "…"}]' ;;
*) echo "probe does not know $1" >&2; exit 1 ;;
esac
"#;

/// A class, and how its provider spec differs from the first one.
const CLASSES: [(&str, &str, &str, &str); 5] = [
    ("class", "what instances are made of", "image: linux-1", "team: a"),
    ("alt-class", "differs in what a running instance cannot change", "image: linux-2", "team: a"),
    ("hot-class", "differs in what a running instance can change", "image: linux-1", "team: b"),
    ("bad-class", "the driver must refuse it", "image: [wrong]", "team: a"),
    ("slow-class", "its instances take some seconds to make", "image: linux-1", "team: a"),
];
/// A secret, and whether the cloud takes it.
const SECRETS: [(&str, &str, &str); 2] = [
    ("secret", "credentials of a test account", "key"),
    ("bad-secret", "credentials that the cloud refuses", "invalid"),
];

/// Writes the files, none over another; the command that uses them.
pub(super) fn write(dir: &Path) -> anyhow::Result<String> {
    fs::create_dir_all(dir).with_context(|| format!("--init {} cannot be made", dir.display()))?;
    let mut flags = String::new();
    let mut add = |name: &str, mode: u32, text: &str| -> anyhow::Result<()> {
        let path = dir.join(name);
        new_file(&path, mode, text)
            .with_context(|| format!("--init cannot write {}", path.display()))?;
        let flag = name.strip_suffix(".yaml").unwrap_or("probe-cmd");
        // Writing to a String cannot fail.
        let _ = write!(flags, " \\\n    --{flag} {}", path.display());
        Ok(())
    };
    for (name, what, image, team) in CLASSES {
        let text = format!(
            "# {what}: write your own provider and providerSpec\napiVersion: machine.sapcloud.io/v1alpha1\nkind: MachineClass\nmetadata: {{name: mine, namespace: default}}\nprovider: cloud.example.com\nsecretRef: {{name: mine, namespace: default}}\nproviderSpec:\n  {image}\n  tags: {{{team}}}\n"
        );
        add(&format!("{name}.yaml"), 0o644, &text)?;
    }
    for (name, what, key) in SECRETS {
        let text = format!(
            "# {what}\napiVersion: v1\nkind: Secret\nmetadata: {{name: mine, namespace: default}}\nstringData: {{apiKey: {key}}}\n"
        );
        add(&format!("{name}.yaml"), 0o600, &text)?;
    }
    add("probe", 0o755, PROBE)?;
    Ok(format!("ostler sanity --unary --driver-cmd ./my-driver{flags}"))
}

#[cfg(test)]
mod tests {
    use ostler_conformance::{ClassManifest, SecretManifest};

    use super::*;

    #[test]
    fn the_files_can_be_read_by_the_suite_and_are_never_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let command = write(dir.path()).unwrap();
        for (name, ..) in CLASSES {
            ClassManifest::read(&dir.path().join(format!("{name}.yaml"))).unwrap();
            assert!(command.contains(&format!("--{name} ")), "{command}");
        }
        for (name, ..) in SECRETS {
            SecretManifest::read(&dir.path().join(format!("{name}.yaml"))).unwrap();
        }
        assert!(command.ends_with("/probe"), "{command}");
        assert!(write(dir.path()).is_err());
    }
}
