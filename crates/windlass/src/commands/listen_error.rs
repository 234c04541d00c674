//! Errors of listening on an address.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use anyhow::{Error, anyhow};

/// The error for an address that a flag names, with the remedy.
pub fn cannot_listen(flag: &str, address: SocketAddr, error: &io::Error) -> Error {
    let cause = match error.kind() {
        ErrorKind::AddrInUse => format!(
            "the address is in use by another process; stop that process or choose another address with {flag}"
        ),
        ErrorKind::AddrNotAvailable => {
            format!("this machine does not have the address; choose another with {flag}")
        }
        ErrorKind::PermissionDenied => format!(
            "permission denied; ports below 1024 need CAP_NET_BIND_SERVICE, choose another with {flag}"
        ),
        _ => error.to_string(),
    };
    anyhow!("cannot listen on {address}: {cause}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_occupied_port_is_named_with_the_remedy() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let error = std::net::TcpListener::bind(address).unwrap_err();
        let text = cannot_listen("--listen", address, &error).to_string();
        let wanted = format!(
            "cannot listen on {address}: the address is in use by another process; stop that process or \
             choose another address with --listen"
        );
        assert_eq!(text, wanted);
    }
}
