//! Field selectors: the query parameter `fieldSelector`, such as
//! `metadata.name=a,spec.nodeName!=b`; a backslash escapes `,`, `=` and `\` in a value.

use std::fmt;

use crate::limits::MAX_REQUIREMENTS;

/// Field requirements, all of which must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector(Vec<FieldRequirement>);

/// One requirement on one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldRequirement {
    /// Path of the field, for example `spec.signerName`.
    pub field: String,
    /// True for `=`, false for `!=`.
    pub equal: bool,
    /// Value to compare with; an absent field has the empty value.
    pub value: String,
}

/// Reason for rejecting a selector, in Kubernetes' wording.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldSelectorError {
    /// A term without an operator (`=`, `==`, `!=`).
    #[error("invalid selector: '{selector}'; can't understand '{term}'")]
    NoOperator {
        /// The whole selector as the client sent it.
        selector: String,
        /// The term that has no operator.
        term: String,
    },
    /// A backslash precedes a character that cannot be escaped, or ends the text.
    #[error("invalid field selector: invalid escape sequence: {0}")]
    Escape(String),
    /// A special character in a value is not escaped.
    // Upstream prints the character's code point.
    #[error("invalid field selector: unescaped character in value: {}", *.0 as u32)]
    Unescaped(char),
    /// The selector has more requirements than [`MAX_REQUIREMENTS`].
    #[error("invalid field selector: too many requirements: at most {MAX_REQUIREMENTS} are allowed")]
    TooMany,
}

impl FieldSelector {
    /// Returns the empty selector, which matches every object.
    pub fn everything() -> Self {
        Self::default()
    }

    /// Selects objects whose `field` equals the value.
    pub fn exactly(field: &str, value: &str) -> Self {
        FieldSelector(vec![FieldRequirement { field: field.into(), equal: true, value: value.into() }])
    }

    /// Selects objects that meet all `requirements`.
    pub fn from_requirements(requirements: Vec<FieldRequirement>) -> Self {
        FieldSelector(requirements)
    }

    /// Parses the text of a `fieldSelector` parameter.
    pub fn parse(text: &str) -> Result<Self, FieldSelectorError> {
        let mut terms = split_terms(text);
        terms.sort_unstable();
        let mut requirements = Vec::new();
        for term in terms.into_iter().filter(|term| !term.is_empty()) {
            let Some((field, equal, value)) = split_term(term) else {
                return Err(FieldSelectorError::NoOperator { selector: text.into(), term: term.into() });
            };
            let value = unescape(value)?;
            requirements.push(FieldRequirement { field: field.to_owned(), equal, value });
            if requirements.len() > MAX_REQUIREMENTS {
                return Err(FieldSelectorError::TooMany);
            }
        }
        Ok(FieldSelector(requirements))
    }

    /// Returns true if the object matches; `get` returns its fields.
    pub fn matches<'a>(&self, get: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|r| (get(&r.field).unwrap_or_default() == r.value) == r.equal)
    }

    /// Returns true if there are no requirements, so every object matches.
    pub fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the value that a field must equal, if required.
    pub fn requires_exact(&self, field: &str) -> Option<&str> {
        self.0.iter().find(|r| r.equal && r.field == field).map(|r| r.value.as_str())
    }

    /// Returns the requirements, sorted by their text.
    pub fn requirements(&self) -> &[FieldRequirement] {
        &self.0
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, FieldRequirement { field, equal, value }) in self.0.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            let operator = if *equal { "=" } else { "!=" };
            write!(f, "{comma}{field}{operator}{}", escape(value))?;
        }
        Ok(())
    }
}

/// Splits at commas that are not escaped.
fn split_terms(text: &str) -> Vec<&str> {
    let mut escaped = false;
    text.split(|c| {
        let splits = c == ',' && !escaped;
        escaped = c == '\\' && !escaped;
        splits
    })
    .collect()
}

/// Splits at the first operator into field, equality and value.
fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    let at = term.match_indices(['!', '=']).find(|(at, _)| {
        let rest = &term[*at..];
        rest.starts_with('=') || rest.starts_with("!=")
    });
    let (field, rest) = term.split_at(at?.0);
    if let Some(value) = rest.strip_prefix("!=") {
        return Some((field, false, value));
    }
    let value = rest.strip_prefix("==").or_else(|| rest.strip_prefix('='))?;
    Some((field, true, value))
}

fn unescape(value: &str) -> Result<String, FieldSelectorError> {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(escaped @ ('\\' | ',' | '=')) => out.push(escaped),
                Some(other) => return Err(FieldSelectorError::Escape(format!("\\{other}"))),
                None => return Err(FieldSelectorError::Escape("\\".to_owned())),
            },
            ',' | '=' => return Err(FieldSelectorError::Unescaped(c)),
            _ => out.push(c),
        }
    }
    Ok(out)
}

fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(field: &str) -> Option<&'static str> {
        match field {
            "metadata.name" => Some("a"),
            "odd" => Some("x,y=\\z"),
            _ => None,
        }
    }

    #[test]
    fn texts_select_by_fields() {
        let cases = [
            ("", true),
            (",", true),
            ("metadata.name=a", true),
            ("metadata.name==a", true),
            ("metadata.name!=a", false),
            ("metadata.name=b", false),
            ("metadata.name=a,spec.x!=b", true),
            ("spec.x=", true),
            ("spec.x!=", false),
            ("odd=x\\,y\\=\\\\z", true),
            ("odd=x\\,y\\=\\\\z,metadata.name=b", false),
        ];
        for (text, want) in cases {
            assert_eq!(FieldSelector::parse(text).unwrap().matches(get), want, "{text}");
        }
    }

    #[test]
    fn a_selector_has_one_canonical_text() {
        let selector = FieldSelector::parse("z==1\\,2,,a!=3").unwrap();
        assert_eq!(selector.to_string(), "a!=3,z=1\\,2");
        assert_eq!(selector.requires_exact("z"), Some("1,2"));
        assert_eq!(selector.requires_exact("a"), None);
        assert_eq!(FieldSelector::exactly("a", "b").to_string(), "a=b");
    }

    #[test]
    fn invalid_selectors_are_reported_as_kubernetes_does() {
        let cases = [
            ("b=1,a", "invalid selector: 'b=1,a'; can't understand 'a'"),
            ("a!b", "invalid selector: 'a!b'; can't understand 'a!b'"),
            ("a=b=c", "invalid field selector: unescaped character in value: 61"),
            ("a===c", "invalid field selector: unescaped character in value: 61"),
            ("a=\\b", "invalid field selector: invalid escape sequence: \\b"),
            ("a=b\\", "invalid field selector: invalid escape sequence: \\"),
        ];
        for (text, want) in cases {
            assert_eq!(FieldSelector::parse(text).unwrap_err().to_string(), want, "{text}");
        }
    }
}
