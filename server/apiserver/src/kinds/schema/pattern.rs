//! Patterns of schemas: written for Go's regular expressions, run with ours.
//!
//! The two differ in a few places, and a definition that a real cluster accepts must mean the same
//! here: `\d`, `\w`, `\s` and `\b` are ASCII in Go, brackets do not nest in classes, and `\Q…\E`
//! quotes.

use std::{fmt, iter::Peekable, num::NonZeroUsize, str::Chars, sync::LazyLock};

use lru::LruCache;
use parking_lot::Mutex;
use regex::Regex;

/// Compiled patterns by their text. A definition is parsed and checked at each write, and its patterns mostly stay the
/// same.
static COMPILED: LazyLock<Mutex<LruCache<String, Regex>>> =
    LazyLock::new(|| Mutex::new(LruCache::new(KEPT)));
/// How many of them are kept. `regex` refuses one of over 10 MiB, so even the worst that
/// definitions can say stays in memory that a control plane has.
const KEPT: NonZeroUsize = NonZeroUsize::new(64).unwrap();

/// A compiled pattern with its original text. The translation is not recursive, and `regex` refuses patterns that nest
/// deeper than 250 levels.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    written: String,
    regex: Regex,
}

impl Pattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// It is malformed, or too large to be run.
    pub(crate) fn new(written: &str) -> Result<Self, regex::Error> {
        let mut compiled = COMPILED.lock();
        if let Some(regex) = compiled.get(written) {
            return Ok(Self { written: written.to_owned(), regex: regex.clone() });
        }
        let regex = Regex::new(&translate(written))?;
        compiled.put(written.to_owned(), regex.clone());
        Ok(Self { written: written.to_owned(), regex })
    }

    /// Whether any part of the text matches.
    pub(crate) fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written)
    }
}

fn translate(written: &str) -> String {
    let mut out = String::with_capacity(written.len() + 16);
    let mut rest = written.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\\' => escape(&mut rest, false, &mut out),
            '[' => class(&mut rest, &mut out),
            c => out.push(c),
        }
    }
    out
}

/// Translates the escape after a backslash.
fn escape(rest: &mut Peekable<Chars<'_>>, in_class: bool, out: &mut String) {
    let Some(c) = rest.next() else {
        out.push('\\');
        return;
    };
    match (c, in_class) {
        ('d', false) => out.push_str("[0-9]"),
        ('d', true) => out.push_str("0-9"),
        ('w', false) => out.push_str("[0-9A-Za-z_]"),
        ('w', true) => out.push_str("0-9A-Za-z_"),
        ('s', false) => out.push_str(r"[\t\n\f\r ]"),
        ('s', true) => out.push_str(r"\t\n\f\r "),
        ('D', _) => out.push_str("[^0-9]"),
        ('W', _) => out.push_str("[^0-9A-Za-z_]"),
        ('S', _) => out.push_str(r"[^\t\n\f\r ]"),
        ('b' | 'B', false) => {
            out.push_str(r"(?-u:\");
            out.push(c);
            out.push(')');
        }
        ('Q', false) => quoted(rest, out),
        (c, _) => {
            out.push('\\');
            out.push(c);
        }
    }
}

/// Text up to `\E`, or to the end, stands for itself.
fn quoted(rest: &mut Peekable<Chars<'_>>, out: &mut String) {
    let mut literal = String::new();
    while let Some(c) = rest.next() {
        if c == '\\' && rest.peek() == Some(&'E') {
            rest.next();
            break;
        }
        literal.push(c);
    }
    out.push_str(&regex::escape(&literal));
}

/// A character class, of which the opening bracket has been read.
fn class(rest: &mut Peekable<Chars<'_>>, out: &mut String) {
    out.push('[');
    if rest.next_if_eq(&'^').is_some() {
        out.push('^');
    }
    // a closing bracket that comes first is a member
    if rest.next_if_eq(&']').is_some() {
        out.push_str(r"\]");
    }
    while let Some(c) = rest.next() {
        match c {
            ']' => {
                out.push(']');
                return;
            }
            '\\' => escape(rest, true, out),
            '[' if rest.peek() == Some(&':') => named(rest, out),
            '[' | '&' | '~' => {
                out.push('\\');
                out.push(c);
            }
            '-' if rest.peek() == Some(&'-') => out.push_str(r"\-"),
            c => out.push(c),
        }
    }
}

/// A named class such as `[:alpha:]` inside a class, of which the bracket has been read.
fn named(rest: &mut Peekable<Chars<'_>>, out: &mut String) {
    out.push('[');
    for c in rest.by_ref() {
        out.push(c);
        if c == ']' {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_mean_what_they_mean_in_go() {
        let cases = [
            (r"^\d+$", "12", true),
            (r"^\d+$", "\u{0661}", false),
            (r"^[\w.-]+$", "a_b.c-d", true),
            (r"^\w$", "é", false),
            (r"^[^[]+$", "ab", true),
            (r"^[^[]+$", "a[", false),
            (r"^[]a]+$", "]a", true),
            (r"^[a&&b]+$", "&", true),
            (r"^[[:alpha:]]+$", "abc", true),
            (r"^\Qa.b\E$", "a.b", true),
            (r"^\Qa.b\E$", "axb", false),
            (r"^a\/b$", "a/b", true),
            (r"^é.$", "éü", true),
        ];
        for (pattern, text, matches) in cases {
            let compiled = Pattern::new(pattern).unwrap();
            assert_eq!(compiled.is_match(text), matches, "{pattern} {text}");
            assert_eq!(compiled.to_string(), pattern);
        }
    }

    #[test]
    fn malformed_patterns_are_refused() {
        for pattern in ["(", "[a", "a{2,1}", "*", "\\"] {
            assert!(Pattern::new(pattern).is_err(), "{pattern}");
        }
    }
}
