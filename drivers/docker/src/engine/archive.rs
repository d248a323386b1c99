//! Files go into a container and come out of it as tar archives.

use std::io::{self, Read as _};

use bollard::body_stream;
use bollard::query_parameters::{
    ContainerArchiveInfoOptions, DownloadFromContainerOptions, UploadToContainerOptions,
};
use bytes::Bytes;
use futures::StreamExt as _;

use super::{Call, Engine, EngineError, Failure};

/// A file that is read from a container is no longer than this: what is read is ours, and small.
const LONGEST: usize = 4 * 1024 * 1024;

/// A file of root.
#[derive(Clone)]
pub struct File {
    /// Where, absolute.
    pub path: String,
    /// Mode, e.g. `0o600`.
    pub mode: u32,
    /// Its bytes.
    pub content: Vec<u8>,
}

/// Hides the content, which may be secret.
impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "File({}, {} bytes)", self.path, self.content.len())
    }
}

impl Engine {
    /// Writes files, one after the other; folders that are not there are made.
    pub async fn write_files(&self, container: &str, files: &[File]) -> Result<(), EngineError> {
        let garbled = |error: io::Error| EngineError {
            call: Call::WriteFiles,
            failure: Failure::Garbled(error.to_string()),
        };
        let archive = Bytes::from(pack(files).map_err(garbled)?);
        let options = UploadToContainerOptions { path: "/".to_owned(), ..Default::default() };
        // As a stream: the client library writes other bodies into its logs.
        let body = body_stream(futures::stream::iter([archive]));
        let docker = self.docker().await?;
        let written = docker.upload_to_container(container, Some(options), body).await;
        self.checked(Call::WriteFiles, written)
    }

    /// Whether there is a file. Much less work for an engine than to read it.
    pub(crate) async fn has_file(&self, container: &str, path: &str) -> Result<bool, EngineError> {
        let docker = self.docker().await?;
        let options = ContainerArchiveInfoOptions { path: path.to_owned() };
        let found = docker.get_container_archive_info(container, Some(options)).await;
        match self.checked(Call::Look, found) {
            Ok(_) => Ok(true),
            Err(error) if error.is_refusal(404) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The content of a file; `None` if there is none, or one that is too long to be ours: pods are root there, and what they do to one
    /// container is no fault of the others that are listed with it.
    pub(crate) async fn read_file(
        &self,
        container: &str,
        path: &str,
    ) -> Result<Option<Vec<u8>>, EngineError> {
        let docker = self.docker().await?;
        let options = DownloadFromContainerOptions { path: path.to_owned() };
        let mut chunks = std::pin::pin!(docker.download_from_container(container, Some(options)));
        let mut archive = Vec::new();
        loop {
            let next = tokio::time::timeout(super::CALL, chunks.next()).await;
            let next = next.unwrap_or(Some(Err(bollard::errors::Error::RequestTimeoutError)));
            let Some(chunk) = next else { break };
            match self.checked(Call::Look, chunk) {
                Ok(chunk) => archive.extend_from_slice(&chunk),
                Err(error) if error.is_refusal(404) => return Ok(None),
                Err(error) => return Err(error),
            }
            if archive.len() > LONGEST {
                tracing::warn!(
                    container,
                    path,
                    "a file is longer than {LONGEST} bytes: it is ignored"
                );
                return Ok(None);
            }
        }
        // An archive that ends too early is one of a container that is just going.
        Ok(unpack(&archive))
    }
}

fn pack(files: &[File]) -> io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for file in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(file.content.len() as u64);
        header.set_mode(file.mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(1);
        let path = file.path.trim_start_matches('/');
        archive.append_data(&mut header, path, file.content.as_slice())?;
    }
    archive.into_inner()
}

/// The first file of an archive, if it is whole.
fn unpack(archive: &[u8]) -> Option<Vec<u8>> {
    let mut archive = tar::Archive::new(archive);
    let mut file = archive.entries().ok()?.next()?.ok()?;
    let mut content = Vec::new();
    file.read_to_end(&mut content).ok()?;
    (content.len() as u64 == file.size()).then_some(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_comes_out_the_same() {
        let content: Vec<u8> = (0..=u8::MAX).cycle().take(5000).collect();
        let long = format!("/{}/{}", "d".repeat(90), "f".repeat(90));
        for path in ["/etc/ostler/user-data", long.as_str()] {
            let file = File { path: path.to_owned(), mode: 0o600, content: content.clone() };
            let archive = pack(std::slice::from_ref(&file)).unwrap();
            assert_eq!(unpack(&archive), Some(content.clone()), "{path}");
            assert_eq!(unpack(&archive[..archive.len() / 2]), None, "{path}");
        }
    }

    #[test]
    fn debug_of_a_file_shows_nothing_of_it() {
        let file = File { path: "/x".to_owned(), mode: 0, content: b"canary".to_vec() };
        assert_eq!(format!("{file:?}"), "File(/x, 6 bytes)");
    }
}
