//! The string formats that schemas can name. An unknown format accepts everything.

use std::{
    net::{Ipv4Addr, Ipv6Addr},
    sync::LazyLock,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use regex::Regex;

/// Whether a text has a format.
pub(crate) fn matches(format: &str, text: &str) -> bool {
    match format {
        "date-time" | "datetime" => is_date_time(text),
        "date" => text.parse::<jiff::civil::Date>().is_ok() && text.len() == 10,
        "duration" => is_duration(text),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr(text),
        "mac" => is_mac(text),
        "uuid" => uuid_version(text).is_some(),
        "uuid3" => uuid_version(text) == Some('3'),
        "uuid4" => uuid_version(text) == Some('4'),
        "uuid5" => uuid_version(text) == Some('5'),
        "byte" => STANDARD.decode(text).is_ok(),
        "uri" => text.split_once(':').is_some_and(|(scheme, _)| is_scheme(scheme)),
        "hostname" => text.len() <= 255 && fits(&HOSTNAME, text),
        "email" => fits(&EMAIL, text),
        "hexcolor" => fits(&HEX_COLOR, text),
        _ => true,
    }
}

static HOSTNAME: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"^[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?(\.[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?)*\.?$",
    )
    .ok()
});
static EMAIL: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"^[^@\s<>]+@[^@\s<>]+$").ok());
static HEX_COLOR: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$").ok());
static DURATION: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"^[-+]?(0|([0-9]+(\.[0-9]*)?|\.[0-9]+)\s*(ns|us|µs|ms|s|m|h|d|w)(([0-9]+(\.[0-9]*)?)\s*(ns|us|µs|ms|s|m|h|d|w))*)$").ok()
});
static DATE_TIME: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"^\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})$").ok()
});

fn fits(pattern: &LazyLock<Option<Regex>>, text: &str) -> bool {
    pattern.as_ref().is_none_or(|pattern| pattern.is_match(text))
}

/// Whether a text is an RFC 3339 time.
pub(crate) fn is_date_time(text: &str) -> bool {
    fits(&DATE_TIME, text) && text.parse::<jiff::Timestamp>().is_ok()
}

fn is_duration(text: &str) -> bool {
    fits(&DURATION, text)
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let Ok(bits) = bits.parse::<u8>() else { return false };
    (address.parse::<Ipv4Addr>().is_ok() && bits <= 32)
        || (address.parse::<Ipv6Addr>().is_ok() && bits <= 128)
}

fn is_mac(text: &str) -> bool {
    let separator = if text.contains('-') { '-' } else { ':' };
    let parts: Vec<&str> = text.split(separator).collect();
    matches!(parts.len(), 6 | 8 | 20)
        && parts.iter().all(|part| part.len() == 2 && u8::from_str_radix(part, 16).is_ok())
}

fn uuid_version(text: &str) -> Option<char> {
    let hex: String = text.chars().filter(|c| *c != '-').collect();
    let shaped = hex.len() == 32 && hex.chars().all(|c| c.is_ascii_hexdigit());
    if shaped { hex.chars().nth(12) } else { None }
}

fn is_scheme(scheme: &str) -> bool {
    scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
}
