//! From tokens to requirements, with Kubernetes' messages for what does not fit.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a parser names what it expects at each place; every other token is the same error"
)]

use std::collections::BTreeSet;

use super::{
    SelectorError,
    label::{Operator, Requirement},
    lexer::{Token, tokens},
};

/// Walks the tokens in loops: brackets of a selector do not nest.
struct Parser {
    tokens: std::iter::Peekable<std::vec::IntoIter<Token>>,
}

fn error(text: String) -> SelectorError {
    SelectorError(text)
}

/// Reads a whole selector.
pub(super) fn parse(text: &str) -> Result<Vec<Requirement>, SelectorError> {
    let mut parser = Parser { tokens: tokens(text).into_iter().peekable() };
    let mut requirements = Vec::new();
    loop {
        match parser.peek() {
            Token::Word(_) | Token::Not => {}
            Token::End => return Ok(requirements),
            other => {
                let found = other.text();
                return Err(error(format!(
                    "found '{found}', expected: !, identifier, or 'end of string'"
                )));
            }
        }
        let requirement = parser
            .requirement()
            .map_err(|SelectorError(text)| error(format!("unable to parse requirement: {text}")))?;
        requirements.push(requirement);
        match parser.next() {
            Token::End => return Ok(requirements),
            Token::Comma => parser.expect_key()?,
            other => {
                let found = other.text();
                return Err(error(format!("found '{found}', expected: ',' or 'end of string'")));
            }
        }
    }
}

impl Parser {
    fn peek(&mut self) -> &Token {
        self.tokens.peek().unwrap_or(&Token::End)
    }

    fn next(&mut self) -> Token {
        self.tokens.next().unwrap_or(Token::End)
    }

    fn expect_key(&mut self) -> Result<(), SelectorError> {
        match self.peek() {
            Token::Word(_) | Token::Not => Ok(()),
            other => {
                let found = other.text();
                Err(error(format!("found '{found}', expected: identifier after ','")))
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        let negated = *self.peek() == Token::Not;
        if negated {
            self.next();
        }
        let key = match self.next() {
            Token::Word(word) => word,
            other => {
                let found = other.text();
                return Err(error(format!("found '{found}', expected: identifier")));
            }
        };
        if negated {
            return Requirement::new(&key, Operator::DoesNotExist, BTreeSet::new());
        }
        // The key is checked before anything behind it is looked at.
        let exists = Requirement::new(&key, Operator::Exists, BTreeSet::new())?;
        if matches!(self.peek(), Token::End | Token::Comma) {
            return Ok(exists);
        }
        let operator = self.operator()?;
        let values = match operator {
            Operator::In | Operator::NotIn => self.values()?,
            Operator::Equals
            | Operator::NotEquals
            | Operator::GreaterThan
            | Operator::LessThan
            | Operator::Exists
            | Operator::DoesNotExist => self.exact_value()?,
        };
        Requirement::new(&key, operator, values)
    }

    fn operator(&mut self) -> Result<Operator, SelectorError> {
        match self.next() {
            Token::Equals | Token::DoubleEquals => Ok(Operator::Equals),
            Token::NotEquals => Ok(Operator::NotEquals),
            Token::Greater => Ok(Operator::GreaterThan),
            Token::Less => Ok(Operator::LessThan),
            Token::Word(word) if word == "in" => Ok(Operator::In),
            Token::Word(word) if word == "notin" => Ok(Operator::NotIn),
            other => {
                let found = other.text();
                Err(error(format!("found '{found}', expected: in, notin, =, ==, !=, gt, lt")))
            }
        }
    }

    fn exact_value(&mut self) -> Result<BTreeSet<String>, SelectorError> {
        if matches!(self.peek(), Token::End | Token::Comma) {
            return Ok(BTreeSet::from([String::new()]));
        }
        match self.next() {
            Token::Word(word) => Ok(BTreeSet::from([word])),
            other => {
                let found = other.text();
                Err(error(format!("found '{found}', expected: identifier")))
            }
        }
    }

    fn values(&mut self) -> Result<BTreeSet<String>, SelectorError> {
        let open = self.next();
        if open != Token::Open {
            return Err(error(format!("found '{}' expected: '('", open.text())));
        }
        match self.peek() {
            Token::Word(_) | Token::Comma => self.listed_values(),
            Token::Close => {
                self.next();
                Ok(BTreeSet::from([String::new()]))
            }
            other => {
                let found = other.text();
                Err(error(format!("found '{found}', expected: ',', ')' or identifier")))
            }
        }
    }

    /// What stands between the brackets; an empty place between commas is an empty value.
    fn listed_values(&mut self) -> Result<BTreeSet<String>, SelectorError> {
        let mut values = BTreeSet::new();
        loop {
            match self.next() {
                Token::Word(word) => {
                    values.insert(word);
                    match self.next() {
                        Token::Comma => {
                            if *self.peek() == Token::Close {
                                values.insert(String::new());
                            }
                        }
                        Token::Close => return Ok(values),
                        other => {
                            let found = other.text();
                            return Err(error(format!("found '{found}', expected: ',' or ')'")));
                        }
                    }
                }
                Token::Comma => {
                    values.insert(String::new());
                }
                Token::Close => {
                    values.insert(String::new());
                    return Ok(values);
                }
                other => {
                    let found = other.text();
                    return Err(error(format!("found '{found}', expected: ',', or identifier")));
                }
            }
        }
    }
}
