//! Front proxies, which authenticate the caller and forward the identity in headers.
//!
//! The headers count only over a connection whose client certificate is issued by the proxy CA;
//! otherwise they are ignored.

use std::sync::Arc;

use arc_swap::ArcSwap;
use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;
use time::OffsetDateTime;

use super::client_cert::{ClientCas, ClientCertError};
use super::revocation::RevocationChecker;
use crate::peer::Peer;
use crate::user::{AUTHENTICATED, UNAUTHENTICATED, User};

/// Trusted front proxies and their headers. Header names are case-insensitive.
pub struct FrontProxy {
    /// Trust anchors of proxy certificates; replaced when the file is reloaded.
    pub cas: ArcSwap<ClientCas>,
    /// Accepted common names of proxies; empty accepts any certificate of the CAs.
    pub allowed_names: Vec<String>,
    /// Headers with the user name; the first non-empty one counts.
    pub username_headers: Vec<String>,
    /// Headers with the user's UID; the first non-empty one counts.
    pub uid_headers: Vec<String>,
    /// Headers with the user's groups; all of them count.
    pub group_headers: Vec<String>,
    /// Prefixes of headers with extra fields; the rest of the name is the key.
    pub extra_prefixes: Vec<String>,
}

impl FrontProxy {
    /// Accepts any proxy that chains to `cas`, with Kubernetes' default headers.
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

    /// Authenticates the forwarded user; `None` without proxy headers.
    pub fn identify(
        &self,
        revocations: &RevocationChecker,
        peer: &Peer,
        headers: &HeaderMap,
        now: OffsetDateTime,
    ) -> Result<Option<Arc<User>>, ClientCertError> {
        // Before the certificate, so that other clients' certificates are not verified twice.
        let Some(name) = first(headers, &self.username_headers) else { return Ok(None) };
        let cas = self.cas.load_full();
        if cas.is_empty() {
            return Ok(None);
        }
        let Some(certificate) = peer.certificate(&cas, now)? else { return Ok(None) };
        revocations.check(&certificate)?;
        let known = |allowed: &String| *allowed == certificate.common_name;
        if !self.allowed_names.is_empty() && !self.allowed_names.iter().any(known) {
            return Err(ClientCertError::NoProxy);
        }
        Ok(Some(Arc::new(self.user(text(name)?, headers)?)))
    }

    /// Returns true if the header is one of the identity headers.
    pub fn reads(&self, header: &HeaderName) -> bool {
        let mut names = self.username_headers.iter().chain(&self.uid_headers).chain(&self.group_headers);
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
        // A proxy may forward anonymous callers as well.
        let said = user.has_group(AUTHENTICATED) || user.has_group(UNAUTHENTICATED);
        if !said && user.name != User::anonymous().name {
            user.groups.push(AUTHENTICATED.into());
        }
        Ok(user)
    }
}

/// Returns the first non-empty header of those named.
fn first<'a>(headers: &'a HeaderMap, names: &[String]) -> Option<&'a HeaderValue> {
    let mut values = names.iter().filter_map(|name| headers.get(name.as_str()));
    values.find(|value| !value.is_empty())
}

/// Rejects invalid UTF-8: lossy conversion would give two users the same name.
fn text(value: &HeaderValue) -> Result<String, ClientCertError> {
    let text = std::str::from_utf8(value.as_bytes());
    text.map(str::to_owned).map_err(|_| ClientCertError::NotText)
}

/// Returns the key of an extra header: the percent-decoded rest after the prefix. Header names are
/// in lower case already.
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

/// Returns true if two digits follow every `%`; otherwise Go leaves the whole name as it is.
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
