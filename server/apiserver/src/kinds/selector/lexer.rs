//! The tokens of a label selector.

/// Longer symbols stand before shorter prefixes.
const SYMBOLS: [&str; 9] = ["==", "!=", "=", "!", ">", "<", "(", ")", ","];

/// Whether a token is a key, a value, or one of the words `in` and `notin`: only the place decides.
pub(super) fn is_word(token: &str) -> bool {
    !token.is_empty() && !SYMBOLS.contains(&token)
}

/// Splits a text into tokens.
pub(super) fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let symbol = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol));
        let word_end = |c: char| c.is_whitespace() || "=!()<>,".contains(c);
        let end =
            symbol.map_or_else(|| rest.find(word_end).unwrap_or(rest.len()), |symbol| symbol.len());
        let (token, after) = rest.split_at(end);
        tokens.push(token);
        rest = after.trim_start();
    }
    tokens
}
