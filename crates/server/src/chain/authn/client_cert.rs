//! Client certificates: trust anchors and mapping to users.

use std::sync::Arc;

use rustls_pki_types::{CertificateDer, SubjectPublicKeyInfoDer, TrustAnchor, UnixTime};
use time::OffsetDateTime;
use webpki::{EndEntityCert, ExtendedKeyUsageValidator, KeyPurposeIdIter, KeyUsage, RawPublicKeyEntity};
use windlass_pki::{Certificate, KeyPurpose};

use super::revocation::{ChainRevocation, revocation_name};
use crate::limits;
use crate::user::User;

/// Trust anchors of client certificates. An empty set accepts no certificate.
#[derive(Default)]
pub struct ClientCas {
    anchors: Vec<ClientTrustAnchor>,
}

struct ClientTrustAnchor {
    anchor: TrustAnchor<'static>,
    certificate: Certificate,
}

/// Why a client certificate was rejected. For the log, never for the client.
#[derive(Clone, Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum ClientCertError {
    #[error("certificate cannot be parsed")]
    Unreadable,
    #[error("certificate chain too long")]
    LongChain,
    #[error("certificate not valid for client authentication: {0}")]
    Untrusted(webpki::Error),
    #[error("certificate older than version 3 has expired or is not valid yet")]
    OldExpired,
    #[error("certificate older than version 3 not issued by a certificate of the client CA file")]
    OldIssuer,
    #[error("certificate has no common name")]
    Nameless,
    #[error("certificate does not have exactly one user identifier")]
    UserId,
    #[error("certificate or one of its intermediates is revoked")]
    Revoked,
    #[error("certificate is not that of a front proxy")]
    NoProxy,
    #[error("front proxy headers are not UTF-8")]
    NotText,
}

