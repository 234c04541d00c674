//! Reports JSON syntax errors in the wording of Go's decoder.
//!
//! Clients know that wording, and `serde_json` uses another. A text is scanned only after
//! `serde_json` rejected it, so this may be slow; it never accepts input.

use crate::field::quote;
use crate::limits::MAX_DEPTH;

/// Returns the first syntax error in `text`, or `None` if Go's scanner would find none.
pub(super) fn syntax_error(text: &[u8]) -> Option<String> {
    let mut scan = JsonScanner { text, at: 0, open: Vec::new() };
    let mut next = ExpectedToken::Value;
    loop {
        match scan.step(next) {
            Ok(Some(after)) => next = after,
            Ok(None) => return None,
            Err(words) => return Some(words),
        }
    }
}

/// Token that the grammar expects next.
#[derive(Clone, Copy)]
enum ExpectedToken {
    Value,
    ValueOrEnd,
    Key,
    KeyOrEnd,
    Colon,
    CommaOrEnd,
}

#[derive(Clone, Copy, PartialEq)]
enum OpenContainer {
    Object,
    List,
}

struct JsonScanner<'a> {
    text: &'a [u8],
    at: usize,
    open: Vec<OpenContainer>,
}

impl JsonScanner<'_> {
    fn step(&mut self, next: ExpectedToken) -> Result<Option<ExpectedToken>, String> {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
        let done = self.open.is_empty() && matches!(next, ExpectedToken::CommaOrEnd);
        let Some(&c) = self.text.get(self.at) else {
            return if done { Ok(None) } else { Err("unexpected end of JSON input".into()) };
        };
        if done {
            return Err(invalid(c, "after top-level value"));
        }
        self.at += 1;
        let after = match (next, c) {
            (ExpectedToken::Value | ExpectedToken::ValueOrEnd, _) => {
                return self.value(next, c).map(Some);
            }
            (ExpectedToken::Key | ExpectedToken::KeyOrEnd, b'"') => {
                self.string()?;
                ExpectedToken::Colon
            }
            (ExpectedToken::KeyOrEnd, b'}') => self.close(),
            (ExpectedToken::Key | ExpectedToken::KeyOrEnd, _) => {
                return Err(invalid(c, "looking for beginning of object key string"));
            }
            (ExpectedToken::Colon, b':') => ExpectedToken::Value,
            (ExpectedToken::Colon, _) => return Err(invalid(c, "after object key")),
            (ExpectedToken::CommaOrEnd, _) => match (self.open.last(), c) {
                (Some(OpenContainer::Object), b',') => ExpectedToken::Key,
                (Some(OpenContainer::List), b',') => ExpectedToken::Value,
                (Some(OpenContainer::Object), b'}') | (Some(OpenContainer::List), b']') => self.close(),
                (Some(OpenContainer::List), _) => return Err(invalid(c, "after array element")),
                _ => return Err(invalid(c, "after object key:value pair")),
            },
        };
        Ok(Some(after))
    }

    fn value(&mut self, next: ExpectedToken, c: u8) -> Result<ExpectedToken, String> {
        match c {
            b'{' => return self.enter(OpenContainer::Object, ExpectedToken::KeyOrEnd),
            b'[' => return self.enter(OpenContainer::List, ExpectedToken::ValueOrEnd),
            b']' if matches!(next, ExpectedToken::ValueOrEnd) => return Ok(self.close()),
            b'"' => self.string()?,
            b'-' | b'0'..=b'9' => self.number(c)?,
            b't' => self.literal("true")?,
            b'f' => self.literal("false")?,
            b'n' => self.literal("null")?,
            _ => return Err(invalid(c, "looking for beginning of value")),
        }
        Ok(ExpectedToken::CommaOrEnd)
    }

    fn enter(&mut self, what: OpenContainer, next: ExpectedToken) -> Result<ExpectedToken, String> {
        self.open.push(what);
        if self.open.len() > MAX_DEPTH { Err("exceeded max depth".into()) } else { Ok(next) }
    }

    fn close(&mut self) -> ExpectedToken {
        self.open.pop();
        ExpectedToken::CommaOrEnd
    }

    /// Scans the rest of a string, after its opening quote.
    fn string(&mut self) -> Result<(), String> {
        loop {
            let Some(&c) = self.text.get(self.at) else {
                return Err("unexpected end of JSON input".into());
            };
            self.at += 1;
            match c {
                b'"' => return Ok(()),
                b'\\' => match self.next_byte() {
                    b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => {}
                    b'u' => {
                        for _ in 0..4 {
                            let digit = self.next_byte();
                            if !digit.is_ascii_hexdigit() {
                                let place = "in \\u hexadecimal character escape";
                                return Err(invalid(digit, place));
                            }
                        }
                    }
                    other => return Err(invalid(other, "in string escape code")),
                },
                0..0x20 => return Err(invalid(c, "in string literal")),
                _ => {}
            }
        }
    }

    /// Scans the rest of a number, after its first character.
    fn number(&mut self, first: u8) -> Result<(), String> {
        let leading = if first == b'-' { self.digit("in numeric literal")? } else { first };
        if leading != b'0' {
            self.digits();
        }
        if self.text.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digit("after decimal point in numeric literal")?;
            self.digits();
        }
        if matches!(self.text.get(self.at), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.text.get(self.at), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digit("in exponent of numeric literal")?;
            self.digits();
        }
        Ok(())
    }

    fn digit(&mut self, place: &str) -> Result<u8, String> {
        let c = self.next_byte();
        if c.is_ascii_digit() { Ok(c) } else { Err(invalid(c, place)) }
    }

    fn digits(&mut self) {
        while self.text.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
    }

    /// Scans the rest of `word`, after its first letter.
    fn literal(&mut self, word: &str) -> Result<(), String> {
        for letter in word.chars().skip(1) {
            let c = self.next_byte();
            if char::from(c) != letter {
                return Err(invalid(c, &format!("in literal {word} (expecting '{letter}')")));
            }
        }
        Ok(())
    }

    /// Returns the next byte inside a token. Go's scanner sees a space at the end of the text.
    fn next_byte(&mut self) -> u8 {
        let c = self.text.get(self.at).copied().unwrap_or(b' ');
        self.at += 1;
        c
    }
}

