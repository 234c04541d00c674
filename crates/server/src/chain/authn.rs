//! Stage: who calls? A client certificate, a token, or nobody.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use time::OffsetDateTime;

use super::client_cert::ClientCas;
use crate::error::Error;
use crate::peer::Peer;
use crate::user::User;

/// Finds out who calls.
pub struct Authenticator {
    /// The CAs that client certificates may come from, swapped when their file changes.
    pub client_cas: ArcSwap<ClientCas>,
    /// Static tokens.
    pub tokens: ArcSwap<TokenFile>,
}

/// The users of a `--token-auth-file`.
#[derive(Default)]
pub struct TokenFile {
    by_digest: HashMap<[u8; 32], Arc<User>>,
}

/// What is wrong with a token file.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct TokenFileError {
    line: usize,
    what: &'static str,
}

impl Authenticator {
    /// The caller. A credential that does not hold is a 401, never "nobody".
    pub fn authenticate(
        &self,
        peer: &Peer,
        headers: &HeaderMap,
        now: OffsetDateTime,
    ) -> Result<Arc<User>, Error> {
        if let Some(local) = peer.local_user() {
            return Ok(local);
        }
        let mut refused = false;
        match peer.certificate_user(&self.client_cas.load_full(), now) {
            Ok(Some(user)) => return Ok(user),
            Ok(None) => {}
            Err(why) => {
                tracing::debug!(%why, "client certificate refused");
                refused = true;
            }
        }
        if let Some(token) = bearer(headers) {
            match self.tokens.load().lookup(token) {
                Some(user) => return Ok(user),
                None => refused = true,
            }
        }
        if refused { Err(Error::Unauthorized) } else { Ok(Arc::new(User::anonymous())) }
    }
}

/// The bearer token of a request; an empty one counts as none.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get(AUTHORIZATION)?.to_str().ok()?.trim();
    let (scheme, token) = text.split_once(' ')?;
    let token = token.trim_start();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

impl TokenFile {
    /// Reads the CSV of `token,user,uid,"group1,group2"`.
    pub fn parse(text: &str) -> Result<TokenFile, TokenFileError> {
        let mut file = TokenFile::default();
        for (i, line) in text.lines().enumerate() {
            let fail = |what| TokenFileError { line: i + 1, what };
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let fields = csv_fields(line).ok_or_else(|| fail("an unclosed quote"))?;
            let [token, name, uid, rest @ ..] = fields.as_slice() else {
                return Err(fail("a line needs token, user and uid"));
            };
            if token.is_empty() {
                return Err(fail("the token is empty"));
            }
            if name.is_empty() {
                return Err(fail("the user is empty"));
            }
            let groups = rest.first().map(String::as_str).unwrap_or_default();
            let groups = groups.split(',').map(str::trim).filter(|g| !g.is_empty());
            let user = User::authenticated(name, uid, groups.map(str::to_owned).collect());
            file.by_digest.insert(digest(token), Arc::new(user));
        }
        Ok(file)
    }

    /// The user of `token`. Looked up by digest, so that the time taken tells nothing of how
    /// much of a guess was right.
    fn lookup(&self, token: &str) -> Option<Arc<User>> {
        self.by_digest.get(&digest(token)).cloned()
    }
}

fn digest(token: &str) -> [u8; 32] {
    let mut out = [0; 32];
    let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, token.as_bytes());
    out.copy_from_slice(hash.as_ref());
    out
}

/// The fields of one CSV line; `None` when a quote is not closed.
fn csv_fields(line: &str) -> Option<Vec<String>> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        let field = fields.last_mut()?;
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                field.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            c => field.push(c),
        }
    }
    (!quoted).then(|| fields.iter().map(|f| f.trim().to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_file_names_its_users() {
        let file = TokenFile::parse("t1,alice,u1,\"dev,ops\"\n\nt2,bob,u2\n").unwrap();
        let alice = file.lookup("t1").unwrap();
        assert_eq!((alice.name.as_str(), alice.uid.as_str()), ("alice", "u1"));
        assert_eq!(alice.groups, ["dev", "ops", "system:authenticated"]);
        assert_eq!(file.lookup("t2").unwrap().groups, ["system:authenticated"]);
        assert!(file.lookup("t3").is_none());
    }

    #[test]
    fn a_bad_token_file_names_the_line() {
        for (text, words) in [
            ("a,b,c\nx,y", "line 2: a line needs"),
            (",b,c", "line 1: the token is empty"),
            ("a,b,c,\"d", "line 1: an unclosed quote"),
        ] {
            let error = TokenFile::parse(text).err().unwrap().to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn an_empty_bearer_is_no_token() {
        let mut headers = HeaderMap::new();
        for (value, want) in [("Bearer ", None), ("Bearer x", Some("x")), ("Basic x", None)] {
            headers.insert(AUTHORIZATION, value.parse().unwrap());
            assert_eq!(bearer(&headers), want);
        }
    }
}
