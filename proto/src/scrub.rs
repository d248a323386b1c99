//! Taking confidential values out of texts that leave a process.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

/// Shorter values are ordinary words: replacing them would spoil messages and hide nothing.
const SHORTEST_VALUE: usize = 8;
/// Lines of longer values, e.g. of keys and user data; shorter ones are ordinary words too.
const SHORTEST_LINE: usize = 16;
/// Fewer letters of a value give nothing away, and are at the end of every other text.
const PART: usize = 4;
const MARK: &str = "***";

/// What is looked for in texts, made once for all of them.
pub struct Scrubber {
    /// The longest first: a part of a value must not break up the whole.
    needles: Vec<String>,
    /// The same in the order of their texts.
    sorted: Vec<String>,
}

impl Scrubber {
    /// Looks for everything that gives away one of `values`: the value, its long lines, and both in base64.
    pub fn new<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut sorted: Vec<String> = values.into_iter().flat_map(needles).collect();
        sorted.sort_unstable();
        sorted.dedup();
        let mut needles = sorted.clone();
        needles.sort_by_key(|needle| std::cmp::Reverse(needle.len()));
        Self { needles, sorted }
    }

    /// `text` with all of it replaced.
    pub fn scrub(&self, text: &str) -> String {
        self.needles.iter().fold(text.to_owned(), |text, needle| {
            if text.contains(needle.as_str()) { text.replace(needle.as_str(), MARK) } else { text }
        })
    }
}

impl Scrubber {
    /// The first `most` bytes of a text, scrubbed, without bootstrap tokens, and without the beginning of one of these where
    /// the text is cut. However long it is, no more of it is looked at.
    pub fn scrub_start(&self, text: &str, most: usize) -> String {
        let mut kept = text.get(..text.floor_char_boundary(most)).unwrap_or_default();
        if kept.len() < text.len() {
            while let Some(start) = self.begins(kept).or_else(|| begun_token(kept)) {
                kept = kept.get(..start).unwrap_or_default();
            }
        }
        scrub_bootstrap_tokens(&self.scrub(kept))
    }

    /// Where the earliest value begins of which the text ends in the midst.
    fn begins(&self, text: &str) -> Option<usize> {
        let longest = self.needles.first().map_or(0, String::len);
        let is_begun = |end: &str| {
            let next = self.sorted.partition_point(|needle| needle.as_str() <= end);
            self.sorted.get(next).is_some_and(|needle| needle.starts_with(end))
        };
        let mut ends = text.char_indices().filter_map(|(at, _)| Some((at, text.get(at..)?)));
        let found = ends.find(|(_, end)| (PART..longest).contains(&end.len()) && is_begun(end));
        found.map(|(at, _)| at)
    }
}

/// Without the values.
impl std::fmt::Debug for Scrubber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scrubber").finish_non_exhaustive()
    }
}

/// One text as by a [`Scrubber`] of `values`.
pub fn scrub<'a>(text: &str, values: impl IntoIterator<Item = &'a [u8]>) -> String {
    if text.len() < SHORTEST_VALUE { text.to_owned() } else { Scrubber::new(values).scrub(text) }
}

/// Where a bootstrap token begins of which the text ends in the midst of the secret part.
fn begun_token(text: &str) -> Option<usize> {
    let (before, secret) = text.rsplit_once('.')?;
    let is_part = |part: &str| part.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let start = before.len().checked_sub(6)?;
    let id = before.get(start..)?;
    (secret.len() <= 16 && is_part(secret) && is_part(id)).then_some(start)
}

