//! Source addresses of a request.

use std::net::IpAddr;

use http::HeaderMap;

use crate::limits;
use crate::peer::Peer;

/// Returns the addresses that proxies report, then the peer address, the only trustworthy one.
/// Invalid addresses are omitted.
pub(super) fn collect(peer: &Peer, headers: &HeaderMap) -> Vec<String> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let forwarded = text("x-forwarded-for").unwrap_or_default().split(',').filter_map(parse);
    let mut all: Vec<IpAddr> = forwarded.take(limits::AUDIT_SOURCES).collect();
    if let Some(real) = text("x-real-ip").and_then(parse)
        && !all.contains(&real)
    {
        all.push(real);
    }
    if let Some(remote) = peer.address().map(|address| address.ip().to_canonical())
        && all.last() != Some(&remote)
    {
        all.push(remote);
    }
    all.iter().map(IpAddr::to_string).collect()
}

fn parse(text: &str) -> Option<IpAddr> {
    text.trim().parse::<IpAddr>().ok().map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_connecting_address_is_last_and_addresses_are_unique() {
        let peer = Peer::from_tls("[::ffff:10.0.0.9]:99".parse().unwrap(), Vec::new());
        for (forwarded, real, want) in [
            ("", "", vec!["10.0.0.9"]),
            ("10.0.0.1, nonsense ,10.0.0.2", "", vec!["10.0.0.1", "10.0.0.2", "10.0.0.9"]),
            ("10.0.0.1", "10.0.0.1", vec!["10.0.0.1", "10.0.0.9"]),
            ("10.0.0.1", "2001:db8::1", vec!["10.0.0.1", "2001:db8::1", "10.0.0.9"]),
            ("10.0.0.1,10.0.0.9", "", vec!["10.0.0.1", "10.0.0.9"]),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("x-forwarded-for", forwarded.parse().unwrap());
            headers.insert("x-real-ip", real.parse().unwrap());
            assert_eq!(collect(&peer, &headers), want, "{forwarded:?} {real:?}");
        }
        let many = vec!["10.0.0.1"; 1000].join(",");
        let headers = HeaderMap::from_iter([("x-forwarded-for".parse().unwrap(), many.parse().unwrap())]);
        assert_eq!(collect(&peer, &headers).len(), limits::AUDIT_SOURCES + 1);
    }
}
