//! The image of the tests: a shell and a few programs of this computer, with the libraries that
//! they need. No registry is asked.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Name of the image.
pub(crate) const NAME: &str = "ostler-docker-test:1";
const PROGRAMS: [&str; 7] = ["sh", "sleep", "cat", "true", "ls", "touch", "stat"];

/// A root file system, as a tar archive. Made once.
pub(crate) fn archive() -> PathBuf {
    static ARCHIVE: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let made = ARCHIVE.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image.tar");
        pack(&path);
        (dir, path)
    });
    made.1.clone()
}

fn pack(path: &Path) {
    let mut archive = tar::Builder::new(std::fs::File::create(path).unwrap());
    archive.follow_symlinks(true);
    let mut libraries = BTreeSet::new();
    for program in PROGRAMS {
        let file = ["/bin", "/usr/bin"].map(|dir| Path::new(dir).join(program));
        let file = file.into_iter().find(|file| file.is_file()).unwrap();
        archive.append_path_with_name(&file, format!("bin/{program}")).unwrap();
        libraries.extend(libraries_of(&file));
    }
    for library in libraries {
        let name = library.strip_prefix("/").unwrap();
        archive.append_path_with_name(&library, name).unwrap();
    }
    for dir in ["etc", "tmp", "proc", "sys", "dev"] {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Directory);
        header.set_mode(0o755);
        header.set_size(0);
        archive.append_data(&mut header, format!("{dir}/"), std::io::empty()).unwrap();
    }
    archive.finish().unwrap();
}

fn libraries_of(program: &Path) -> Vec<PathBuf> {
    let output = Command::new("ldd").arg(program).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let words = printed.split_whitespace().filter(|word| word.starts_with('/'));
    words.map(PathBuf::from).collect()
}