fn invalid(c: u8, place: &str) -> String {
    let shown = match c {
        b'\'' => "'\\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        0x80..0xa0 => format!("'\\u{c:04x}'"),
        _ => {
            let quoted = quote(&char::from(c).to_string());
            format!("'{}'", quoted.trim_matches('"'))
        }
    };
    format!("invalid character {shown} {place}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_wording_of_go() {
        for (text, words) in [
            ("", "unexpected end of JSON input"),
            ("{", "unexpected end of JSON input"),
            ("{\"a\"", "unexpected end of JSON input"),
            ("{\"a\":", "unexpected end of JSON input"),
            ("{\"a\":1", "unexpected end of JSON input"),
            ("[1,", "unexpected end of JSON input"),
            ("\"abc", "unexpected end of JSON input"),
            ("{nope", "invalid character 'n' looking for beginning of object key string"),
            ("{\"a\":1,}", "invalid character '}' looking for beginning of object key string"),
            ("[1,]", "invalid character ']' looking for beginning of value"),
            ("<html>", "invalid character '<' looking for beginning of value"),
            ("'a'", "invalid character '\\'' looking for beginning of value"),
            ("{\"a\" 1}", "invalid character '1' after object key"),
            ("{\"a\":1 \"b\":2}", "invalid character '\"' after object key:value pair"),
            ("[1 2]", "invalid character '2' after array element"),
            ("{}x", "invalid character 'x' after top-level value"),
            ("\"a\nb\"", "invalid character '\\n' in string literal"),
            ("\"\\x\"", "invalid character 'x' in string escape code"),
            ("\"\\u12g4\"", "invalid character 'g' in \\u hexadecimal character escape"),
            ("-x", "invalid character 'x' in numeric literal"),
            ("1.x", "invalid character 'x' after decimal point in numeric literal"),
            ("1e+", "invalid character ' ' in exponent of numeric literal"),
            ("01", "invalid character '1' after top-level value"),
            ("trux", "invalid character 'x' in literal true (expecting 'e')"),
            ("nil", "invalid character 'i' in literal null (expecting 'u')"),
            ("\u{feff}{}", "invalid character 'ï' looking for beginning of value"),
        ] {
            assert_eq!(syntax_error(text.as_bytes()).as_deref(), Some(words), "{text}");
        }
    }

    #[test]
    fn valid_text_has_no_errors() {
        let text = br#" {"a":[1,-0,2.5e-7,"\u00e9\n",true,false,null,{},[]],"b":{"c":""}} "#;
        assert_eq!(syntax_error(text), None);
    }
}
