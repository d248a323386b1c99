//! The tokens of a label selector.

/// One token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// A key, a value, or one of the words `in` and `notin`: only the place decides.
    Word(String),
    /// `!`
    Not,
    /// `=`
    Equals,
    /// `==`
    DoubleEquals,
    /// `!=`
    NotEquals,
    /// `>`
    Greater,
    /// `<`
    Less,
    /// `(`
    Open,
    /// `)`
    Close,
    /// `,`
    Comma,
    /// The end of the text.
    End,
}

impl Token {
    /// The text it was made of.
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Word(word) => word,
            Self::Not => "!",
            Self::Equals => "=",
            Self::DoubleEquals => "==",
            Self::NotEquals => "!=",
            Self::Greater => ">",
            Self::Less => "<",
            Self::Open => "(",
            Self::Close => ")",
            Self::Comma => ",",
            Self::End => "",
        }
    }
}

/// Splits a text into tokens; the last one is [`Token::End`].
pub(super) fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (token, length) = first(rest);
        tokens.push(token);
        rest = rest.get(length..).unwrap_or_default().trim_start();
    }
    tokens.push(Token::End);
    tokens
}

fn first(text: &str) -> (Token, usize) {
    const SYMBOLS: [(&str, Token); 9] = [
        ("==", Token::DoubleEquals),
        ("!=", Token::NotEquals),
        ("=", Token::Equals),
        ("!", Token::Not),
        (">", Token::Greater),
        ("<", Token::Less),
        ("(", Token::Open),
        (")", Token::Close),
        (",", Token::Comma),
    ];
    for (symbol, token) in SYMBOLS {
        if text.starts_with(symbol) {
            return (token, symbol.len());
        }
    }
    let end = text.find(|c: char| c.is_whitespace() || "=!()<>,".contains(c)).unwrap_or(text.len());
    (Token::Word(text.get(..end).unwrap_or_default().to_owned()), end)
}