/// `text` without Kubernetes bootstrap tokens, which every node's user data holds.
pub fn scrub_bootstrap_tokens(text: &str) -> String {
    let is_part = |part: &str, length| {
        part.len() == length
            && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    let mut scrubbed = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(dot) = rest.find('.') {
        let (before, after) = rest.split_at(dot);
        let start =
            before.len() - before.bytes().rev().take_while(u8::is_ascii_alphanumeric).count();
        let secret = after.get(1..).unwrap_or_default();
        let end = secret.bytes().take_while(u8::is_ascii_alphanumeric).count();
        let (id, secret) =
            (before.get(start..).unwrap_or_default(), secret.get(..end).unwrap_or_default());
        let taken = if is_part(id, 6) && is_part(secret, 16) {
            scrubbed.push_str(before.get(..start).unwrap_or_default());
            scrubbed.push_str(MARK);
            dot + 1 + end
        } else {
            scrubbed.push_str(before);
            scrubbed.push('.');
            dot + 1
        };
        rest = rest.get(taken..).unwrap_or_default();
    }
    scrubbed + rest
}

fn needles(value: &[u8]) -> Vec<String> {
    let mut needles = Vec::new();
    let text = std::str::from_utf8(value).unwrap_or_default();
    let trimmed = text.trim();
    let long_lines = trimmed.lines().map(str::trim).filter(|line| line.len() >= SHORTEST_LINE);
    let parts = std::iter::once(trimmed).chain(long_lines);
    for part in parts.filter(|part| part.len() >= SHORTEST_VALUE) {
        needles.push(part.to_owned());
        needles.extend(encoded(part.as_bytes()));
    }
    if value.len() >= SHORTEST_VALUE {
        needles.extend(encoded(value));
    }
    needles
}

fn encoded(value: &[u8]) -> [String; 2] {
    [STANDARD_NO_PAD.encode(value), URL_SAFE_NO_PAD.encode(value)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, values: &[&str]) -> String {
        scrub(text, values.iter().map(|value| value.as_bytes()))
    }

    #[test]
    fn a_value_goes_wherever_it_stands_raw_or_encoded() {
        let value = "canary-7f3a\n";
        assert_eq!(
            of("login canary-7f3a refused: canary-7f3a", &[value]),
            "login *** refused: ***"
        );
        for encoded in [STANDARD_NO_PAD.encode(value), STANDARD_NO_PAD.encode(value.trim())] {
            assert_eq!(of(&format!("header {encoded}="), &[value]), "header ***=");
        }
    }

    #[test]
    fn the_lines_of_a_key_go_one_by_one() {
        let key = "-----BEGIN KEY-----\nMIIEvAIBADANBgkqhkiG9w0BAQ\nshort\n-----END KEY-----\n";
        assert_eq!(of("bad key MIIEvAIBADANBgkqhkiG9w0BAQ, short", &[key]), "bad key ***, short");
        assert_eq!(of(&format!("bad key {key}"), &[key]), "bad key ***\n");
    }

    #[test]
    fn the_start_of_a_long_text_shows_no_part_of_what_its_cut_goes_through() {
        let values = ["canary-7f3a", "Tokens-7canary", "first line of a key\nand its second one"];
        let scrubber = Scrubber::new(values.iter().map(|value| value.as_bytes()));
        for (text, most, expected) in [
            ("canary-7f3a is short", 100, "*** is short"),
            ("login canary-7f3a refused", 16, "login "),
            ("login canary-7f3a refused", 17, "login ***"),
            ("login canary-7f3a refused", 20, "login *** re"),
            ("login Y2FuYXJ5LTdmM2E refused", 16, "login "),
            ("Tokens-7canary-7f3a", 18, ""),
            ("key first line of a key\nand its", 28, "key "),
            ("join abcdef.0123456789abcdef now", 20, "join "),
            ("join abcdef.0123456789abcdef now", 29, "join *** "),
            ("caf\u{e9}s", 4, "caf"),
        ] {
            assert_eq!(scrubber.scrub_start(text, most), expected, "{text} {most}");
        }
    }

    #[test]
    fn short_values_are_words_and_stay() {
        assert_eq!(of("region eu-1 is full", &["eu-1", "", "full"]), "region eu-1 is full");
    }

    #[test]
    fn a_value_within_a_value_does_not_break_up_the_longer_one() {
        let longer = "canary-password-and-more";
        assert_eq!(of(&format!("<{longer}>"), &["canary-password", longer]), "<***>");
    }

    #[test]
    fn bootstrap_tokens_go_and_ordinary_names_stay() {
        let cases = [
            ("--token abcdef.0123456789abcdef --x", "--token *** --x"),
            ("abcdef.0123456789abcdef", "***"),
            ("a.abcdef.0123456789abcdef.b", "a.***.b"),
            ("node.example.com: i/o timeout.", "node.example.com: i/o timeout."),
            ("abcdef.0123456789abcdeX", "abcdef.0123456789abcdeX"),
            ("é.ü", "é.ü"),
            ("", ""),
        ];
        for (text, expected) in cases {
            assert_eq!(scrub_bootstrap_tokens(text), expected);
        }
    }
}
