//! A proxy in front that has authenticated the caller and says who it is in headers.
//!
//! The headers count only over a connection whose certificate comes from a CA of their own; from
//! anybody else they are as if they were not there.

use std::sync::Arc;

use arc_swap::ArcSwap;
use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;
use time::OffsetDateTime;

use super::client_cert::{ClientCas, ClientCertError};
use crate::peer::Peer;
use crate::user::{AUTHENTICATED, UNAUTHENTICATED, User};

/// Which proxies are believed, and in which headers they speak. Names of headers are compared
/// without regard to case.
pub struct FrontProxy {
    /// The CAs of the proxies' certificates, swapped when their file changes.
    pub cas: ArcSwap<ClientCas>,
    /// The common names of the proxies; empty for any that the CAs vouch for.
    pub allowed_names: Vec<String>,
    /// Headers with the user's name; the first that says something counts.
    pub username_headers: Vec<String>,
    /// Headers with the user's UID; the first that says something counts.
    pub uid_headers: Vec<String>,
    /// Headers with the user's groups; all count.
    pub group_headers: Vec<String>,
    /// How headers with more facts begin; the rest of their name is the fact's.
    pub extra_prefixes: Vec<String>,
}

impl FrontProxy {
    /// Believes any proxy that `cas` vouch for, in the headers that Kubernetes' own proxies use.
    pub fn new(cas: ClientCas) -> FrontProxy {
        let one = |name: &str| vec![name.to_owned()];
        FrontProxy {
            cas: ArcSwap::from_pointee(cas),
            allowed_names: Vec::new(),
            username_headers: one("X-Remote-User"),
            uid_headers: one("X-Remote-Uid"),
            group_headers: one("X-Remote-Group"),
            extra_prefixes: one("X-Remote-Extra-"),
        }
    }

    /// Whom a proxy speaks for; none if nobody claims to be one.
    pub fn identify(
        &self,
        peer: &Peer,
        headers: &HeaderMap,
        now: OffsetDateTime,
    ) -> Result<Option<Arc<User>>, ClientCertError> {
        // Before the certificate, so that everybody else's is not verified twice.
        let Some(name) = first(headers, &self.username_headers) else { return Ok(None) };
        let cas = self.cas.load_full();
        if cas.is_empty() {
            return Ok(None);
        }
        let Some(certificate) = peer.certificate(&cas, now)? else { return Ok(None) };
        let known = |allowed: &String| *allowed == certificate.common_name;
        if !self.allowed_names.is_empty() && !self.allowed_names.iter().any(known) {
            return Err(ClientCertError::NoProxy);
        }
        Ok(Some(Arc::new(self.user(text(name)?, headers)?)))
    }

    /// Whether a header says something here.
    pub fn reads(&self, header: &HeaderName) -> bool {
        let mut names =
            self.username_headers.iter().chain(&self.uid_headers).chain(&self.group_headers);
        names.any(|name| header.as_str().eq_ignore_ascii_case(name))
            || self.extra_prefixes.iter().any(|prefix| extra_key(header, prefix).is_some())
    }

    fn user(&self, name: String, headers: &HeaderMap) -> Result<User, ClientCertError> {
        let uid = first(headers, &self.uid_headers).map_or_else(|| Ok(String::new()), text)?;
        let mut user = User { name, uid, ..User::default() };
        for header in &self.group_headers {
            let groups = headers.get_all(header.as_str()).iter().filter(|group| !group.is_empty());
            for group in groups {
                user.groups.push(text(group)?);
            }
        }
        for (header, value) in headers {
            for key in self.extra_prefixes.iter().filter_map(|prefix| extra_key(header, prefix)) {
                user.extra.entry(key).or_default().push(text(value)?);
            }
        }
        // A proxy may pass on somebody whom it does not know either.
        let said = user.has_group(AUTHENTICATED) || user.has_group(UNAUTHENTICATED);
        if !said && user.name != User::anonymous().name {
            user.groups.push(AUTHENTICATED.into());
        }
        Ok(user)
    }
}

/// The first of the headers that is not empty.
fn first<'a>(headers: &'a HeaderMap, names: &[String]) -> Option<&'a HeaderValue> {
    let mut values = names.iter().filter_map(|name| headers.get(name.as_str()));
    values.find(|value| !value.is_empty())
}

/// What is no UTF-8 is refused: made to fit, two users would have one name.
fn text(value: &HeaderValue) -> Result<String, ClientCertError> {
    let text = std::str::from_utf8(value.as_bytes());
    text.map(str::to_owned).map_err(|_| ClientCertError::NotText)
}

/// The fact that a header is about: what follows the prefix, percent-decoded. Names of headers
/// are in lower case already.
fn extra_key(header: &HeaderName, prefix: &str) -> Option<String> {
    let name = header.as_str();
    let (start, rest) = name.split_at_checked(prefix.len())?;
    if !start.eq_ignore_ascii_case(prefix) {
        return None;
    }
    Some(match percent_decode_str(rest).decode_utf8() {
        Ok(key) if well_escaped(rest) => key.into_owned(),
        Ok(_) | Err(_) => rest.to_owned(),
    })
}

/// Whether every `%` has two digits after it; otherwise Go leaves the whole name as it is.
fn well_escaped(text: &str) -> bool {
    text.split('%').skip(1).all(|rest| {
        let digits = rest.get(..2).unwrap_or_default();
        digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_extras_are_decoded() {
        for (header, want) in [
            ("x-remote-extra-scopes", Some("scopes")),
            ("x-remote-extra-example.com%2fproject", Some("example.com/project")),
            ("x-remote-extra-half%2", Some("half%2")),
            ("x-remote-extra-%zz", Some("%zz")),
            ("x-remote-extra-%ff", Some("%ff")),
            ("x-remote-user", None),
            ("x", None),
        ] {
            let key = extra_key(&HeaderName::from_static(header), "X-Remote-Extra-");
            assert_eq!(key.as_deref(), want, "{header}");
        }
    }

    #[test]
    fn a_user_is_put_together_from_all_headers() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("x-remote-group", "dev"),
            ("x-remote-group", ""),
            ("x-remote-group", "ops"),
            ("x-remote-uid", "42"),
            ("x-remote-extra-a", "1"),
            ("x-remote-extra-a", "2"),
        ] {
            headers.append(name, value.parse().unwrap());
        }
        let proxy = FrontProxy::new(ClientCas::default());
        let user = proxy.user("jane".into(), &headers).unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("jane", "42"));
        assert_eq!(user.groups, ["dev", "ops", "system:authenticated"]);
        assert_eq!(user.extra["a"], ["1", "2"]);
        let nobody = proxy.user("system:anonymous".into(), &HeaderMap::new()).unwrap();
        assert!(nobody.groups.is_empty());
        headers.insert("x-remote-group", "system:unauthenticated".parse().unwrap());
        let stranger = proxy.user("jane".into(), &headers).unwrap();
        assert_eq!(stranger.groups, ["system:unauthenticated"]);
    }

    #[test]
    fn other_encodings_are_refused() {
        let proxy = FrontProxy::new(ClientCas::default());
        let odd = HeaderValue::from_bytes(b"j\xe9").unwrap();
        assert!(matches!(text(&odd), Err(ClientCertError::NotText)));
        for header in ["x-remote-uid", "x-remote-group", "x-remote-extra-a"] {
            let mut headers = HeaderMap::new();
            headers.insert(header, odd.clone());
            let user = proxy.user("jane".into(), &headers);
            assert!(matches!(user, Err(ClientCertError::NotText)), "{header}");
        }
    }
}
