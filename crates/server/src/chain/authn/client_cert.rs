//! Client certificates: which CAs we trust for them, and who a certificate says the caller is.

use std::sync::Arc;

use rustls_pki_types::{CertificateDer, TrustAnchor, UnixTime};
use time::OffsetDateTime;
use webpki::{EndEntityCert, KeyUsage};
use windlass_pki::Certificate;

use crate::user::User;

/// The CAs that may vouch for clients. An empty set vouches for nobody.
#[derive(Default)]
pub struct ClientCas {
    anchors: Vec<TrustAnchor<'static>>,
}

/// Why a presented certificate is no identity. For the log, never for the client.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum Refused {
    #[error("the certificate cannot be read")]
    Unreadable,
    #[error("the certificate is not valid for a client here: {0}")]
    Untrusted(webpki::Error),
    #[error("the certificate names nobody")]
    Nameless,
}

impl ClientCas {
    /// Trusts the given CA certificates.
    pub fn new(cas: &[CertificateDer<'_>]) -> Result<ClientCas, webpki::Error> {
        let anchors = cas.iter().map(|ca| Ok(webpki::anchor_from_trusted_cert(ca)?.to_owned()));
        Ok(ClientCas { anchors: anchors.collect::<Result<_, webpki::Error>>()? })
    }

    /// Who the chain's first certificate says the caller is, and until when it holds.
    pub fn identify(
        &self,
        chain: &[CertificateDer<'_>],
        now: OffsetDateTime,
    ) -> Result<(Arc<User>, OffsetDateTime), Refused> {
        let (leaf, rest) = chain.split_first().ok_or(Refused::Unreadable)?;
        let entity = EndEntityCert::try_from(leaf).map_err(|_| Refused::Unreadable)?;
        let at = UnixTime::since_unix_epoch(std::time::Duration::from_secs(
            now.unix_timestamp().max(0) as u64,
        ));
        entity
            .verify_for_usage(
                webpki::ALL_VERIFICATION_ALGS,
                &self.anchors,
                rest,
                at,
                KeyUsage::client_auth(),
                None,
                None,
            )
            .map_err(Refused::Untrusted)?;
        let facts = Certificate::from_der(leaf).map_err(|_| Refused::Unreadable)?;
        let name = facts.common_name().filter(|n| !n.is_empty()).ok_or(Refused::Nameless)?;
        let mut user = User::authenticated(name, "", facts.organizations().to_vec());
        let digest: String = facts.fingerprint().iter().map(|b| format!("{b:02x}")).collect();
        user.extra.insert(
            "authentication.kubernetes.io/credential-id".into(),
            vec![format!("X509SHA256={digest}")],
        );
        Ok((Arc::new(user), facts.validity().not_after()))
    }
}
