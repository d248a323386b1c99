//! Foreign texts, as shown to people.

/// Whether two texts are the same but for words with digits, such as times and ids of requests: what shows such a text must
/// not be written at each try.
pub fn differ_by_numbers_only(one: &str, other: &str) -> bool {
    fn words(text: &str) -> impl Iterator<Item = &str> {
        text.split_whitespace().filter(|word| !word.contains(|c: char| c.is_numeric()))
    }
    words(one).eq(words(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_times_make_no_other_text() {
        assert!(differ_by_numbers_only("denied at 12:00, id a1", "denied at 12:01, id b2"));
        assert!(!differ_by_numbers_only("no quota", "no engine"));
    }
}
