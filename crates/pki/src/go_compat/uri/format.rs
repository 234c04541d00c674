//! Formatting of parsed URIs as Go prints them. This form is written into certificates.

use super::{UriPart, parse_host, split_scheme, unescape};

/// The URI components, which differ in the characters that need no escaping.
#[derive(Clone, Copy, PartialEq, Eq)]
enum UriComponent {
    User,
    Host,
    Path,
    Fragment,
}

/// Formats a URI; `None` if it is not a URI.
pub(super) fn format_uri(uri: &str) -> Option<String> {
    let (uri, fragment) = uri.split_once('#').unwrap_or((uri, ""));
    let mut text = if uri == "*" { "*".to_owned() } else { format_hierarchy(uri)? };
    if !fragment.is_empty() {
        text.push('#');
        text.push_str(&keep_valid_or_escape(fragment, UriComponent::Fragment)?);
    }
    Some(text)
}

fn format_hierarchy(uri: &str) -> Option<String> {
    let (scheme, rest) = split_scheme(uri)?;
    // The question mark is kept even if nothing follows it.
    let (rest, query) = match rest.split_once('?') {
        Some((rest, query)) => (rest, Some(query)),
        None => (rest, None),
    };
    let mut text = scheme.to_ascii_lowercase();
    if !scheme.is_empty() {
        text.push(':');
    }
    if scheme.is_empty() || rest.starts_with('/') {
        let authority = rest.strip_prefix("//").filter(|_| !scheme.is_empty() || !rest.starts_with("///"));
        let path = match authority {
            None => rest,
            Some(authority) => {
                let end = authority.find('/').unwrap_or(authority.len());
                let (authority, path) = authority.split_at(end);
                text.push_str(&format_authority(authority, path, scheme)?);
                path
            }
        };
        let path = keep_valid_or_escape(path, UriComponent::Path)?;
        let segment = path.split('/').next().unwrap_or_default();
        if text.is_empty() && segment.contains(':') {
            text.push_str("./");
        }
        text.push_str(&path);
    } else {
        text.push_str(rest);
    }
    if let Some(query) = query {
        text.push('?');
        text.push_str(query);
    }
    Some(text)
}

/// Formats slashes, user and host. Empty if there is no authority and no path.
fn format_authority(authority: &str, path: &str, scheme: &str) -> Option<String> {
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    let host = parse_host(host, scheme)?;
    if user.is_none() && host.is_empty() && (path.is_empty() || scheme.is_empty()) {
        return Some(String::new());
    }
    let mut text = "//".to_owned();
    if let Some(user) = user {
        let (name, password) = match user.split_once(':') {
            Some((name, password)) => (name, Some(password)),
            None => (user, None),
        };
        text.push_str(&escape(&unescape(name, UriPart::Other)?, UriComponent::User));
        if let Some(password) = password {
            text.push(':');
            text.push_str(&escape(&unescape(password, UriPart::Other)?, UriComponent::User));
        }
        text.push('@');
    }
    text.push_str(&escape(&host, UriComponent::Host));
    Some(text)
}

/// Keeps properly escaped text; otherwise escapes everything again.
fn keep_valid_or_escape(text: &str, place: UriComponent) -> Option<String> {
    let plain = unescape(text, UriPart::Other)?;
    let proper = |byte: u8| b"!$&'()*+,;=:@[]%".contains(&byte) || is_plain(byte, place);
    Some(if text.bytes().all(proper) { text.to_owned() } else { escape(&plain, place) })
}

fn escape(plain: &[u8], place: UriComponent) -> String {
    let mut text = String::with_capacity(plain.len());
    for &byte in plain {
        if is_plain(byte, place) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

/// Returns true for bytes that Go does not escape.
fn is_plain(byte: u8, place: UriComponent) -> bool {
    byte.is_ascii_alphanumeric()
        || b"-_.~".contains(&byte)
        || match place {
            UriComponent::User => b"$&+,;=".contains(&byte),
            UriComponent::Host => b"!$&'()*+,;=:[]<>\"".contains(&byte),
            UriComponent::Path => b"$&+,/:;=@".contains(&byte),
            UriComponent::Fragment => b"$&+,/:;=?@!()*".contains(&byte),
        }
}
