//! Validation of URIs as Go's `net/url` parses them, and of their hosts as Go accepts them in
//! certificates.

use std::net::Ipv6Addr;

use super::domain_name;

mod format;

/// Parses a URI of a certificate and returns it as Go prints it.
pub(crate) fn canonical(uri: &str) -> Result<String, &'static str> {
    check(uri)?;
    format::format_uri(uri).ok_or("alternative name is no URI")
}

/// Checks the syntax of a certificate's URI.
fn check(uri: &str) -> Result<(), &'static str> {
    let host = host(uri).ok_or("alternative name is no URI")?;
    if host.is_empty() || domain_name::is_valid(&host, false) {
        Ok(())
    } else {
        Err("the host of a URI is no domain")
    }
}

/// Returns the unescaped host and port of a URI; empty if there is none, `None` if it is not a URI.
fn host(uri: &str) -> Option<Vec<u8>> {
    let (uri, fragment) = uri.split_once('#').unwrap_or((uri, ""));
    if uri.bytes().any(|byte| byte.is_ascii_control()) {
        return None;
    }
    let has_host = if uri == "*" { Vec::new() } else { hierarchy(uri)? };
    unescape(fragment, UriPart::Other)?;
    Some(has_host)
}

fn hierarchy(uri: &str) -> Option<Vec<u8>> {
    let (scheme, rest) = split_scheme(uri)?;
    let rest = rest.split_once('?').map_or(rest, |(path, _)| path);
    if !rest.starts_with('/') {
        if !scheme.is_empty() {
            return Some(Vec::new());
        }
        // A relative path whose first segment has a colon is a malformed scheme.
        let segment = rest.split('/').next()?;
        if segment.contains(':') {
            return None;
        }
    }
    let authority = rest.strip_prefix("//").filter(|_| !scheme.is_empty() || !rest.starts_with("///"));
    let Some(authority) = authority else {
        unescape(rest, UriPart::Other)?;
        return Some(Vec::new());
    };
    let (authority, path) = authority.split_at(authority.find('/').unwrap_or(authority.len()));
    unescape(path, UriPart::Other)?;
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    user.bytes().all(is_user).then_some(())?;
    unescape(user, UriPart::Other)?;
    parse_host(host, scheme)
}

/// Splits off the scheme, which may be empty.
fn split_scheme(uri: &str) -> Option<(&str, &str)> {
    for (index, byte) in uri.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if index > 0 => {}
            b':' if index == 0 => return None,
            b':' => return uri.split_once(':'),
            _ => break,
        }
    }
    Some(("", uri))
}

/// Parses a name or address with an optional port. Database URIs contain lists of these, so more
/// than one colon is rejected for web schemes only.
fn parse_host(host: &str, scheme: &str) -> Option<Vec<u8>> {
    let Some((before, _)) = host.rsplit_once('[') else {
        let web = ["http", "https"].iter().any(|web| scheme.eq_ignore_ascii_case(web));
        let port = if web { host.split_once(':') } else { host.rsplit_once(':') };
        if let Some((_, port)) = port {
            is_port(port).then_some(())?;
        }
        return unescape(host, UriPart::Host);
    };
    let (inside, port) = host.strip_prefix('[').filter(|_| before.is_empty())?.rsplit_once(']')?;
    if !port.is_empty() {
        is_port(port.strip_prefix(':')?).then_some(())?;
    }
    let (address, zone) = inside.split_at(inside.find("%25").unwrap_or(inside.len()));
    let (address, zone) = (unescape(address, UriPart::Host)?, unescape(zone, UriPart::Zone)?);
    std::str::from_utf8(&address).ok()?.parse::<Ipv6Addr>().ok()?;
    // A zone is a percent sign and a name.
    if zone.len() == 1 {
        return None;
    }
    Some([b"[", address.as_slice(), &zone, b"]", port.as_bytes()].concat())
}

fn is_port(port: &str) -> bool {
    port.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_user(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum UriPart {
    Host,
    Zone,
    Other,
}

/// Decodes percent-encoding. In a host, only non-ASCII characters and the percent sign may be
/// encoded.
fn unescape(text: &str, part: UriPart) -> Option<Vec<u8>> {
    let mut plain = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
            let (high, low) = (digit(bytes.next())?, digit(bytes.next())?);
            let value = u8::try_from(high * 16 + low).ok()?;
            let allowed = match part {
                UriPart::Host => value >= 0x80 || value == b'%',
                UriPart::Zone => value == b'%' || value == b' ' || is_host(value),
                UriPart::Other => true,
            };
            allowed.then(|| plain.push(value))?;
        } else {
            (part == UriPart::Other || is_host(byte)).then(|| plain.push(byte))?;
        }
    }
    Some(plain)
}

/// Returns true for bytes that a host may contain unescaped.
fn is_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]<>\"".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_what_go_accepts() {
        for good in [
            "",
            "*",
            "spiffe://example.org/ns/a",
            "https://user:pw@host:8443/p?q=%zz#f",
            "mailto:a b",
            "http://[::1]:80/",
            "http://[fe80::1%25en0]/",
            "/path",
            "//host",
            "urn:x:%zz",
            "path",
            "http://host:/",
            "///a:b",
            "ldap:///o=x",
            "http://a%25b/",
            "?x",
            "http://h/%41",
            "mongodb://a:1,b:2/",
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in [
            ":x",
            "a\nb",
            "http://a b/",
            "http://h:x/",
            "http://[::1/",
            "http://[1.2.3.4]/",
            "http://h/%zz",
            "http://%41/",
            "a%b:c",
            "http://h.",
            "http://a..b/",
            "http://u@@ h/",
            "http://x[::1]/",
            "1:2",
            "http://[::1]x/",
            "http://a\"b|/",
            "#%",
            "http://u%z@h/",
            "http://[fe80::1%25]/",
            "HTTP://a:1:2/",
            "x://a:1:x/",
        ] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn prints_what_go_prints() {
        for same in [
            "",
            "*",
            "spiffe://example.org/ns/a/sa/b",
            "spiffe://x/y",
            "https://user:pw@host:8443/p?q=%zz#f",
            "mailto:a b",
            "urn:x:%zz",
            "/path",
            "//host",
            "path",
            "http://host:/",
            "///a:b",
            "ldap:///o=x",
            "x:/p",
            "x:",
            "?",
            "a?b?",
            "http://h/%41%2f",
            "http://h/a;b,c=d@e!'()*[]",
            "mongodb://a:1,b:2/",
            "http://[fe80::1%25en0]/",
            "http://a%25b/",
            "//@/p",
            "x://u:@h",
            "http://h/p#a?b/c",
        ] {
            assert_eq!(canonical(same).as_deref(), Ok(same));
        }
        for (uri, printed) in [
            ("SPIFFE://Example.org/A", "spiffe://Example.org/A"),
            ("http://h/a b", "http://h/a%20b"),
            ("http://h/a\"b%2f", "http://h/a%22b/"),
            ("http://h/{}|^`", "http://h/%7B%7D%7C%5E%60"),
            ("http://h#", "http://h"),
            ("http://h/#a b", "http://h/#a%20b"),
            ("x://", "x:"),
            ("x://?q", "x:?q"),
            ("//", ""),
            ("http://u!v@h/", "http://u%21v@h/"),
            ("http://%75:p%40w@h/", "http://u:p%40w@h/"),
            ("MAILTO:a b", "mailto:a b"),
        ] {
            assert_eq!(canonical(uri).as_deref(), Ok(printed), "{uri}");
            assert_eq!(canonical(printed).as_deref(), Ok(printed), "{uri}");
        }
    }
}
