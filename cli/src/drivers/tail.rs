//! `ostler drivers tail`: frames as they pass.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use ostler_proto::json;
use ostler_proto::v1alpha1::{FrameDirection, FrameInfo, TailFramesRequest};

use super::client::{Client, told};
use super::{Output, show};
use crate::log;

/// Which frames.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  ostler drivers tail fake.ostler.dev --text

  16:20:22.104 fake.ostler.dev >> operation getMachineStatus m-1 5cb6… 312 bytes

>> goes to the driver, << comes from it. Ctrl-C ends it.")]
pub(super) struct Args {
    /// Only frames of this provider
    provider: Option<String>,
    /// Only frames of this session
    #[arg(long)]
    session: Option<String>,
    /// Heartbeats as well
    #[arg(long)]
    heartbeats: bool,
    /// What is in each frame, as JSON
    #[arg(long)]
    text: bool,
    /// End after so many frames
    #[arg(long, value_name = "FRAMES")]
    count: Option<u64>,
}

pub(super) async fn run(mut client: Client, args: Args, output: Output) -> anyhow::Result<()> {
    let request = TailFramesRequest {
        provider: args.provider.unwrap_or_default(),
        session_id: args.session.unwrap_or_default(),
        heartbeats: args.heartbeats,
    };
    let mut frames = client.tail_frames(request).await.map_err(told)?.into_inner();
    let mut left = args.count;
    while left != Some(0) {
        let Some(next) = frames.message().await.map_err(told)? else { return Ok(()) };
        if output == Output::Json {
            log::say(json::to_json(&next));
        } else {
            if next.lost > 0 {
                log::note(format_args!("{} frames were lost here: they came too fast", next.lost));
            }
            if let Some(frame) = &next.frame {
                log::say(line(frame, args.text));
            }
        }
        if next.frame.is_some() {
            left = left.map(|left| left.saturating_sub(1));
        }
    }
    Ok(())
}

fn line(frame: &FrameInfo, text: bool) -> String {
    let time = frame.time.and_then(|time| Timestamp::new(time.seconds, time.nanos).ok());
    let time = time.unwrap_or(Timestamp::UNIX_EPOCH).to_zoned(TimeZone::system());
    let arrow = match frame.direction() {
        FrameDirection::CoreToDriver => ">>",
        FrameDirection::DriverToCore => "<<",
        FrameDirection::Unspecified => "--",
    };
    let kind = if frame.kind.is_empty() { "unknown" } else { &frame.kind };
    let target = frame.target.as_ref().map(show::target).unwrap_or_default();
    let size = format!("{} bytes", frame.size);
    let text = if text { frame.text.as_str() } else { "" };
    let time = time.strftime("%H:%M:%S%.3f").to_string();
    let parts = [
        &time,
        &frame.provider,
        arrow,
        kind,
        &frame.operation,
        &target,
        &frame.operation_id,
        &size,
        text,
    ];
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use ostler_proto::v1alpha1::Target;

    use super::*;

    #[test]
    fn a_frame_is_one_line_of_what_is_known() {
        let frame = FrameInfo {
            provider: "fake.ostler.dev".to_owned(),
            direction: FrameDirection::CoreToDriver.into(),
            kind: "operation".to_owned(),
            operation: "getMachineStatus".to_owned(),
            operation_id: "op-1".to_owned(),
            target: Some(Target { name: "fake-1".to_owned(), ..Target::default() }),
            size: 312,
            text: "{}".to_owned(),
            ..FrameInfo::default()
        };
        let short = line(&frame, false);
        let rest = "fake.ostler.dev >> operation getMachineStatus fake-1 op-1 312 bytes";
        assert!(short.ends_with(rest), "{short}");
        assert!(line(&frame, true).ends_with("312 bytes {}"));
        let strange =
            FrameInfo { direction: FrameDirection::DriverToCore.into(), ..<_>::default() };
        assert!(line(&strange, true).ends_with("<< unknown 0 bytes"));
    }
}
