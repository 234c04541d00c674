//! Detects the address of this host: the one from which it reaches the server.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Unassigned addresses, routed like all external ones.
const ELSEWHERE: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1))];
const DISCARD: u16 = 9;

/// Returns the address of this host towards a server. If the server is on this host, returns the
/// address towards others; a loopback address only if there is no other.
pub async fn local_address_towards((host, port): &(String, u16)) -> Option<IpAddr> {
    let servers = tokio::net::lookup_host((host.as_str(), *port)).await;
    let servers = servers.map(Iterator::collect::<Vec<_>>).unwrap_or_default();
    let near = servers.into_iter().filter_map(source);
    let far = ELSEWHERE.into_iter().filter_map(|ip| source(SocketAddr::new(ip, DISCARD)));
    let mut all = near.chain(far).collect::<Vec<_>>();
    // The sort is stable: the address towards the server stays first.
    all.sort_by_key(IpAddr::is_loopback);
    all.into_iter().next()
}

/// Returns the source address that the system would use. Nothing is sent.
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
