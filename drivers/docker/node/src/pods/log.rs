//! What a container prints: two files, `current.log` and `previous.log`, each of bounded length.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::fs::{self, File, OpenOptions};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe::Receiver;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Length at which a log file is renamed to the previous one.
const LONGEST: u64 = 512 * 1024;
/// How long the last words of an ended process are waited for.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Copies the output of a container until the output ends or the task is dropped.
#[derive(Debug)]
pub(super) struct LogTask(Option<JoinHandle<()>>);

impl LogTask {
    /// Copies from `output` into `dir`, after `before` is done.
    pub(super) fn start(dir: PathBuf, output: Receiver, before: Option<Self>) -> Self {
        Self(Some(tokio::spawn(async move {
            if let Some(mut before) = before
                && let Some(task) = &mut before.0
            {
                // Dropping the task ends a copy that is still running.
                let _whether_done = timeout(LAST_WORDS, task).await;
            }
            let mut output = output;
            if let Err(error) = copy(&dir, &mut output).await {
                tracing::warn!(dir = %dir.display(), %error, "output of a container is lost");
                // A pipe that nobody reads would end the process, or hold it up.
                let _whether_read = tokio::io::copy(&mut output, &mut tokio::io::sink()).await;
            }
        })))
    }
}

impl Drop for LogTask {
    fn drop(&mut self) {
        if let Some(task) = self.0.take() {
            task.abort();
        }
    }
}

async fn copy(dir: &Path, output: &mut Receiver) -> io::Result<()> {
    fs::create_dir_all(dir).await?;
    let mut file = next_file(dir).await?;
    let mut written: u64 = 0;
    let mut buffer = vec![0; 8 * 1024];
    loop {
        let length = output.read(&mut buffer).await?;
        let Some(chunk) = buffer.get(..length).filter(|chunk| !chunk.is_empty()) else {
            return file.flush().await;
        };
        file.write_all(chunk).await?;
        // Readers see it now.
        file.flush().await?;
        written += u64::try_from(length).unwrap_or_default();
        if written >= LONGEST {
            file = next_file(dir).await?;
            written = 0;
        }
    }
}

async fn next_file(dir: &Path) -> io::Result<File> {
    let current = dir.join("current.log");
    match fs::rename(&current, dir.join("previous.log")).await {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    OpenOptions::new().write(true).create(true).truncate(true).open(current).await
}

#[cfg(test)]
mod tests {
    use tokio::net::unix::pipe::pipe;

    use super::*;

    #[tokio::test]
    async fn output_that_cannot_be_kept_is_read_all_the_same() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (mut sender, receiver) = pipe().unwrap();
        let mut task = LogTask::start(file.path().to_owned(), receiver, None);
        // More than a pipe holds.
        sender.write_all(&vec![b'a'; 1024 * 1024]).await.unwrap();
        drop(sender);
        task.0.take().unwrap().await.unwrap();
    }

    #[tokio::test]
    async fn output_is_kept_up_to_a_limit_and_that_of_the_start_before_once() {
        let dir = tempfile::tempdir().unwrap();
        for text in [vec![b'a'; 10], vec![b'b'; usize::try_from(LONGEST).unwrap() + 5]] {
            let (mut sender, receiver) = pipe().unwrap();
            let mut task = LogTask::start(dir.path().to_owned(), receiver, None);
            sender.write_all(&text).await.unwrap();
            drop(sender);
            task.0.take().unwrap().await.unwrap();
        }
        let length = |name: &str| std::fs::metadata(dir.path().join(name)).unwrap().len();
        assert!(length("current.log") < 10_000, "what was too much went on in a new file");
        assert!(length("previous.log") >= LONGEST);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}
