//! Machines that are not there: network namespaces on one bridge, which can be cut off from each other.
//!
//! Nothing has a name that could be left behind. A namespace is there for as long as a shell in it
//! waits for its input, which ends with this process, and the links go with the namespaces.

use std::io::{BufRead as _, BufReader};
use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};

/// The address of this process is the first of its network, those of the hosts follow from here.
const FIRST_HOST: u8 = 10;

/// Unassigned hardware address: what is sent there is lost without an error.
const NOWHERE: &str = "02:00:00:00:00:01";

/// Hosts that reach each other and this process, until they are cut off.
pub struct HostNetwork {
    hosts: Vec<NetworkNamespace>,
    subnet: [u8; 3],
    /// Holds the bridge; dropped last.
    hub: NetworkNamespace,
}

impl HostNetwork {
    /// Whether this process may make one: only root may.
    pub fn is_permitted() -> bool {
        let id = Command::new("id").arg("-u").output();
        id.is_ok_and(|id| id.stdout.trim_ascii() == b"0")
    }

    /// A network of so many hosts.
    pub fn new(hosts: u8) -> Result<Self> {
        let hub = NetworkNamespace::new()?;
        // From the block that is set aside for tests of networks, so that it is unassigned.
        let subnet = [198, rand::random_range(18..20), rand::random_range(1..255)];
        let here = format!("wl{:x}", hub.shell.id());
        let pid = hub.shell.id().to_string();
        let network = Self { hosts: Vec::new(), subnet, hub };
        let hub = &network.hub;
        run_ip(&["link", "add", "name", &here, "type", "veth", "peer", "name", "uplink", "netns", &pid])?;
        run_ip(&["addr", "add", &format!("{}/24", network.address_in_subnet(1)), "dev", &here])?;
        run_ip(&["link", "set", &here, "up"])?;
        hub.run_ip(&["link", "add", "name", "switch", "type", "bridge"])?;
        hub.run_ip(&["link", "set", "switch", "up"])?;
        hub.run_ip(&["link", "set", "uplink", "master", "switch", "up"])?;
        let mut made = Vec::new();
        for number in 0..hosts {
            made.push(network.create_host(number)?);
        }
        Ok(Self { hosts: made, ..network })
    }

    /// IPv4 address of a host, counted from zero.
    pub fn address(&self, host: u8) -> Ipv4Addr {
        self.address_in_subnet(FIRST_HOST + host)
    }

    /// What the command line of a process on a host begins with.
    pub fn command_prefix(&self, host: u8) -> Result<Vec<String>> {
        let namespace = self.namespace(host)?;
        Ok(vec!["nsenter".to_owned(), format!("--net=/proc/{}/ns/net", namespace.shell.id())])
    }

    /// Loses everything that two hosts send each other, from now on.
    pub fn disconnect(&self, one: u8, other: u8) -> Result<()> {
        for (here, there) in [(one, other), (other, one)] {
            let there = self.address(there).to_string();
            let to = ["neigh", "replace", &there, "lladdr", NOWHERE, "dev", "eth0"];
            self.namespace(here)?.run_ip(&[&to[..], &["nud", "permanent"]].concat())?;
        }
        Ok(())
    }

    /// Lets two hosts that were cut off from each other talk again.
    pub fn reconnect(&self, one: u8, other: u8) -> Result<()> {
        for (here, there) in [(one, other), (other, one)] {
            let there = self.address(there).to_string();
            self.namespace(here)?.run_ip(&["neigh", "del", &there, "dev", "eth0"])?;
        }
        Ok(())
    }

    fn create_host(&self, number: u8) -> Result<NetworkNamespace> {
        let host = NetworkNamespace::new()?;
        let (pid, port) = (host.shell.id().to_string(), format!("port{number}"));
        let link = ["link", "add", "name", &port, "type", "veth", "peer", "name", "eth0"];
        self.hub.run_ip(&[&link[..], &["netns", &pid]].concat())?;
        self.hub.run_ip(&["link", "set", &port, "master", "switch", "up"])?;
        host.run_ip(&["link", "set", "lo", "up"])?;
        host.run_ip(&["addr", "add", &format!("{}/24", self.address(number)), "dev", "eth0"])?;
        host.run_ip(&["link", "set", "eth0", "up"])?;
        Ok(host)
    }

    fn address_in_subnet(&self, last: u8) -> Ipv4Addr {
        let [a, b, c] = self.subnet;
        Ipv4Addr::new(a, b, c, last)
    }

    fn namespace(&self, host: u8) -> Result<&NetworkNamespace> {
        self.hosts.get(usize::from(host)).with_context(|| format!("there is no host {host}"))
    }
}

/// A network namespace and the shell that keeps it.
struct NetworkNamespace {
    shell: Child,
}

impl NetworkNamespace {
    fn new() -> Result<Self> {
        let mut shell = Command::new("unshare")
            .args(["--net", "sh", "-c", "echo there; read -r end"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("unshare")?;
        let mut line = String::new();
        let said = shell.stdout.take().map(|out| BufReader::new(out).read_line(&mut line));
        let namespace = Self { shell };
        ensure!(matches!(said, Some(Ok(_))) && line == "there\n", "no network namespace was made");
        Ok(namespace)
    }

    fn run_ip(&self, args: &[&str]) -> Result<()> {
        let namespace = format!("--net=/proc/{}/ns/net", self.shell.id());
        run_command(Command::new("nsenter").args([&namespace, "ip"]).args(args))
    }
}

impl Drop for NetworkNamespace {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

fn run_ip(args: &[&str]) -> Result<()> {
    run_command(Command::new("ip").args(args))
}

fn run_command(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}", said.trim());
    Ok(())
}
