//! Where a request comes from: a TLS connection, or this process itself.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use rustls_pki_types::CertificateDer;
use time::OffsetDateTime;

use crate::chain::authn::client_cert::{ClientCas, Refused};
use crate::user::User;

/// The other end of a connection. One per connection, shared by its requests.
pub struct Peer {
    address: Option<SocketAddr>,
    origin: Origin,
}

enum Origin {
    /// A TLS client, with the certificates it presented.
    Tls { chain: Vec<CertificateDer<'static>>, verdict: Mutex<Option<Verdict>> },
    /// A part of this process, acting as a user.
    Local(Arc<User>),
}

/// What a connection's certificate was found to be, as long as the CAs are the same and it has
/// not expired: verifying a chain costs far more than a request.
struct Verdict {
    cas: Arc<ClientCas>,
    user: Arc<User>,
    until: OffsetDateTime,
}

impl Peer {
    /// A TLS client.
    pub fn tls(address: SocketAddr, chain: Vec<CertificateDer<'static>>) -> Peer {
        Peer { address: Some(address), origin: Origin::Tls { chain, verdict: Mutex::default() } }
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
        let Origin::Tls { chain, verdict } = &self.origin else { return Ok(None) };
        if chain.is_empty() {
            return Ok(None);
        }
        let mut verdict = verdict.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(known) = verdict.as_ref()
            && Arc::ptr_eq(&known.cas, cas)
            && now < known.until
        {
            return Ok(Some(known.user.clone()));
        }
        let (user, until) = cas.identify(chain, now)?;
        *verdict = Some(Verdict { cas: cas.clone(), user: user.clone(), until });
        Ok(Some(user))
    }
}
