//! Grammar of the text form: `a=b,c!=d,e in (f,g),!h,i,x notin (y),n>1`.
//!
//! The lexer splits at operators and blanks. The parser mirrors upstream's step by step, so that
//! invalid texts produce the same errors.

use std::collections::BTreeSet;

use super::{LabelRequirement, SelectorOperator};
use crate::field::quote;
use crate::limits::MAX_REQUIREMENTS;
use crate::names;

/// Parses requirements in text order.
pub(super) fn parse(text: &str) -> Result<Vec<LabelRequirement>, String> {
    let mut parser = SelectorParser { tokens: tokens(text), position: 0 };
    let mut requirements = Vec::new();
    loop {
        match parser.peek() {
            SelectorToken::Word(_) | SelectorToken::Symbol("!") => {}
            SelectorToken::End => return Ok(requirements),
            other => {
                let found = other.text();
                return Err(format!("found '{found}', expected: !, identifier, or 'end of string'"));
            }
        }
        let requirement = parser.requirement().map_err(|e| format!("unable to parse requirement: {e}"))?;
        requirements.push(requirement);
        if requirements.len() > MAX_REQUIREMENTS {
            return Err(super::too_many());
        }
        match parser.next() {
            SelectorToken::End => return Ok(requirements),
            SelectorToken::Symbol(",") => match parser.peek() {
                SelectorToken::Word(_) | SelectorToken::Symbol("!") => {}
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
enum SelectorToken<'a> {
    /// Key, value, or one of the words `in` and `notin`, which may be either.
    Word(&'a str),
    /// An operator, a parenthesis or a comma.
    Symbol(&'a str),
    End,
}

impl<'a> SelectorToken<'a> {
    fn text(self) -> &'a str {
        match self {
            SelectorToken::Word(text) | SelectorToken::Symbol(text) => text,
            SelectorToken::End => "",
        }
    }
}

/// Tokenizes the text. A NUL byte ends a word, and ends the text where a token would begin.
fn tokens(text: &str) -> Vec<SelectorToken<'_>> {
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
            tokens.push(SelectorToken::Symbol(&text[start..at]));
        } else {
            while bytes.get(at).is_some_and(|b| !is_blank(*b) && !is_symbol(*b) && *b != 0) {
                at += 1;
            }
            tokens.push(SelectorToken::Word(&text[start..at]));
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

struct SelectorParser<'a> {
    tokens: Vec<SelectorToken<'a>>,
    position: usize,
}

impl<'a> SelectorParser<'a> {
    fn peek(&self) -> SelectorToken<'a> {
        self.tokens.get(self.position).copied().unwrap_or(SelectorToken::End)
    }

    fn next(&mut self) -> SelectorToken<'a> {
        let token = self.peek();
        self.position += 1;
        token
    }

    fn requirement(&mut self) -> Result<LabelRequirement, String> {
        let negated = self.peek() == SelectorToken::Symbol("!");
        if negated {
            self.next();
        }
        let key = match self.next() {
            SelectorToken::Word(key) => key,
            other => return Err(format!("found '{}', expected: identifier", other.text())),
        };
        let broken = names::qualified_name(key);
        if !broken.is_empty() {
            // The key is checked before a field path is known, hence the `<nil>`.
            return Err(format!("<nil>: Invalid value: {}: {}", quote(key), broken.join("; ")));
        }
        let made = if negated {
            LabelRequirement::new(key, SelectorOperator::DoesNotExist, Vec::new())
        } else if matches!(self.peek(), SelectorToken::End | SelectorToken::Symbol(",")) {
            LabelRequirement::new(key, SelectorOperator::Exists, Vec::new())
        } else {
            let operator = self.operator()?;
            let values = match operator {
                SelectorOperator::In | SelectorOperator::NotIn => self.values()?,
                _ => vec![self.exact_value()?],
            };
            LabelRequirement::new(key, operator, values)
        };
        made.map_err(|error| error.0)
    }

    fn operator(&mut self) -> Result<SelectorOperator, String> {
        Ok(match self.next() {
            SelectorToken::Word("in") => SelectorOperator::In,
            SelectorToken::Word("notin") => SelectorOperator::NotIn,
            SelectorToken::Symbol("=") => SelectorOperator::Equals,
            SelectorToken::Symbol("==") => SelectorOperator::DoubleEquals,
            SelectorToken::Symbol("!=") => SelectorOperator::NotEquals,
            SelectorToken::Symbol(">") => SelectorOperator::GreaterThan,
            SelectorToken::Symbol("<") => SelectorOperator::LessThan,
            other => {
                let found = other.text();
                return Err(format!("found '{found}', expected: in, notin, =, ==, !=, gt, lt"));
            }
        })
    }

    /// Parses the value after a comparison operator; a missing value is empty.
    fn exact_value(&mut self) -> Result<String, String> {
        if matches!(self.peek(), SelectorToken::End | SelectorToken::Symbol(",")) {
            return Ok(String::new());
        }
        match self.next() {
            SelectorToken::Word(value) => Ok(value.to_owned()),
            other => Err(format!("found '{}', expected: identifier", other.text())),
        }
    }

    /// Parses the values in parentheses; a missing value is empty.
    fn values(&mut self) -> Result<Vec<String>, String> {
        let open = self.next();
        if open != SelectorToken::Symbol("(") {
            return Err(format!("found '{}' expected: '('", open.text()));
        }
        match self.peek() {
            SelectorToken::Symbol(")") => {
                self.next();
                return Ok(vec![String::new()]);
            }
            SelectorToken::Word(_) | SelectorToken::Symbol(",") => {}
            other => {
                let found = other.text();
                return Err(format!("found '{found}', expected: ',', ')' or identifier"));
            }
        }
        let mut values = BTreeSet::new();
        loop {
            match self.next() {
                SelectorToken::Word(value) => {
                    values.insert(value);
                    match self.peek() {
                        SelectorToken::Symbol(",") => {}
                        SelectorToken::Symbol(")") => break,
                        other => {
                            let found = other.text();
                            return Err(format!("found '{found}', expected: ',' or ')'"));
                        }
                    }
                }
                SelectorToken::Symbol(",") => {
                    if values.is_empty() || matches!(self.peek(), SelectorToken::Symbol("," | ")")) {
                        values.insert("");
                    }
                    if self.peek() == SelectorToken::Symbol(")") {
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
