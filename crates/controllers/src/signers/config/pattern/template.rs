//! Patterns that depend on the requester: only the node `a` may have the name `a.example.com` under
//! `{node}.example.com`.
//!
//! User names are chosen by others. So the value of a placeholder must be a plain name in its position. If it is not, or
//! the requester has no such value, the pattern matches nothing.

use windlass_api::names;

use super::{NamePattern, PatternKind};

/// The user who created a request, as the API server recorded it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequesterIdentity<'a> {
    user: &'a str,
}

/// A name pattern with placeholders for properties of the requester.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternTemplate {
    text: String,
    kind: PatternKind,
    pieces: Vec<TemplatePiece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplatePiece {
    Text(String),
    Value(TemplatePlaceholder),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TemplatePlaceholder {
    Node,
    User,
    Namespace,
    ServiceAccount,
}

const PLACEHOLDERS: [(&str, TemplatePlaceholder); 4] = [
    ("node", TemplatePlaceholder::Node),
    ("user", TemplatePlaceholder::User),
    ("namespace", TemplatePlaceholder::Namespace),
    ("serviceAccount", TemplatePlaceholder::ServiceAccount),
];

impl<'a> RequesterIdentity<'a> {
    /// Creates the identity of a user; the name is empty if the request has none.
    pub fn new(user: &'a str) -> RequesterIdentity<'a> {
        RequesterIdentity { user }
    }

    fn value(self, placeholder: TemplatePlaceholder) -> Option<&'a str> {
        let account = || {
            let account = self.user.strip_prefix("system:serviceaccount:")?;
            account.split_once(':').filter(|(_, name)| !name.contains(':'))
        };
        match placeholder {
            TemplatePlaceholder::Node => self.user.strip_prefix("system:node:"),
            TemplatePlaceholder::User => Some(self.user),
            TemplatePlaceholder::Namespace => account().map(|(namespace, _)| namespace),
            TemplatePlaceholder::ServiceAccount => account().map(|(_, name)| name),
        }
        .filter(|value| !value.is_empty())
    }
}

impl PatternTemplate {
    /// Parses a pattern with placeholders; the error is a message that begins with the pattern.
    pub(super) fn parse(text: &str, kind: PatternKind) -> Result<PatternTemplate, String> {
        let template = PatternTemplate { text: text.to_owned(), kind, pieces: parse_pieces(text)? };
        // The result must be a valid pattern if each placeholder is a name or, alone in an e-mail pattern, an address.
        let sample = template.pieces.iter().map(|piece| match piece {
            TemplatePiece::Text(text) => text.as_str(),
            TemplatePiece::Value(_) if template.is_single_placeholder(PatternKind::Email) => "x@x",
            TemplatePiece::Value(_) => "x",
        });
        kind.parse(&sample.collect::<String>())?;
        if kind == PatternKind::Uri && template.has_placeholder_in_host() {
            return Err(format!("{text:?} has a placeholder in the host; use placeholders only in the path"));
        }
        Ok(template)
    }

    /// Returns the pattern as it is in the file.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Builds the pattern for a requester; `None` if a placeholder has no valid value.
    pub(super) fn fill(&self, requester: &RequesterIdentity<'_>) -> Option<NamePattern> {
        let mut text = String::new();
        for piece in &self.pieces {
            match piece {
                TemplatePiece::Text(piece) => text.push_str(piece),
                TemplatePiece::Value(placeholder) => {
                    let value = requester.value(*placeholder)?;
                    text.push_str(Some(value).filter(|value| self.value_fits(value, *placeholder))?);
                }
            }
        }
        self.kind.parse(&text).ok()
    }

    /// Whether a value is a plain name in the position of its placeholder.
    fn value_fits(&self, value: &str, placeholder: TemplatePlaceholder) -> bool {
        let of = |others: &str| {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || others.contains(c);
            value.chars().all(is_plain) && value != "." && value != ".."
        };
        let dns = self.kind == PatternKind::DnsName || self.text.starts_with("*.");
        match (self.kind, placeholder) {
            // DNS names are case-insensitive and user names are not. Node names may contain dots.
            (_, TemplatePlaceholder::Node) if dns => names::dns1123_subdomain(value).is_empty(),
            _ if dns => names::dns1123_label(value).is_empty(),
            (PatternKind::Uri, _) => of("-._~"),
            (PatternKind::Email, _) if self.is_single_placeholder(PatternKind::Email) => of("-._+@"),
            (PatternKind::Email, _) => names::dns1123_label(value).is_empty(),
            (PatternKind::CommonName | PatternKind::Word | PatternKind::DnsName, _) => of("-._~:@+ "),
        }
    }

    /// Whether the pattern is of this kind and consists of one placeholder.
    fn is_single_placeholder(&self, kind: PatternKind) -> bool {
        self.kind == kind && matches!(self.pieces.as_slice(), [TemplatePiece::Value(_)])
    }

    /// Whether a placeholder comes before the path of the URI.
    fn has_placeholder_in_host(&self) -> bool {
        let Some(first) = self.text.find('{') else { return false };
        let host = self.text.find("://").map(|at| at.saturating_add(3));
        let ends = match host {
            Some(host) => self.text.get(host..).and_then(|rest| rest.find('/')).map(|at| host + at),
            None => self.text.find(':'),
        };
        ends.is_none_or(|ends| first < ends)
    }
}

fn parse_pieces(text: &str) -> Result<Vec<TemplatePiece>, String> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        let Some((name, behind)) = after.split_once('}') else {
            return Err(format!("{text:?} has a \"{{\" without a \"}}\"; add it"));
        };
        let Some((_, placeholder)) = PLACEHOLDERS.iter().find(|(known, _)| *known == name) else {
            let known = PLACEHOLDERS.map(|(name, _)| format!("{{{name}}}")).join(", ");
            return Err(format!("{text:?} has the unknown placeholder {{{name}}}; use one of {known}"));
        };
        pieces.extend(parse_text_piece(before, text)?);
        pieces.push(TemplatePiece::Value(*placeholder));
        rest = behind;
    }
    pieces.extend(parse_text_piece(rest, text)?);
    Ok(pieces)
}

fn parse_text_piece(piece: &str, text: &str) -> Result<Option<TemplatePiece>, String> {
    if piece.contains('}') {
        return Err(format!("{text:?} has a \"}}\" without a \"{{\"; add it"));
    }
    Ok((!piece.is_empty()).then(|| TemplatePiece::Text(piece.to_owned())))
}
