//! Reads selectors of labels as they stand in a query string. kube-core has requirements to match
//! with, but no parser, and no requirement that compares numbers.

use std::collections::BTreeSet;

use super::{
    SelectorError,
    lexer::{is_word, tokens},
    requirement::{Operator, Requirement},
};

/// Walks the tokens in loops: brackets of a selector do not nest. The empty token is the end.
struct Parser<'a> {
    tokens: std::iter::Peekable<std::vec::IntoIter<&'a str>>,
}

fn expected<T>(found: &str, what: &str) -> Result<T, SelectorError> {
    Err(SelectorError(format!("found '{found}', expected: {what}")))
}

/// Reads a whole selector.
pub(super) fn parse(text: &str) -> Result<Vec<Requirement>, SelectorError> {
    let mut parser = Parser { tokens: tokens(text).into_iter().peekable() };
    let mut requirements = Vec::new();
    loop {
        match parser.peek() {
            "" => return Ok(requirements),
            token if token == "!" || is_word(token) => {}
            other => return expected(other, "!, identifier, or 'end of string'"),
        }
        let requirement = parser.requirement().map_err(|SelectorError(text)| {
            SelectorError(format!("unable to parse requirement: {text}"))
        })?;
        requirements.push(requirement);
        match parser.next() {
            "" => return Ok(requirements),
            "," => {
                let token = parser.peek();
                if token != "!" && !is_word(token) {
                    return expected(token, "identifier after ','");
                }
            }
            other => return expected(other, "',' or 'end of string'"),
        }
    }
}

impl<'a> Parser<'a> {
    fn peek(&mut self) -> &'a str {
        self.tokens.peek().copied().unwrap_or_default()
    }

    fn next(&mut self) -> &'a str {
        self.tokens.next().unwrap_or_default()
    }

    fn word(&mut self) -> Result<&'a str, SelectorError> {
        let token = self.next();
        if is_word(token) { Ok(token) } else { expected(token, "identifier") }
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        let negated = self.tokens.next_if_eq(&"!").is_some();
        let key = self.word()?;
        if negated {
            return Requirement::new(key, Operator::DoesNotExist, BTreeSet::new());
        }
        // The key is checked before anything behind it is looked at.
        let exists = Requirement::new(key, Operator::Exists, BTreeSet::new())?;
        let token = self.peek();
        let operator = match token {
            "" | "," => return Ok(exists),
            ">" => Operator::GreaterThan,
            "<" => Operator::LessThan,
            "in" | "=" | "==" => Operator::In,
            "notin" | "!=" => Operator::NotIn,
            other => return expected(other, "in, notin, =, ==, !=, gt, lt"),
        };
        self.next();
        let values = match (token, self.peek()) {
            ("in" | "notin", _) => self.values()?,
            (_, "" | ",") => BTreeSet::from([String::new()]),
            _ => BTreeSet::from([self.word()?.to_owned()]),
        };
        Requirement::new(key, operator, values)
    }

    fn values(&mut self) -> Result<BTreeSet<String>, SelectorError> {
        let open = self.next();
        if open != "(" {
            return Err(SelectorError(format!("found '{open}' expected: '('")));
        }
        match self.peek() {
            ")" => {
                self.next();
                Ok(BTreeSet::from([String::new()]))
            }
            token if token == "," || is_word(token) => self.listed_values(),
            other => expected(other, "',', ')' or identifier"),
        }
    }

    /// What stands between the brackets; an empty place between commas is an empty value.
    fn listed_values(&mut self) -> Result<BTreeSet<String>, SelectorError> {
        let mut values = BTreeSet::new();
        loop {
            let token = self.next();
            if matches!(token, "," | ")") {
                values.insert(String::new());
            } else if is_word(token) {
                values.insert(token.to_owned());
                match self.next() {
                    "," if self.peek() == ")" => {
                        values.insert(String::new());
                    }
                    "," => {}
                    ")" => return Ok(values),
                    other => return expected(other, "',' or ')'"),
                }
            } else {
                return expected(token, "',', or identifier");
            }
            if token == ")" {
                return Ok(values);
            }
        }
    }
}
