//! The logging flags of machine-controller-manager, from component-base and klog.

use clap::{ArgAction, Args, ValueEnum};

/// How log lines are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Flags that say where and how Go's klog writes. Here every line goes to stderr immediately, by
/// one level.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct KlogArgs {
    /// How log lines are written: text or json
    #[arg(long, value_enum, default_value_t)]
    pub(crate) logging_format: LogFormat,
    /// Has no effect: give RUST_LOG, for example ostler_controllers=debug
    #[arg(long, value_name = "PATTERN=LEVEL,…")]
    vmodule: Option<String>,
    /// Has no effect: every line is written immediately
    #[arg(long, value_name = "DURATION", value_parser = crate::duration::duration)]
    log_flush_frequency: Option<std::time::Duration>,
    #[command(flatten)]
    ignored: Ignored,
}

macro_rules! ignored {
    (switches { $($switch:ident $switch_flag:literal,)* } values { $($value:ident $value_flag:literal,)* }) => {
        /// Flags without a counterpart, accepted so that a command line goes on working.
        #[derive(Debug, Clone, Default, Args)]
        struct Ignored {
            $(#[arg(long = $switch_flag, hide = true, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
            $switch: Option<bool>,)*
            $(#[arg(long = $value_flag, hide = true)]
            $value: Option<String>,)*
        }

        impl Ignored {
            fn given(&self) -> impl Iterator<Item = &'static str> {
                [
                    $((self.$switch.is_some(), concat!("--", $switch_flag)),)*
                    $((self.$value.is_some(), concat!("--", $value_flag)),)*
                ]
                .into_iter()
                .filter_map(|(given, flag)| given.then_some(flag))
            }
        }
    };
}

ignored! {
    switches {
    logtostderr "logtostderr",
    alsologtostderr "alsologtostderr",
    add_dir_header "add-dir-header",
    skip_headers "skip-headers",
    skip_log_headers "skip-log-headers",
    one_output "one-output",
    json_split_stream "log-json-split-stream",
    text_split_stream "log-text-split-stream",
    }
    values {
    stderrthreshold "stderrthreshold",
    log_dir "log-dir",
    log_file "log-file",
    log_file_max_size "log-file-max-size",
    log_backtrace_at "log-backtrace-at",
    json_info_buffer_size "log-json-info-buffer-size",
    text_info_buffer_size "log-text-info-buffer-size",
    feature_gates "feature-gates",
    }
}

impl KlogArgs {
    /// Flags that were given and change nothing.
    pub(crate) fn without_effect(&self) -> impl Iterator<Item = &'static str> {
        let own = [
            (self.vmodule.is_some(), "--vmodule"),
            (self.log_flush_frequency.is_some(), "--log-flush-frequency"),
        ];
        own.into_iter()
            .filter_map(|(given, flag)| given.then_some(flag))
            .chain(self.ignored.given())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        klog: KlogArgs,
    }

    fn klog(args: &[&str]) -> Result<KlogArgs, clap::Error> {
        Line::try_parse_from([&["x"], args].concat()).map(|line| line.klog)
    }

    #[test]
    fn the_logging_flags_of_component_base_are_taken_and_those_without_effect_are_named() {
        let given = klog(&[
            "--logging-format=json",
            "--vmodule=machine*=5",
            "--log-flush-frequency=5s",
            "--logtostderr",
            "--stderrthreshold",
            "2",
            "--log-json-split-stream=false",
            "--feature-gates=A=true",
        ]);
        let given = given.unwrap();
        assert_eq!(given.logging_format, LogFormat::Json);
        let named: Vec<_> = given.without_effect().collect();
        let expected = [
            "--vmodule",
            "--log-flush-frequency",
            "--logtostderr",
            "--log-json-split-stream",
            "--stderrthreshold",
            "--feature-gates",
        ];
        assert_eq!(named, expected);
        assert_eq!(klog(&[]).unwrap().without_effect().count(), 0);
    }

    #[test]
    fn values_that_are_none_are_refused_with_their_flag() {
        for wrong in ["--logging-format=xml", "--log-flush-frequency=soon", "--logtostderr=perhaps"]
        {
            let refused = klog(&[wrong]).unwrap_err().to_string();
            assert!(refused.contains(wrong.split('=').next().unwrap()), "{refused}");
        }
    }
}