/// Why a CA file was rejected.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum ClientCaError {
    #[error("CA certificate cannot be parsed: {0}")]
    Certificate(#[from] windlass_pki::Error),
    #[error("CA certificate cannot be used as a trust anchor: {0}")]
    Anchor(#[from] webpki::Error),
}

/// A client certificate that chains to a trust anchor.
pub struct VerifiedClientCert {
    /// Common name of the subject; may be empty.
    pub common_name: String,
    /// User that the certificate authenticates, if it names one.
    pub user: Result<Arc<User>, ClientCertError>,
    /// Earliest expiry of all certificates in the chain.
    pub until: OffsetDateTime,
    /// Which revocations would revoke the chain.
    pub(super) revocation: ChainRevocation,
}

impl ClientCas {
    /// Trusts the given CA certificates as anchors.
    pub fn new(cas: &[CertificateDer<'_>]) -> Result<ClientCas, ClientCaError> {
        let anchors = cas.iter().map(|ca| {
            let certificate = Certificate::from_der(ca)?;
            Ok(ClientTrustAnchor { anchor: webpki::anchor_from_trusted_cert(ca)?.to_owned(), certificate })
        });
        Ok(ClientCas { anchors: anchors.collect::<Result<_, ClientCaError>>()? })
    }

    /// Trusts the CA certificates of a PEM file.
    pub fn from_pem(text: &[u8]) -> Result<ClientCas, ClientCaError> {
        let cas = windlass_pki::pem::certificates(text).map_err(windlass_pki::Error::from)?;
        ClientCas::new(&cas)
    }

    /// Returns true if no CA is trusted.
    pub fn is_empty(&self) -> bool {
        self.anchors.is_empty()
    }

    /// Returns true if the key of a CA has this identity.
    pub(crate) fn has_authority(&self, id: &str) -> bool {
        self.anchors.iter().any(|ca| ca.certificate.authority_id() == id)
    }

    /// Returns true if both sets trust a common CA. Every client would then be a front proxy,
    /// unless allowed names are configured: kube-apiserver refuses to start in that case, and other
    /// servers should too.
    pub fn overlaps(&self, other: &ClientCas) -> bool {
        let theirs = |ca: &ClientTrustAnchor| other.anchors.iter().any(|other| other.anchor == ca.anchor);
        self.anchors.iter().any(theirs)
    }

    /// Verifies the chain's first certificate, using the others as intermediates.
    pub fn verify(
        &self,
        chain: &[CertificateDer<'_>],
        now: OffsetDateTime,
    ) -> Result<VerifiedClientCert, ClientCertError> {
        if chain.len() > limits::CHAIN {
            return Err(ClientCertError::LongChain);
        }
        let (leaf, rest) = chain.split_first().ok_or(ClientCertError::Unreadable)?;
        let entity = match EndEntityCert::try_from(leaf) {
            Ok(entity) => entity,
            Err(webpki::Error::UnsupportedCertVersion) => {
                return self.verify_legacy_version(leaf, now);
            }
            Err(_) => return Err(ClientCertError::Unreadable),
        };
        let at =
            UnixTime::since_unix_epoch(std::time::Duration::from_secs(now.unix_timestamp().max(0) as u64));
        // webpki treats an anchor as a name and a key, so CA expiry is checked here.
        let current = self.anchors.iter().filter(|ca| ca.is_valid(now));
        let anchors: Vec<TrustAnchor<'_>> = current.clone().map(|ca| ca.anchor.clone()).collect();
        let path = entity
            .verify_for_usage(webpki::ALL_VERIFICATION_ALGS, &anchors, rest, at, ClientAuthUsage, None, None)
            .map_err(ClientCertError::Untrusted)?;
        let facts = Certificate::from_der(leaf).map_err(|_| ClientCertError::Unreadable)?;
        let mut until = facts.validity().not_after();
        // The path leads from the issuer of the leaf to the anchor. Identities of issuers come from
        // their verified certificates.
        let (mut serial, mut revocations) = (facts.serial_hex(), Vec::new());
        for between in path.intermediate_certificates() {
            let between = Certificate::from_der(&between.der()).map_err(|_| ClientCertError::Unreadable)?;
            until = until.min(between.validity().not_after());
            revocations.push(revocation_name(&between, &serial));
            serial = between.serial_hex();
        }
        for ca in current.filter(|ca| ca.anchor == *path.anchor()) {
            until = until.min(ca.certificate.validity().not_after());
            revocations.push(revocation_name(&ca.certificate, &serial));
        }
        let common_name = facts.common_name().unwrap_or_default().to_owned();
        let revocation = ChainRevocation::new(revocations);
        Ok(VerifiedClientCert { common_name, user: user(&facts), until, revocation })
    }

    /// Verifies a version 1 or 2 certificate, which webpki rejects. Go accepts them, and `openssl
    /// x509 -req` issues version 1 unless extensions are requested. Such a certificate has no
    /// extensions and may be used for any purpose. It must be issued directly by a trust anchor: Go
    /// accepts intermediates as well, but only webpki verifies chains here.
    fn verify_legacy_version(
        &self,
        leaf: &CertificateDer<'_>,
        now: OffsetDateTime,
    ) -> Result<VerifiedClientCert, ClientCertError> {
        let facts = Certificate::from_der(leaf).map_err(|_| ClientCertError::Unreadable)?;
        if facts.is_version_3() {
            return Err(ClientCertError::Unreadable);
        }
        if !facts.validity().contains(now) {
            return Err(ClientCertError::OldExpired);
        }
        let mut current = self.anchors.iter().filter(|ca| ca.is_valid(now));
        let issuer = current.find(|ca| ca.has_issued(&facts)).ok_or(ClientCertError::OldIssuer)?;
        let until = facts.validity().not_after().min(issuer.certificate.validity().not_after());
        let common_name = facts.common_name().unwrap_or_default().to_owned();
        let name = revocation_name(&issuer.certificate, &facts.serial_hex());
        let revocation = ChainRevocation::new(vec![name]);
        Ok(VerifiedClientCert { common_name, user: user(&facts), until, revocation })
    }
}

impl ClientTrustAnchor {
    fn is_valid(&self, now: OffsetDateTime) -> bool {
        self.certificate.validity().contains(now)
    }

    /// Returns true if this CA issued a certificate without extensions, and was allowed to.
    fn has_issued(&self, leaf: &Certificate) -> bool {
        let ca = &self.certificate;
        // A version 1 CA cannot declare itself a CA; its presence in the file does.
        let may_sign = !ca.is_version_3() || ca.check_authority().is_ok();
        may_sign
            && ca.allows(&KeyPurpose::ClientAuth)
            && self.anchor.name_constraints.is_none()
            // Go does not accept a CA as its own client either.
            && leaf.public_key() != ca.public_key()
            && leaf.has_issuer_name_of(ca)
            && is_signed_by(leaf, ca).unwrap_or(false)
    }
}

/// Returns true if the key of `ca` signed `leaf`, with the algorithms and key sizes that webpki
/// accepts in chains.
fn is_signed_by(leaf: &Certificate, ca: &Certificate) -> Option<bool> {
    let signed = leaf.signature().ok()?;
    let key = SubjectPublicKeyInfoDer::from(ca.public_key().as_der());
    let key = RawPublicKeyEntity::try_from(&key).ok()?;
    let mut fitting = webpki::ALL_VERIFICATION_ALGS
        .iter()
        .filter(|algorithm| algorithm.signature_alg_id().as_ref() == signed.algorithm);
    // Several algorithms differ only in the key type, and each rejects keys of the others.
    Some(
        fitting.any(|algorithm| key.verify_signature(*algorithm, &signed.message, &signed.signature).is_ok()),
    )
}

/// Maps a certificate to a user as Kubernetes does.
fn user(certificate: &Certificate) -> Result<Arc<User>, ClientCertError> {
    let name = certificate.common_name().filter(|name| !name.is_empty());
    let name = name.ok_or(ClientCertError::Nameless)?;
    let uid = match certificate.user_ids() {
        [] => "",
        [uid] if !uid.is_empty() => uid,
        _ => return Err(ClientCertError::UserId),
    };
    let mut user = User::authenticated(name, uid, certificate.organizations().to_vec());
    let digest: String = certificate.fingerprint().iter().map(|b| format!("{b:02x}")).collect();
    user.extra
        .insert("authentication.kubernetes.io/credential-id".into(), vec![format!("X509SHA256={digest}")]);
    Ok(Arc::new(user))
}

/// Extended key usages that allow a TLS client: none, clientAuth or any.
struct ClientAuthUsage;

const ANY: &[usize] = &[2, 5, 29, 37, 0];

impl ExtendedKeyUsageValidator for ClientAuthUsage {
    fn validate(&self, purposes: KeyPurposeIdIter<'_, '_>) -> Result<(), webpki::Error> {
        let mut said = false;
        let mut allowed = false;
        for purpose in purposes {
            said = true;
            let purpose = purpose?.to_decoded_oid();
            allowed |= purpose == KeyUsage::CLIENT_AUTH_REPR || purpose == ANY;
        }
        if allowed || !said {
            return Ok(());
        }
        Err(webpki::Error::RequiredEkuNotFoundContext(webpki::RequiredEkuNotFoundContext {
            required: KeyUsage::client_auth(),
            present: Vec::new(),
        }))
    }
}

#[cfg(test)]
pub(crate) mod tests;
