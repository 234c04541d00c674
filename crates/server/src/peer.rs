//! The origin of a request: a TLS connection or this process.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls_pki_types::CertificateDer;
use time::OffsetDateTime;

use crate::chain::authn::client_cert::{ClientCas, ClientCertError, VerifiedClientCert};
use crate::user::User;

/// The remote end of a connection, shared by its requests.
pub struct Peer {
    address: Option<SocketAddr>,
    origin: PeerOrigin,
}

enum PeerOrigin {
    /// A TLS client with the certificates it presented.
    Tls { chain: Vec<CertificateDer<'static>>, verdicts: Mutex<Vec<CertificateVerdict>> },
    /// A component of this process that acts as a user.
    Local(Arc<User>),
}

/// Cached result of verifying a connection's certificate, valid while the CAs are unchanged and the
/// chain has not expired: verification costs far more than a request. Rejections are cached for a
/// short time too: they cost the most, and anybody can cause them.
struct CertificateVerdict {
    cas: Arc<ClientCas>,
    outcome: Result<Arc<VerifiedClientCert>, ClientCertError>,
    /// Time range in which verification would give the same result.
    valid_during: Range<OffsetDateTime>,
}

/// How long the rejection of a certificate that may become valid is cached.
const REFUSED: Duration = Duration::from_secs(10);

/// One for client CAs and one for front proxy CAs.
const VERDICTS: usize = 2;

impl Peer {
    /// Creates the peer of a TLS connection with its certificate chain, which may be empty.
    pub fn from_tls(address: SocketAddr, chain: Vec<CertificateDer<'static>>) -> Peer {
        Peer { address: Some(address), origin: PeerOrigin::Tls { chain, verdicts: Mutex::default() } }
    }

    /// Creates the peer of a component of this process that acts as `user`.
    pub fn local(user: User) -> Peer {
        Peer { address: None, origin: PeerOrigin::Local(Arc::new(user)) }
    }

    /// Returns the client's address; `None` inside the process.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Returns the user of a component of this process.
    pub fn local_user(&self) -> Option<Arc<User>> {
        match &self.origin {
            PeerOrigin::Local(user) => Some(user.clone()),
            PeerOrigin::Tls { .. } => None,
        }
    }

    /// Returns true if the client presented a certificate, valid or not.
    pub(crate) fn has_certificate(&self) -> bool {
        matches!(&self.origin, PeerOrigin::Tls { chain, .. } if !chain.is_empty())
    }

    /// Verifies the client's certificate against `cas`; `None` without a certificate.
    pub fn certificate(
        &self,
        cas: &Arc<ClientCas>,
        now: OffsetDateTime,
    ) -> Result<Option<Arc<VerifiedClientCert>>, ClientCertError> {
        let PeerOrigin::Tls { chain, verdicts } = &self.origin else { return Ok(None) };
        if chain.is_empty() {
            return Ok(None);
        }
        let mut verdicts = verdicts.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let known = verdicts.iter().find(|verdict| Arc::ptr_eq(&verdict.cas, cas));
        if let Some(known) = known.filter(|known| known.valid_during.contains(&now)) {
            return known.outcome.clone().map(Some);
        }
        let found = cas.verify(chain, now).map(Arc::new);
        let until = found.as_ref().map_or(now + REFUSED, |verified| verified.until);
        verdicts.retain(|verdict| !Arc::ptr_eq(&verdict.cas, cas));
        if verdicts.len() >= VERDICTS {
            verdicts.remove(0);
        }
        verdicts.push(CertificateVerdict {
            cas: cas.clone(),
            outcome: found.clone(),
            valid_during: now..until,
        });
        found.map(Some)
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;
    use windlass_pki::{CertificateAuthority, KeyPurpose, PrivateKey, Validity, issue};
    use windlass_testkit::{ca_with_validity, leaf_template};

    use super::*;

    const NOW: OffsetDateTime = datetime!(2026-06-01 12:00 UTC);

    fn authority() -> CertificateAuthority {
        ca_with_validity("ca", Validity::lasting(NOW, time::Duration::days(9)).unwrap())
    }

    fn trust(ca: &CertificateAuthority) -> Arc<ClientCas> {
        Arc::new(ClientCas::new(&[ca.certificate().der().clone()]).unwrap())
    }

    fn peer(ca: &CertificateAuthority) -> Peer {
        let key = PrivateKey::generate().unwrap();
        let leaf = leaf_template(
            "jane",
            &[KeyPurpose::ClientAuth],
            Validity::lasting(NOW, time::Duration::days(1)).unwrap(),
            &key,
        );
        let chain = vec![issue(ca, &leaf).unwrap().into()];
        Peer::from_tls("127.0.0.1:1".parse().unwrap(), chain)
    }

    #[test]
    fn a_verdict_is_kept_for_its_cas_and_its_time() {
        let ca = authority();
        let (peer, trusted) = (peer(&ca), trust(&ca));
        let first = peer.certificate(&trusted, NOW).unwrap().unwrap();
        let again = peer.certificate(&trusted, NOW).unwrap().unwrap();
        assert!(Arc::ptr_eq(&first, &again), "it was verified twice");
        // The same CA in a new set is verified again; another CA must reject it.
        let renewed = peer.certificate(&trust(&ca), NOW).unwrap().unwrap();
        assert!(!Arc::ptr_eq(&first, &renewed));
        assert!(peer.certificate(&trust(&authority()), NOW).is_err());
        assert!(peer.certificate(&Arc::default(), NOW).is_err());
        assert!(peer.certificate(&trusted, NOW + time::Duration::days(2)).is_err());
    }

    #[test]
    fn a_refusal_is_kept_for_a_while() {
        let ca = authority();
        let (peer, trusted) = (peer(&ca), trust(&ca));
        let early = NOW - Duration::from_secs(1);
        assert!(peer.certificate(&trusted, early).is_err(), "it is not valid yet");
        assert!(peer.certificate(&trusted, NOW).is_err(), "it was verified again");
        assert!(peer.certificate(&trusted, early + REFUSED).is_ok());
        // If the clock is set back, the certificate is not yet valid again.
        assert!(peer.certificate(&trusted, early).is_err());
        let other = trust(&ca);
        assert!(peer.certificate(&other, early).is_err());
        assert!(peer.certificate(&trust(&ca), NOW).is_ok(), "other CAs have another say");
    }

    #[test]
    fn verdicts_by_clients_and_proxies_cas_stand_side_by_side() {
        let ca = authority();
        let (peer, clients, proxies) = (peer(&ca), trust(&ca), trust(&ca));
        let ask = |cas: &Arc<ClientCas>| peer.certificate(cas, NOW).unwrap().unwrap();
        let (client, proxy) = (ask(&clients), ask(&proxies));
        assert!(Arc::ptr_eq(&client, &ask(&clients)) && Arc::ptr_eq(&proxy, &ask(&proxies)));
        for _ in 0..10 {
            ask(&trust(&ca));
        }
        let PeerOrigin::Tls { verdicts, .. } = &peer.origin else { panic!("not TLS") };
        assert_eq!(verdicts.lock().unwrap().len(), VERDICTS);
    }
}
