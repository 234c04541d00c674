//! Where a request comes from: a TLS connection, or this process itself.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls_pki_types::CertificateDer;
use time::OffsetDateTime;

use crate::chain::authn::client_cert::{ClientCas, ClientCertError, VerifiedClientCert};
use crate::user::User;

/// The other end of a connection. One per connection, shared by its requests.
pub struct Peer {
    address: Option<SocketAddr>,
    origin: PeerOrigin,
}

enum PeerOrigin {
    /// A TLS client, with the certificates it presented.
    Tls { chain: Vec<CertificateDer<'static>>, verdicts: Mutex<Vec<CertificateVerdict>> },
    /// A part of this process, acting as a user.
    Local(Arc<User>),
}

/// What a connection's certificate was found to be, as long as the CAs are the same and it has
/// not expired: verifying a chain costs far more than a request. One that was refused is remembered as
/// well, for a while: it costs the most, and anybody can present it.
struct CertificateVerdict {
    cas: Arc<ClientCas>,
    outcome: Result<Arc<VerifiedClientCert>, ClientCertError>,
    /// From when and until when it is what would be found again.
    valid_during: Range<OffsetDateTime>,
}

/// How long a certificate stays refused, that may become valid with time.
const REFUSED: Duration = Duration::from_secs(10);

/// Clients' and front proxies' CAs are all there are.
const VERDICTS: usize = 2;

impl Peer {
    /// Creates the peer of a TLS connection with its certificate chain, which may be empty.
    pub fn from_tls(address: SocketAddr, chain: Vec<CertificateDer<'static>>) -> Peer {
        Peer {
            address: Some(address),
            origin: PeerOrigin::Tls { chain, verdicts: Mutex::default() },
        }
    }

    /// A part of this process that acts as `user`.
    pub fn local(user: User) -> Peer {
        Peer { address: None, origin: PeerOrigin::Local(Arc::new(user)) }
    }

    /// The client's address; none inside the process.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// The user a part of this process acts as.
    pub fn local_user(&self) -> Option<Arc<User>> {
        match &self.origin {
            PeerOrigin::Local(user) => Some(user.clone()),
            PeerOrigin::Tls { .. } => None,
        }
    }

    /// What the client's certificate is by the word of `cas`; none without a certificate.
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
    use windlass_pki::{
        CertificateAuthority, KeyPurpose, LeafTemplate, PrivateKey, Serial, Subject, SystemRandom,
        Validity, issue,
    };

    use super::*;

    const NOW: OffsetDateTime = datetime!(2026-06-01 12:00 UTC);

    fn serial() -> Serial {
        Serial::random(&SystemRandom::new()).unwrap()
    }

    fn authority() -> CertificateAuthority {
        let (subject, key) = (Subject::new("ca", &[]).unwrap(), PrivateKey::generate().unwrap());
        let validity = Validity::lasting(NOW, time::Duration::days(9)).unwrap();
        CertificateAuthority::self_signed(&subject, validity, key, serial()).unwrap()
    }

    fn trust(ca: &CertificateAuthority) -> Arc<ClientCas> {
        Arc::new(ClientCas::new(&[ca.certificate().der().clone()]).unwrap())
    }

    fn peer(ca: &CertificateAuthority) -> Peer {
        let key = PrivateKey::generate().unwrap();
        let leaf = LeafTemplate {
            subject: Subject::new("jane", &[]).unwrap(),
            alt_names: Vec::new(),
            purposes: vec![KeyPurpose::ClientAuth],
            validity: Validity::lasting(NOW, time::Duration::days(1)).unwrap(),
            public_key: key.public_key(),
            serial: serial(),
        };
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
        // The same CA under new cover is asked again, another one is another matter.
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
        // A clock that is put back makes it early again.
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
