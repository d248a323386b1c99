//! Answers for people, and for scripts.

use std::fs::{OpenOptions, create_dir_all};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use serde_json::Value;

use crate::{log, screen, terminal};

/// Writes a file that is not there yet, and the folders above it.
pub(crate) fn new_file(path: &Path, mode: u32, text: &str) -> io::Result<()> {
    path.parent().map_or(Ok(()), create_dir_all)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(text.as_bytes())
}

/// How an answer is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people
    #[default]
    Text,
    /// For scripts
    Json,
    /// For scripts, and easier to read
    Yaml,
}

impl Output {
    /// Whether `--watch` can be shown.
    ///
    /// # Errors
    /// The output is for scripts, or is no terminal.
    pub(crate) fn may_watch(self) -> anyhow::Result<()> {
        if self == Self::Text && screen::is_live() {
            return Ok(());
        }
        bail!("--watch needs a terminal; for scripts there is `kubectl get -w -o json`")
    }

    /// Prints `page` for people, and what it tells of for scripts. Foreign text of the page has been escaped.
    pub(crate) fn print(self, page: &str, data: &Value) -> anyhow::Result<()> {
        match self {
            Self::Text => log::page(page.trim_end()),
            Self::Json => log::page(format_args!("{data:#}")),
            Self::Yaml => {
                let text = serde_saphyr::to_string(data).context("it cannot be shown as YAML")?;
                log::page(terminal::lines(text.trim_end()));
            }
        }
        Ok(())
    }
}

/// `data` with the fields of `more`.
pub(crate) fn merged(mut data: Value, more: Value) -> Value {
    if let (Value::Object(data), Value::Object(more)) = (&mut data, more) {
        data.extend(more);
    }
    data
}
