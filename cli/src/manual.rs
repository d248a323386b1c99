//! `ostler completion` and `ostler man`: what a shell and `man` know of the commands, made from their definitions.

use std::io;
use std::path::PathBuf;

use anyhow::Context as _;
use clap_complete::Shell;

use crate::{log, terminal};

/// Which shell.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  source <(ostler completion bash)
  ostler completion zsh > \"${fpath[1]}/_ostler\"
  ostler completion fish > ~/.config/fish/completions/ostler.fish")]
pub(crate) struct CompletionArgs {
    /// The shell
    shell: Shell,
}

/// Where the pages go.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ostler man ~/.local/share/man/man1 && man ostler-up")]
pub(crate) struct ManArgs {
    /// The directory; one that is not there is made
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// Prints the script.
pub(crate) fn complete(mut command: clap::Command, args: &CompletionArgs) {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "ostler", &mut script);
    // The script is of this program, and its lines have tabs and more.
    log::raw(&script);
}

/// Writes a page for each command.
///
/// # Errors
/// They cannot be written.
pub(crate) fn pages(command: clap::Command, args: &ManArgs) -> anyhow::Result<()> {
    let written = || -> io::Result<()> {
        std::fs::create_dir_all(&args.dir)?;
        clap_mangen::generate_to(command, &args.dir)
    };
    written().with_context(|| format!("{} cannot be written", args.dir.display()))?;
    log::say(format_args!("pages are in {}", terminal::line(&args.dir.display().to_string())));
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::Cli;

    #[test]
    fn every_shell_has_completions_and_every_command_a_page() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "ostler", &mut script);
            assert!(String::from_utf8(script).unwrap().contains("rollout"), "{shell}");
        }
        let dir = tempfile::tempdir().unwrap();
        pages(Cli::command(), &ManArgs { dir: dir.path().join("man1") }).unwrap();
        for page in ["ostler.1", "ostler-status.1", "ostler-rollout-status.1"] {
            assert!(dir.path().join("man1").join(page).exists(), "{page}");
        }
    }
}
