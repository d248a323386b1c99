//! Files of the driver in a container: whenever their writing is cut off, a whole one is there.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::engine::{Engine, EngineError, File};

/// The same content twice, in the order in which it is written: first beside the file.
pub(super) fn twice<T: Serialize>(path: &str, content: &T) -> [File; 2] {
    let mut bytes = serde_json::to_vec_pretty(content).unwrap_or_default();
    bytes.push(b'\n');
    let file = |path: String| File { path, mode: 0o644, content: bytes.clone() };
    [file(next(path)), file(path.to_owned())]
}

/// As [`twice`], for root alone.
pub(super) fn twice_secret<T: Serialize>(path: &str, content: &T) -> [File; 2] {
    twice(path, content).map(|file| File { mode: 0o600, ..file })
}

/// The content of a file, or of that beside it if the file is damaged.
pub(super) async fn read<T: DeserializeOwned>(
    engine: &Engine,
    container: &str,
    path: &str,
) -> Result<Option<T>, EngineError> {
    for path in [path.to_owned(), next(path)] {
        let content = engine.read_file(container, &path).await?;
        if let Some(content) = content.as_deref().and_then(|it| serde_json::from_slice(it).ok()) {
            return Ok(Some(content));
        }
    }
    Ok(None)
}

fn next(path: &str) -> String {
    format!("{path}.next")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_beside_it_is_written_first() {
        let files = twice("/etc/x.json", &1).map(|file| (file.path, file.content));
        let wanted = |path: &str| (path.to_owned(), b"1\n".to_vec());
        assert_eq!(files, [wanted("/etc/x.json.next"), wanted("/etc/x.json")]);
    }
}
