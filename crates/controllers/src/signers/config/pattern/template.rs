//! Patterns that are tied to the requester: `{node}.example.com` is a name that only the node of that
//! name may have.
//!
//! A user name is text that others choose. So what stands in the place of a placeholder must be no
//! more than a name where it stands; if it is not, or the requester does not have it, the pattern
//! matches nothing.

use windlass_api::names;

use super::{Kind, Pattern};

/// Who made a request, as the API server wrote it down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requester<'a> {
    user: &'a str,
}

/// A pattern with placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    text: String,
    kind: Kind,
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Value(Placeholder),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placeholder {
    Node,
    User,
    Namespace,
    ServiceAccount,
}

const PLACEHOLDERS: [(&str, Placeholder); 4] = [
    ("node", Placeholder::Node),
    ("user", Placeholder::User),
    ("namespace", Placeholder::Namespace),
    ("serviceAccount", Placeholder::ServiceAccount),
];

impl<'a> Requester<'a> {
    /// The user of this name; empty if nobody knows.
    pub fn new(user: &'a str) -> Requester<'a> {
        Requester { user }
    }

    fn value(self, placeholder: Placeholder) -> Option<&'a str> {
        let account = || {
            let account = self.user.strip_prefix("system:serviceaccount:")?;
            account.split_once(':').filter(|(_, name)| !name.contains(':'))
        };
        match placeholder {
            Placeholder::Node => self.user.strip_prefix("system:node:"),
            Placeholder::User => Some(self.user),
            Placeholder::Namespace => account().map(|(namespace, _)| namespace),
            Placeholder::ServiceAccount => account().map(|(_, name)| name),
        }
        .filter(|value| !value.is_empty())
    }
}

impl Template {
    /// Reads a pattern with placeholders, or says what is wrong with it.
    pub(super) fn parse(text: &str, kind: Kind) -> Result<Template, String> {
        let template = Template { text: text.to_owned(), kind, pieces: pieces(text)? };
        // Each placeholder will be one name, or a whole address: with one it has to be a pattern.
        let sample = template.pieces.iter().map(|piece| match piece {
            Piece::Text(text) => text.as_str(),
            Piece::Value(_) if template.is_whole(Kind::Email) => "x@x",
            Piece::Value(_) => "x",
        });
        kind.parse(&sample.collect::<String>())?;
        if kind == Kind::Uri && template.is_in_host() {
            return Err(format!("{text:?}: placeholders in a URI stand after its host"));
        }
        Ok(template)
    }

    /// As it is written in the file.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The pattern for a requester; `None` if they have no such name.
    pub(super) fn fill(&self, requester: &Requester<'_>) -> Option<Pattern> {
        let mut text = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(piece) => text.push_str(piece),
                Piece::Value(placeholder) => {
                    let value = requester.value(*placeholder)?;
                    text.push_str(Some(value).filter(|value| self.fits(value, *placeholder))?);
                }
            }
        }
        self.kind.parse(&text).ok()
    }

    /// Whether a value is a name where it is to stand, and nothing else.
    fn fits(&self, value: &str, placeholder: Placeholder) -> bool {
        let of = |others: &str| {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || others.contains(c);
            value.chars().all(is_plain) && value != "." && value != ".."
        };
        let dns = self.kind == Kind::DnsName || self.text.starts_with("*.");
        match (self.kind, placeholder) {
            // These are compared without regard to case, and users with. Names of nodes have dots.
            (_, Placeholder::Node) if dns => names::dns1123_subdomain(value).is_empty(),
            _ if dns => names::dns1123_label(value).is_empty(),
            (Kind::Uri, _) => of("-._~"),
            (Kind::Email, _) if self.is_whole(Kind::Email) => of("-._+@"),
            (Kind::Email, _) => names::dns1123_label(value).is_empty(),
            (Kind::CommonName | Kind::Word | Kind::DnsName, _) => of("-._~:@+ "),
        }
    }

    /// Whether it is a placeholder and nothing else, of this kind.
    fn is_whole(&self, kind: Kind) -> bool {
        self.kind == kind && matches!(self.pieces.as_slice(), [Piece::Value(_)])
    }

    /// Whether a placeholder stands before the path.
    fn is_in_host(&self) -> bool {
        let Some(first) = self.text.find('{') else { return false };
        let host = self.text.find("://").map(|at| at.saturating_add(3));
        let ends = match host {
            Some(host) => self.text.get(host..).and_then(|rest| rest.find('/')).map(|at| host + at),
            None => self.text.find(':'),
        };
        ends.is_none_or(|ends| first < ends)
    }
}

fn pieces(text: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        let Some((name, behind)) = after.split_once('}') else {
            return Err(format!("{text:?} has a \"{{\" without a \"}}\""));
        };
        let Some((_, placeholder)) = PLACEHOLDERS.iter().find(|(known, _)| *known == name) else {
            let known = PLACEHOLDERS.map(|(name, _)| format!("{{{name}}}")).join(", ");
            return Err(format!("{text:?}: {{{name}}} is not a placeholder; there are {known}"));
        };
        pieces.extend(plain(before, text)?);
        pieces.push(Piece::Value(*placeholder));
        rest = behind;
    }
    pieces.extend(plain(rest, text)?);
    Ok(pieces)
}

fn plain(piece: &str, text: &str) -> Result<Option<Piece>, String> {
    if piece.contains('}') {
        return Err(format!("{text:?} has a \"}}\" without a \"{{\""));
    }
    Ok((!piece.is_empty()).then(|| Piece::Text(piece.to_owned())))
}
