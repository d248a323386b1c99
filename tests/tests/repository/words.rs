//! Words that are no longer used, from `tests/words.txt`.

use std::path::Path;

use ostler_tests::repository::{SourceFile, files};

use crate::named::text;

/// The list itself.
const LIST: &str = "tests/words.txt";

/// A word, or several, and the replacement.
struct Retired<'a> {
    words: Vec<String>,
    instead: &'a str,
    names: bool,
    text: bool,
    only: Vec<&'a str>,
    not: Vec<&'a str>,
}

impl<'a> Retired<'a> {
    fn read(line: &'a str) -> Self {
        let mut columns = line.split('|').map(str::trim);
        let mut next = || columns.next().unwrap_or_default();
        let (words, instead, places) = (next(), next(), next());
        assert!(!words.is_empty() && !instead.is_empty(), "{LIST}: {line}");
        let places: Vec<&str> = places.split_whitespace().collect();
        let anywhere = !places.contains(&"names") && !places.contains(&"text");
        let paths = places.iter().copied().filter(|place| !["names", "text"].contains(place));
        let (not, only) = paths.partition::<Vec<_>, _>(|path| path.starts_with('!'));
        Self {
            words: words_of(words),
            instead,
            names: anywhere || places.contains(&"names"),
            text: anywhere || places.contains(&"text"),
            only,
            not: not.iter().map(|path| path.trim_start_matches('!')).collect(),
        }
    }

    fn is_for(&self, path: &Path) -> bool {
        let within = |folders: &[&str]| folders.iter().any(|folder| path.starts_with(folder));
        (self.only.is_empty() || within(&self.only)) && !within(&self.not)
    }

    fn is_in(&self, said: &[String]) -> bool {
        said.windows(self.words.len()).any(|part| part == self.words)
    }
}

/// The words of a text or an identifier, in lower case.
fn words_of(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for letter in text.chars() {
        if !letter.is_alphanumeric() || (letter.is_uppercase() && was_lower) {
            words.push(String::new());
        }
        was_lower = letter.is_lowercase() || letter.is_numeric();
        if let Some(word) = words.last_mut().filter(|_| letter.is_alphanumeric()) {
            word.extend(letter.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// A line of Rust, cut into code and what people read: comments and literals. `open`: a literal goes on from the last line.
fn cut(line: &str, open: &mut bool) -> (String, String) {
    let (mut code, mut text) = (String::new(), String::new());
    let mut rest = line.chars().peekable();
    while let Some(letter) = rest.next() {
        match letter {
            '\\' => drop(rest.next()),
            '"' => {
                *open = !*open;
                code.push(' ');
                text.push(' ');
            }
            '\'' if !*open && rest.peek() == Some(&'"') => drop(rest.next()),
            '/' if !*open && rest.peek() == Some(&'/') => {
                text.extend(rest.by_ref());
            }
            letter if *open => text.push(letter),
            letter => code.push(letter),
        }
    }
    (code, text)
}

/// The retired words of a file, each with its line.
fn found(file: &SourceFile, retired: &[Retired<'_>]) -> Vec<String> {
    let retired: Vec<_> = retired.iter().filter(|word| word.is_for(&file.path)).collect();
    let rust = file.path.extension().is_some_and(|kind| kind == "rs");
    let (mut found, mut open) = (Vec::new(), false);
    for (number, line) in file.text.lines().enumerate() {
        // A ledger names tests and mutations, in their words.
        if !rust && (line.contains(".rs::") || line.trim_start().starts_with("- name: ")) {
            continue;
        }
        let (code, text) =
            if rust { cut(line, &mut open) } else { (String::new(), line.to_owned()) };
        let names: Vec<Vec<String>> = code
            .split(|letter: char| !letter.is_alphanumeric() && letter != '_')
            .map(words_of)
            .collect();
        let text = words_of(&text);
        for word in &retired {
            let named = word.names && names.iter().any(|name| word.is_in(name));
            if named || (word.text && word.is_in(&text)) {
                let (path, old) = (file.path.display(), word.words.join(" "));
                found.push(format!("{path}:{}: not `{old}`: {}", number + 1, word.instead));
            }
        }
    }
    found
}

fn read(list: &str) -> Vec<Retired<'_>> {
    let lines = list.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(Retired::read).collect()
}

#[test]
fn words_that_are_retired_are_not_used() {
    let files = files().unwrap();
    let retired = read(text(&files, LIST));
    let judged = ["rs", "md", "proto", "yaml", "toml", "py"];
    let found: Vec<String> = files
        .iter()
        // This file quotes retired words as examples.
        .filter(|file| !file.path.ends_with("repository/words.rs"))
        .filter(|file| {
            file.path.extension().is_some_and(|kind| judged.iter().any(|it| kind == *it))
        })
        .flat_map(|file| found(file, &retired))
        .collect();
    assert!(found.is_empty(), "{LIST} says what to write instead: {found:#?}");
}

#[test]
fn a_retired_word_is_found_in_names_and_in_text_where_it_is_retired() {
    let list =
        "mirror | cache | names\nat once | immediately | text !docs\nkeeper | controller | server";
    let retired = read(list);
    let lines = |path: &str, text: &str| {
        let file = SourceFile { path: path.into(), text: text.to_owned() };
        found(&file, &retired).len()
    };
    assert_eq!(lines("cli/a.rs", "struct PodMirror; fn mirror_of() {} // a mirror"), 1);
    assert_eq!(lines("cli/a.rs", "let mirrored = MIRROR;"), 1);
    assert_eq!(lines("cli/a.rs", "let mirrored = \"mirror\";"), 0);
    assert_eq!(lines("cli/a.rs", "say(\"At once, \\\"at\n once\\\"\"); at_once()"), 1);
    assert_eq!((lines("a.md", "At once."), lines("docs/a.md", "At once.")), (1, 0));
    assert_eq!((lines("server/a.rs", "// The Keeper"), lines("cli/a.rs", "// The Keeper")), (1, 0));
}
