//! What a terminal may be shown: text of others cannot move its cursor, set its title, or begin a line.
//!
//! Drivers, nodes and authors of objects write much of what is printed here, and a terminal does what control characters say.

use std::fmt::Write as _;

/// One line: control characters, line breaks among them, stand there as escapes.
pub(crate) fn line(text: &str) -> String {
    visible(text, |_| false)
}

/// Several lines: as [`line`], but a line break is one. Only for text whose line breaks are the program's own.
pub(crate) fn lines(text: &str) -> String {
    visible(text, |c| c == '\n')
}

/// Escapes what acts on a terminal or reorders what is read: C0, DEL, C1, separators of lines and paragraphs, marks and overrides of direction.
///
/// Characters from DEL on are escaped as JSON escapes them, so that JSON stays JSON.
fn visible(text: &str, keep: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        let _infallible = match c {
            c if keep(c) => shown.write_char(c),
            '\n' => shown.write_str("\\n"),
            '\r' => shown.write_str("\\r"),
            '\t' => shown.write_str("\\t"),
            '\0'..' ' => write!(shown, "\\x{:02x}", u32::from(c)),
            '\u{7f}'..='\u{9f}'
            | '\u{61c}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
            | '\u{feff}' => write!(shown, "\\u{:04x}", u32::from(c)),
            c => shown.write_char(c),
        };
    }
    shown
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// What a driver sent to take a terminal over: a title, a cleared screen, and a line that looks like one of ours.
    pub(crate) const HOSTILE: &str = "\x1b]0;PWNED-TITLE\x07\x1b[2J\x1b[31mred\x1b[0m\r\n12:00:00.000 ready: forged line \u{9b}2J\u{202e}txet\u{2028}";

    /// Nothing acts on a terminal; one line at most unless `lines`.
    pub(crate) fn assert_harmless(shown: &str) {
        for c in shown.chars() {
            let acts = (c.is_control() && c != '\n')
                || ('\u{2028}'..='\u{202e}').contains(&c)
                || ('\u{2066}'..='\u{2069}').contains(&c);
            assert!(!acts, "{c:?} is in {shown:?}");
        }
        let forged = shown.lines().any(|line| line.starts_with("12:00:00.000 ready"));
        assert!(!forged, "a line of its own: {shown:?}");
    }

    #[test]
    fn what_a_driver_says_is_one_line_in_which_every_control_character_can_be_seen() {
        let shown = line(HOSTILE);
        assert_eq!(
            shown,
            "\\x1b]0;PWNED-TITLE\\x07\\x1b[2J\\x1b[31mred\\x1b[0m\\r\\n12:00:00.000 ready: forged line \\u009b2J\\u202etxet\\u2028"
        );
        assert_harmless(&shown);
    }

    #[test]
    fn text_in_any_language_stays_as_it_is() {
        let text = "Müller 机器 ماكينة e\u{301} 🐴 ✓ C:\\new";
        assert_eq!(line(text), text);
    }

    #[test]
    fn only_line_breaks_are_kept_of_several_lines() {
        assert_eq!(lines("a\n\tb\x1b[2J\r\nc"), "a\n\\tb\\x1b[2J\\r\nc");
    }

    #[test]
    fn json_stays_json() {
        let value = serde_json::json!({ "said": format!("{HOSTILE}\u{7f}") });
        let shown = lines(&format!("{value:#}"));
        assert_harmless(&shown);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
    }
}
