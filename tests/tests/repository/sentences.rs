//! Comments name their nouns: no sentence in which more than a quarter of the words, and at least two, are pronouns.

use std::path::Path;

use ostler_tests::repository::{SourceFile, files};

const PRONOUNS: &[&str] = &[
    "he", "her", "his", "it", "its", "itself", "one", "ones", "she", "such", "that", "their",
    "theirs", "them", "these", "they", "this", "those", "what", "which", "who", "whom", "whose",
];

/// The comments of a file: blocks of lines in a row, each with the number of its first line. Tables, headings and code are none.
fn comments(text: &str) -> Vec<(usize, String)> {
    let mut comments: Vec<(usize, String)> = vec![];
    let mut open = false;
    for (number, line) in text.lines().enumerate() {
        let comment = line.trim_start().strip_prefix("//");
        let comment = comment.map(|comment| comment.trim_start_matches(['/', '!']).trim());
        let said = comment.filter(|said| !said.is_empty() && !said.starts_with(['|', '`', '#']));
        if let (true, Some(said), Some((_, block))) = (open, said, comments.last_mut()) {
            block.push(' ');
            block.push_str(said);
        } else if let Some(said) = said {
            comments.push((number + 1, said.to_owned()));
        }
        open = said.is_some();
    }
    comments
}

fn is_riddle(sentence: &str) -> bool {
    let words = || sentence.split(|letter: char| !letter.is_alphabetic() && letter != '\'');
    let count = words().filter(|word| !word.is_empty()).count();
    let pronouns = words().filter(|word| PRONOUNS.contains(&word.to_lowercase().as_str())).count();
    count > 3 && pronouns > 1 && pronouns * 4 > count
}

/// The sentences of a text, with a name in place of each `span of code`.
fn sentences(text: &str) -> Vec<String> {
    let spans = text.split('`').enumerate();
    let named: String =
        spans.map(|(place, part)| if place % 2 == 0 { part } else { "name" }).collect();
    let mut sentences = vec![String::new()];
    for word in named.split_whitespace() {
        let sentence = sentences.last_mut().filter(|sentence| !sentence.ends_with(['.', '!', '?']));
        match sentence {
            Some(sentence) => {
                sentence.push(' ');
                sentence.push_str(word);
            }
            None => sentences.push(word.to_owned()),
        }
    }
    sentences
}

fn riddles(path: &Path, text: &str) -> Vec<String> {
    let all = comments(text).into_iter().flat_map(|(line, block)| {
        let riddles = sentences(&block).into_iter().filter(|sentence| is_riddle(sentence));
        riddles.map(move |sentence| format!("{}:{line}: {sentence}", path.display()))
    });
    all.collect()
}

#[test]
fn comments_say_the_noun() {
    let rust = |file: &SourceFile| file.path.extension().is_some_and(|kind| kind == "rs");
    let files = files().unwrap().into_iter().filter(rust);
    let found: Vec<String> = files.flat_map(|file| riddles(&file.path, &file.text)).collect();
    assert!(found.is_empty(), "write the noun in place of pronouns: {found:#?}");
}

#[test]
fn a_sentence_of_pronouns_is_found_over_lines_and_without_spans() {
    let found = |text: &str| riddles(Path::new("a.rs"), text).len();
    assert_eq!(found("/// One that a set takes is that\n/// set's.\nfn it() {}"), 1);
    assert_eq!(found("// The set takes `it that those` Machines of its pool."), 0);
    assert_eq!(found("// One that\nlet it = that;\n// a set takes is that set's."), 0);
    assert_eq!(found("//! | that | this | those |"), 0);
}
