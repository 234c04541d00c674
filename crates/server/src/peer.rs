//! Where a request comes from: a TLS connection, or this process itself.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use rustls_pki_types::CertificateDer;
use time::OffsetDateTime;

use crate::chain::authn::client_cert::{ClientCas, Refused, Verified};
use crate::user::User;

/// The other end of a connection. One per connection, shared by its requests.
pub struct Peer {
    address: Option<SocketAddr>,
    origin: Origin,
}

enum Origin {
    /// A TLS client, with the certificates it presented.
    Tls { chain: Vec<CertificateDer<'static>>, verdicts: Mutex<Vec<Verdict>> },
    /// A part of this process, acting as a user.
    Local(Arc<User>),
}

/// What a connection's certificate was found to be, as long as the CAs are the same and it has
/// not expired: verifying a chain costs far more than a request.
struct Verdict {
    cas: Arc<ClientCas>,
    verified: Arc<Verified>,
}

/// Clients' and front proxies' CAs are all there are.
const VERDICTS: usize = 2;

impl Peer {
    /// A TLS client.
    pub fn tls(address: SocketAddr, chain: Vec<CertificateDer<'static>>) -> Peer {
        Peer { address: Some(address), origin: Origin::Tls { chain, verdicts: Mutex::default() } }
    }

    /// A part of this process that acts as `user`.
    pub fn local(user: User) -> Peer {
        Peer { address: None, origin: Origin::Local(Arc::new(user)) }
    }

    /// The client's address; none inside the process.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// The user a part of this process acts as.
    pub fn local_user(&self) -> Option<Arc<User>> {
        match &self.origin {
            Origin::Local(user) => Some(user.clone()),
            Origin::Tls { .. } => None,
        }
    }

    /// The user the client's certificate stands for; none without a certificate.
    pub fn certificate_user(
        &self,
        cas: &Arc<ClientCas>,
        now: OffsetDateTime,
    ) -> Result<Option<Arc<User>>, Refused> {
        match self.certificate(cas, now)? {
            Some(verified) => verified.user.clone().map(Some),
            None => Ok(None),
        }
    }

    /// What the client's certificate is by the word of `cas`; none without a certificate.
    pub fn certificate(
        &self,
        cas: &Arc<ClientCas>,
        now: OffsetDateTime,
    ) -> Result<Option<Arc<Verified>>, Refused> {
        let Origin::Tls { chain, verdicts } = &self.origin else { return Ok(None) };
        if chain.is_empty() {
            return Ok(None);
        }
        let mut verdicts = verdicts.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let known = verdicts.iter().find(|verdict| Arc::ptr_eq(&verdict.cas, cas));
        if let Some(known) = known.filter(|known| now < known.verified.until) {
            return Ok(Some(known.verified.clone()));
        }
        let verified = Arc::new(cas.verify(chain, now)?);
        verdicts.retain(|verdict| !Arc::ptr_eq(&verdict.cas, cas));
        if verdicts.len() >= VERDICTS {
            verdicts.remove(0);
        }
        verdicts.push(Verdict { cas: cas.clone(), verified: verified.clone() });
        Ok(Some(verified))
    }
}
