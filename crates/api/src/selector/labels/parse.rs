//! The grammar of the text form: `a=b,c!=d,e in (f,g),!h,i,x notin (y),n>1`.
//!
//! The lexer splits at operators and blanks; which rules a broken text is told against, and in
//! which words, is what the parser below mirrors step by step.

use std::collections::BTreeSet;

use super::{Operator, Requirement};
use crate::field::quote;
use crate::limits::MAX_REQUIREMENTS;
use crate::names;

/// The requirements, in the order of the text.
pub(super) fn parse(text: &str) -> Result<Vec<Requirement>, String> {
    let mut parser = Parser { tokens: tokens(text), position: 0 };
    let mut requirements = Vec::new();
    loop {
        match parser.peek() {
            Token::Word(_) | Token::Symbol("!") => {}
            Token::End => return Ok(requirements),
            other => {
                let found = other.text();
                return Err(format!(
                    "found '{found}', expected: !, identifier, or 'end of string'"
                ));
            }
        }
        let requirement =
            parser.requirement().map_err(|e| format!("unable to parse requirement: {e}"))?;
        requirements.push(requirement);
        if requirements.len() > MAX_REQUIREMENTS {
            return Err(super::too_many());
        }
        match parser.next() {
            Token::End => return Ok(requirements),
            Token::Symbol(",") => match parser.peek() {
                Token::Word(_) | Token::Symbol("!") => {}
                other => {
                    let found = other.text();
                    return Err(format!("found '{found}', expected: identifier after ','"));
                }
            },
            other => {
                let found = other.text();
                return Err(format!("found '{found}', expected: ',' or 'end of string'"));
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    /// A key, a value, or one of the words `in` and `notin`, which may be either.
    Word(&'a str),
    /// An operator, a bracket or a comma.
    Symbol(&'a str),
    End,
}

impl<'a> Token<'a> {
    fn text(self) -> &'a str {
        match self {
            Token::Word(text) | Token::Symbol(text) => text,
            Token::End => "",
        }
    }
}

/// The tokens before the end; a NUL byte ends a word, and ends the text where a token should begin.
fn tokens(text: &str) -> Vec<Token<'_>> {
    let bytes = text.as_bytes();
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at).filter(|b| **b != 0) {
        let start = at;
        if is_blank(byte) {
            at += 1;
        } else if is_symbol(byte) {
            let double = matches!(byte, b'=' | b'!') && bytes.get(at + 1) == Some(&b'=');
            at += if double { 2 } else { 1 };
            tokens.push(Token::Symbol(&text[start..at]));
        } else {
            while bytes.get(at).is_some_and(|b| !is_blank(*b) && !is_symbol(*b) && *b != 0) {
                at += 1;
            }
            tokens.push(Token::Word(&text[start..at]));
            at += usize::from(bytes.get(at) == Some(&0));
        }
    }
    tokens
}

fn is_blank(b: u8) -> bool {
    matches!(b, b' ' | b'\t' | b'\r' | b'\n')
}

fn is_symbol(b: u8) -> bool {
    matches!(b, b'=' | b'!' | b'(' | b')' | b',' | b'>' | b'<')
}

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    position: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Token<'a> {
        self.tokens.get(self.position).copied().unwrap_or(Token::End)
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        self.position += 1;
        token
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let negated = self.peek() == Token::Symbol("!");
        if negated {
            self.next();
        }
        let key = match self.next() {
            Token::Word(key) => key,
            other => return Err(format!("found '{}', expected: identifier", other.text())),
        };
        let broken = names::qualified_name(key);
        if !broken.is_empty() {
            // The key is checked before there is a field to name, hence the `<nil>`.
            return Err(format!("<nil>: Invalid value: {}: {}", quote(key), broken.join("; ")));
        }
        let made = if negated {
            Requirement::new(key, Operator::DoesNotExist, Vec::new())
        } else if matches!(self.peek(), Token::End | Token::Symbol(",")) {
            Requirement::new(key, Operator::Exists, Vec::new())
        } else {
            let operator = self.operator()?;
            let values = match operator {
                Operator::In | Operator::NotIn => self.values()?,
                _ => vec![self.exact_value()?],
            };
            Requirement::new(key, operator, values)
        };
        made.map_err(|error| error.0)
    }

    fn operator(&mut self) -> Result<Operator, String> {
        Ok(match self.next() {
            Token::Word("in") => Operator::In,
            Token::Word("notin") => Operator::NotIn,
            Token::Symbol("=") => Operator::Equals,
            Token::Symbol("==") => Operator::DoubleEquals,
            Token::Symbol("!=") => Operator::NotEquals,
            Token::Symbol(">") => Operator::GreaterThan,
            Token::Symbol("<") => Operator::LessThan,
            other => {
                let found = other.text();
                return Err(format!("found '{found}', expected: in, notin, =, ==, !=, gt, lt"));
            }
        })
    }

    /// The one value after a comparing operator; there may be none, which is the empty one.
    fn exact_value(&mut self) -> Result<String, String> {
        if matches!(self.peek(), Token::End | Token::Symbol(",")) {
            return Ok(String::new());
        }
        match self.next() {
            Token::Word(value) => Ok(value.to_owned()),
            other => Err(format!("found '{}', expected: identifier", other.text())),
        }
    }

    /// The values in brackets; a place without one is the empty value.
    fn values(&mut self) -> Result<Vec<String>, String> {
        let open = self.next();
        if open != Token::Symbol("(") {
            return Err(format!("found '{}' expected: '('", open.text()));
        }
        match self.peek() {
            Token::Symbol(")") => {
                self.next();
                return Ok(vec![String::new()]);
            }
            Token::Word(_) | Token::Symbol(",") => {}
            other => {
                let found = other.text();
                return Err(format!("found '{found}', expected: ',', ')' or identifier"));
            }
        }
        let mut values = BTreeSet::new();
        loop {
            match self.next() {
                Token::Word(value) => {
                    values.insert(value);
                    match self.peek() {
                        Token::Symbol(",") => {}
                        Token::Symbol(")") => break,
                        other => {
                            let found = other.text();
                            return Err(format!("found '{found}', expected: ',' or ')'"));
                        }
                    }
                }
                Token::Symbol(",") => {
                    if values.is_empty() || matches!(self.peek(), Token::Symbol("," | ")")) {
                        values.insert("");
                    }
                    if self.peek() == Token::Symbol(")") {
                        break;
                    }
                }
                other => {
                    let found = other.text();
                    return Err(format!("found '{found}', expected: ',', or identifier"));
                }
            }
        }
        self.next();
        Ok(values.into_iter().map(str::to_owned).collect())
    }
}
