//! Where a member listens.

use std::net::{IpAddr, Ipv4Addr, TcpListener};

use anyhow::{Context, Result};

use super::HostNetwork;

/// Ports that the kernel gives to nobody by itself, so that a member that was killed finds its own
/// still free.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// Where a member listens for clients and for its peers.
#[derive(Debug, Clone)]
pub struct MemberAddress {
    /// Client URL, with scheme and port.
    pub client: String,
    /// The URL for the other members.
    pub peer: String,
    /// What the member's command line begins with, such as `ip netns exec NAME`.
    pub through: Vec<String>,
}

impl MemberAddress {
    /// Unused ports on loopback.
    pub fn on_loopback(scheme: &str) -> Result<Self> {
        Self::with_free_ports(IpAddr::V4(Ipv4Addr::LOCALHOST), scheme)
    }

    /// A place on a host of a network, for the only member there.
    pub fn on_host(network: &HostNetwork, host: u8) -> Result<Self> {
        let address = network.address(host);
        Ok(Self {
            client: format!("http://{address}:2379"),
            peer: format!("http://{address}:2380"),
            through: network.command_prefix(host)?,
        })
    }

    /// Unused ports at an address of this machine.
    fn with_free_ports(address: IpAddr, scheme: &str) -> Result<Self> {
        let free = || {
            (0..1_000)
                .map(|_| rand::random_range(PORTS))
                // Held until both are chosen, so that they differ.
                .find_map(|port| TcpListener::bind((address, port)).ok())
                .context("no port is free")
        };
        let (client, peer) = (free()?, free()?);
        Ok(Self {
            client: format!("{scheme}://{}", client.local_addr()?),
            peer: format!("http://{}", peer.local_addr()?),
            through: Vec::new(),
        })
    }

    /// The member's name and address, in the form of etcd's flags.
    pub(crate) fn initial_cluster_entry(&self) -> String {
        format!("{}={}", self.name(), self.peer)
    }

    /// The member's name, made of its address.
    pub(crate) fn name(&self) -> String {
        let rest = self.peer.rsplit('/').next().unwrap_or_default();
        rest.replace([':', '.', '[', ']'], "-")
    }

    pub(crate) fn client_address(&self) -> &str {
        self.client.rsplit('/').next().unwrap_or_default()
    }
}
