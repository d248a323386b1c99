//! The access file: read again after a change, and kept as before when broken.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use tokio::sync::Mutex;

use super::bindings::Bindings;

/// A file of bindings.
#[derive(Debug)]
pub(super) struct AccessFile {
    path: PathBuf,
    /// Held during a read: a later reader installs later.
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The last text, good or not; `None`: unreadable.
    seen: Option<String>,
    bindings: Arc<Bindings>,
}

impl AccessFile {
    /// Reads it for the first time.
    pub(super) async fn open(path: PathBuf) -> anyhow::Result<Self> {
        let read = async {
            let text = tokio::fs::read_to_string(&path).await?;
            let bindings = Arc::new(Bindings::parse(&text)?);
            anyhow::Ok(State { seen: Some(text), bindings })
        };
        let state = read
            .await
            .with_context(|| format!("--driver-access {} cannot be used", path.display()))?;
        Ok(Self { path, state: Mutex::new(state) })
    }

    /// The current content; the former content if the current one cannot be used.
    pub(super) async fn bindings(&self) -> Arc<Bindings> {
        let mut state = self.state.lock().await;
        let read = tokio::fs::read_to_string(&self.path).await;
        let news = match read {
            Ok(text) => state.take(text),
            // Said once, until it can be read again.
            Err(error) => state.seen.take().map(|_| Err(error.into())),
        };
        if let Some(news) = news {
            self.tell(news);
        }
        Arc::clone(&state.bindings)
    }

    fn tell(&self, news: anyhow::Result<()>) {
        let path = self.path.display();
        match news {
            Ok(()) => tracing::info!(%path, "the access of drivers was replaced"),
            Err(error) => {
                let error = format!("{error:#}");
                tracing::error!(%path, error, "the old access of drivers stays in use");
            }
        }
    }
}

impl State {
    /// Takes over a new text.
    fn take(&mut self, text: String) -> Option<anyhow::Result<()>> {
        if self.seen.as_ref() == Some(&text) {
            return None;
        }
        let parsed = Bindings::parse(&text);
        self.seen = Some(text);
        Some(parsed.map(|bindings| self.bindings = Arc::new(bindings)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::bindings::Who;
    use super::*;

    fn of(uid: u32) -> String {
        format!("bindings: [{{ unixUser: {uid}, providers: [a] }}]")
    }

    #[tokio::test]
    async fn a_changed_file_counts_at_once_and_a_broken_one_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("access.yaml");
        std::fs::write(&path, of(1)).unwrap();
        let file = AccessFile::open(path.clone()).await.unwrap();
        let bound = async |uid| file.bindings().await.of(&Who::UnixUser(uid)).is_some();
        assert!(bound(1).await && !bound(2).await);
        std::fs::write(&path, of(2)).unwrap();
        assert!(bound(2).await && !bound(1).await);
        std::fs::write(&path, "bindings: [").unwrap();
        assert!(bound(2).await);
        std::fs::remove_file(&path).unwrap();
        assert!(bound(2).await);
        std::fs::write(&path, of(3)).unwrap();
        assert!(bound(3).await && !bound(2).await);
    }

    #[tokio::test]
    async fn a_file_that_is_broken_from_the_start_is_named() {
        let missing = AccessFile::open("/nowhere/access.yaml".into()).await.unwrap_err();
        assert!(format!("{missing:#}").contains("/nowhere/access.yaml"));
    }
}
