//! Static tokens of `--token-auth-file`.

use std::collections::HashMap;
use std::sync::Arc;

use crate::user::User;

/// Users of a `--token-auth-file`, by token.
#[derive(Default)]
pub struct TokenFile {
    by_digest: HashMap<[u8; 32], Arc<User>>,
}

#[derive(Debug, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct TokenFileError {
    line: usize,
    what: &'static str,
}

impl TokenFile {
    /// Parses lines of CSV: `token,user,uid,"group1,group2"`.
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

    /// Returns the user of `token`. Lookup is by digest, so that timing does not reveal how much of
    /// a guess was right.
    pub fn lookup(&self, token: &str) -> Option<Arc<User>> {
        self.by_digest.get(&digest(token)).cloned()
    }
}

fn digest(token: &str) -> [u8; 32] {
    let mut out = [0; 32];
    let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, token.as_bytes());
    out.copy_from_slice(hash.as_ref());
    out
}

/// Splits one CSV line into fields; `None` if a quote is not closed.
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
    fn an_invalid_token_file_names_the_line() {
        for (text, words) in [
            ("a,b,c\nx,y", "line 2: a line needs"),
            (",b,c", "line 1: the token is empty"),
            ("a,b,c,\"d", "line 1: an unclosed quote"),
        ] {
            let error = TokenFile::parse(text).err().unwrap().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
