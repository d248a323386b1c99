//! Translates a command line of machine-controller: each flag is put before the core's own parser.

use clap::error::ErrorKind;
use clap::{Arg, CommandFactory as _, Parser as _};

use crate::command::{Args, agree};
use crate::upstream::normal;

/// The name that the parser wants first.
const PROGRAM: &str = "ostler-server";

/// The core's reading of a command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLine {
    /// The flags, in order.
    pub flags: Vec<Flag>,
    /// Why the core does not take them together, though it may take each.
    pub refused: Option<String>,
}

/// One flag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flag {
    /// With its hyphens.
    pub name: String,
    /// The value, if given.
    pub value: Option<String>,
    /// The effect of the flag.
    pub becomes: Becomes,
}

/// The effect of a flag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Becomes {
    /// The same flag of the core, with the core's help text.
    Same(String),
    /// Nothing: the core accepts and ignores the flag.
    NoEffect,
    /// An error: the core does not start with it, for this reason.
    Refused(String),
    /// An error: the core has no such flag.
    Unknown,
}

/// The core's reading of the arguments, without the name of the program.
pub fn command_line(args: impl IntoIterator<Item = String>) -> CommandLine {
    let command = Args::command();
    let mut rest = normal(args).peekable();
    let mut flags = Vec::new();
    while let Some(word) = rest.next() {
        let (name, mut value) = match word.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
            None => (word.clone(), None),
        };
        if !name.starts_with('-') {
            let becomes = Becomes::Refused("it is no flag".to_owned());
            flags.push(Flag { name: word, value: None, becomes });
            continue;
        }
        let known = command.get_arguments().find(|arg| is_named(arg, &name));
        if value.is_none() && known.is_none_or(takes_a_word) {
            value = rest.next_if(|next| !next.starts_with('-'));
        }
        let becomes = known.map_or(Becomes::Unknown, |arg| becomes(arg, &name, value.as_deref()));
        flags.push(Flag { name, value, becomes });
    }
    let refused = refused(&flags);
    CommandLine { flags, refused }
}

fn is_named(arg: &Arg, name: &str) -> bool {
    match name.strip_prefix("--") {
        Some(long) => arg.get_long() == Some(long),
        None => {
            arg.get_short().is_some_and(|short| name.strip_prefix('-') == Some(&short.to_string()))
        }
    }
}

/// Whether the value of a flag may be the next word, and not only behind a `=`.
fn takes_a_word(arg: &Arg) -> bool {
    !arg.is_require_equals_set() && arg.get_action().takes_values()
}

fn written(name: &str, value: Option<&str>) -> String {
    value.map_or_else(|| name.to_owned(), |value| format!("{name}={value}"))
}

fn becomes(arg: &Arg, name: &str, value: Option<&str>) -> Becomes {
    let same = || {
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        Becomes::Same(help.lines().next().unwrap_or_default().to_owned())
    };
    match Args::try_parse_from([PROGRAM.to_owned(), written(name, value)]) {
        Ok(args) => match args.upstream.check() {
            Err(why) => Becomes::Refused(why.to_string()),
            Ok(()) if args.upstream.without_effect().next().is_some() => Becomes::NoEffect,
            Ok(()) => same(),
        },
        // Of two that belong together, each is fine.
        Err(error) if error.kind() == ErrorKind::MissingRequiredArgument => same(),
        Err(error) => Becomes::Refused(first_line(&error)),
    }
}

/// Why flags that the core knows do not go together.
fn refused(flags: &[Flag]) -> Option<String> {
    let taken = flags.iter().filter(|flag| matches!(flag.becomes, Becomes::Same(_)));
    let words = taken.map(|flag| written(&flag.name, flag.value.as_deref()));
    match Args::try_parse_from([PROGRAM.to_owned()].into_iter().chain(words)) {
        Ok(args) => agree(&args).err().map(|why| why.to_string()),
        Err(error) => Some(first_line(&error)),
    }
}

fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let lines: Vec<&str> =
        text.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
    lines.join(" ").trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &str) -> CommandLine {
        command_line(words.split_whitespace().map(str::to_owned))
    }

    fn kind(becomes: &Becomes) -> &'static str {
        match becomes {
            Becomes::Same(_) => "same",
            Becomes::NoEffect => "nothing",
            Becomes::Refused(_) => "refused",
            Becomes::Unknown => "unknown",
        }
    }

    #[test]
    fn each_flag_becomes_what_the_core_makes_of_it() {
        for (words, expected) in [
            ("--machine-drain-timeout=2h", "same"),
            ("--machine_drain_timeout 2h", "same"),
            ("--kube-api-qps=20", "same"),
            ("--machine-pv-detach-timeout 2m", "same"),
            ("--leader-elect", "same"),
            ("-v=3", "same"),
            ("--v 3", "same"),
            ("--min-resync-period=12h", "nothing"),
            ("--logtostderr", "nothing"),
            ("--profiling", "refused"),
            ("--machine-drain-timeout=soon", "refused"),
            ("--leader-elect-resource-lock=endpoints", "refused"),
            ("--safety-up=2", "same"),
            ("--concurrent-pony-syncs=2", "unknown"),
            ("stray", "refused"),
        ] {
            let flags = of(words).flags;
            let kinds: Vec<_> = flags.iter().map(|flag| kind(&flag.becomes)).collect();
            assert_eq!(kinds, [expected], "{words}: {flags:?}");
        }
    }

    #[test]
    fn a_flag_says_what_the_help_of_the_core_says_and_why_it_is_refused() {
        let flags =
            of("--machine-drain-timeout=2h --machine-health-timeout=soon --profiling").flags;
        let [Becomes::Same(help), Becomes::Refused(wrong), Becomes::Refused(profiling)] =
            [&flags[0], &flags[1], &flags[2]].map(|flag| &flag.becomes)
        else {
            panic!("{flags:?}")
        };
        assert!(help.contains("force"), "{help}");
        assert!(wrong.contains("`soon`") && !wrong.contains('\n'), "{wrong}");
        assert!(profiling.contains("/metrics"), "{profiling}");
    }

    #[test]
    fn a_value_that_follows_belongs_to_its_flag_and_to_no_switch() {
        let flags = of("--namespace shoot --leader-elect --port 1 --unheard of").flags;
        let values: Vec<_> =
            flags.iter().map(|flag| (flag.name.as_str(), flag.value.as_deref())).collect();
        let expected = [
            ("--namespace", Some("shoot")),
            ("--leader-elect", None),
            ("--port", Some("1")),
            ("--unheard", Some("of")),
        ];
        assert_eq!(values, expected);
    }

    #[test]
    fn flags_that_do_not_go_together_are_told_together() {
        assert_eq!(of("--kube-api-qps=20 --kube-api-burst=30").refused, None);
        let lease = "--leader-elect-lease-duration=5s --leader-elect-renew-deadline=10s";
        assert!(of(lease).refused.unwrap().contains("leader election"));
        assert_eq!(of("--safety-up=2 --profiling").refused, None, "each says it itself");
    }
}
