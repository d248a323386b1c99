//! How long ago: `17s`, `5m30s`, `3h`, `41d`.

use jiff::Timestamp;
use serde_json::Value;

/// The time since an RFC 3339 time, as people read it.
pub(super) fn since(time: &str, now: Timestamp) -> Value {
    Value::from(match time.parse::<Timestamp>() {
        Ok(then) => words(now.as_second() - then.as_second()),
        Err(_) if time.is_empty() => "<unknown>".to_owned(),
        Err(_) => "<invalid>".to_owned(),
    })
}

/// The age of an object.
pub(super) fn of(object: &Value, now: Timestamp) -> Value {
    let time = object.pointer("/metadata/creationTimestamp").and_then(Value::as_str);
    since(time.unwrap_or_default(), now)
}

/// A duration for people: two units while short, one unit when long.
pub(super) fn words(seconds: i64) -> String {
    // clocks may differ a little
    if seconds < -1 {
        return "<invalid>".to_owned();
    }
    let seconds = seconds.max(0);
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let (days, years) = (hours / 24, hours / 24 / 365);
    let two = |large: i64, large_unit: char, small: i64, small_unit: char| {
        if small == 0 {
            format!("{large}{large_unit}")
        } else {
            format!("{large}{large_unit}{small}{small_unit}")
        }
    };
    match () {
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => two(minutes, 'm', seconds % 60, 's'),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => two(hours, 'h', minutes % 60, 'm'),
        () if hours < 48 => format!("{hours}h"),
        () if days < 8 => two(days, 'd', hours % 24, 'h'),
        () if years < 2 => format!("{days}d"),
        () if years < 8 => two(years, 'y', days % 365, 'd'),
        () => format!("{years}y"),
    }
}
