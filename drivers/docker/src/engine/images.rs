//! Images.

use std::time::Duration;

use bollard::query_parameters::CreateImageOptions;
use futures::StreamExt as _;

use super::{Call, Engine, EngineError, Failure};

/// For the next word of a pull. A registry that is silent for so long is away.
const SILENCE: Duration = Duration::from_mins(1);

impl Engine {
    /// Whether the engine has the image.
    pub(crate) async fn has_image(&self, image: &str) -> Result<bool, EngineError> {
        let docker = self.docker().await?;
        match self.checked(Call::Look, docker.inspect_image(image).await) {
            Ok(_) => Ok(true),
            Err(error) if error.is_refusal(404) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Pulls an image, and says how far it is in percent of the layer that it is at.
    pub async fn pull(
        &self,
        image: &str,
        mut said: impl FnMut(&str, u32),
    ) -> Result<(), EngineError> {
        let docker = self.docker().await?;
        let (name, tag) = named(image);
        let options =
            CreateImageOptions { from_image: Some(name), tag, ..CreateImageOptions::default() };
        let mut words = std::pin::pin!(docker.create_image(Some(options), None, None));
        loop {
            let next = tokio::time::timeout(SILENCE, words.next()).await;
            let next = next.unwrap_or(Some(Err(bollard::errors::Error::RequestTimeoutError)));
            let Some(word) = next else { return Ok(()) };
            let word = self.checked(Call::Pull, word)?;
            if let Some(message) = word.error_detail.and_then(|error| error.message) {
                let failure = Failure::Refused { status: 500, message };
                return Err(EngineError { call: Call::Pull, failure });
            }
            let progress = word.progress_detail.as_ref();
            let part = progress.and_then(|progress| progress.current.zip(progress.total));
            let percent = part.map_or(0, |(current, total)| percent(current, total));
            said(word.status.as_deref().unwrap_or_default(), percent);
        }
    }
}

fn percent(current: i64, total: i64) -> u32 {
    if total <= 0 {
        return 0;
    }
    u32::try_from(current.clamp(0, total).saturating_mul(100) / total).unwrap_or_default()
}

/// Without a tag the engine would pull all there are.
fn named(image: &str) -> (String, Option<String>) {
    let last = image.rsplit('/').next().unwrap_or(image);
    if image.contains('@') || last.contains(':') {
        return (image.to_owned(), None);
    }
    (image.to_owned(), Some("latest".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_without_a_tag_is_the_latest() {
        for (image, tag) in [
            ("node", Some("latest")),
            ("localhost:5000/node", Some("latest")),
            ("node:1", None),
            ("localhost:5000/node:1", None),
            ("node@sha256:00", None),
        ] {
            assert_eq!(named(image), (image.to_owned(), tag.map(str::to_owned)));
        }
    }

    #[test]
    fn progress_is_never_above_a_hundred() {
        assert_eq!((percent(1, 3), percent(9, 3), percent(1, 0), percent(-1, 3)), (33, 100, 0, 0));
    }
}
