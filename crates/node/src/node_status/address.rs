//! By which address this machine is reached: the one with which it reaches the server.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Somewhere else: an address that nobody has, reached like all others.
const ELSEWHERE: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
];
const DISCARD: u16 = 9;

/// The address of this machine towards a server. If that is this machine itself, the one towards
/// others; its own only if it has no other.
pub async fn local_address_towards((host, port): &(String, u16)) -> Option<IpAddr> {
    let servers = tokio::net::lookup_host((host.as_str(), *port)).await;
    let servers = servers.map(Iterator::collect::<Vec<_>>).unwrap_or_default();
    let near = servers.into_iter().filter_map(source);
    let far = ELSEWHERE.into_iter().filter_map(|ip| source(SocketAddr::new(ip, DISCARD)));
    let mut all = near.chain(far).collect::<Vec<_>>();
    // Stable: what comes first is what is meant.
    all.sort_by_key(IpAddr::is_loopback);
    all.into_iter().next()
}

/// With which address the system would send something there. Nothing is sent.
fn source(server: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(server).ok()?;
    let address = socket.local_addr().ok()?.ip().to_canonical();
    (!address.is_unspecified()).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn there_is_always_an_address() {
        let found = local_address_towards(&("127.0.0.1".into(), 1)).await.unwrap();
        assert!(!found.is_unspecified());
        let others = ELSEWHERE.into_iter().filter_map(|ip| source(SocketAddr::new(ip, DISCARD)));
        assert_eq!(found.is_loopback(), others.count() == 0, "{found}");
    }
}
