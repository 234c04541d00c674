//! Extended key usages of certificates.

use der::asn1::ObjectIdentifier;

/// One purpose of an extended key usage extension (RFC 5280 §4.2.1.12).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyPurpose {
    /// TLS server authentication (`id-kp-serverAuth`, `1.3.6.1.5.5.7.3.1`).
    ServerAuth,
    /// TLS client authentication (`id-kp-clientAuth`, `1.3.6.1.5.5.7.3.2`).
    ClientAuth,
    /// Any extended key usage (`anyExtendedKeyUsage`).
    Any,
    /// Another purpose, as an OID in dotted decimal.
    Other(String),
}

const SERVER_AUTH: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.1");
const CLIENT_AUTH: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.2");
const ANY: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.37.0");

impl KeyPurpose {
    pub(crate) fn from_oid(oid: &ObjectIdentifier) -> Self {
        match *oid {
            SERVER_AUTH => Self::ServerAuth,
            CLIENT_AUTH => Self::ClientAuth,
            ANY => Self::Any,
            other => Self::Other(other.to_string()),
        }
    }

    pub(crate) fn oid(&self) -> Result<ObjectIdentifier, crate::Error> {
        match self {
            Self::ServerAuth => Ok(SERVER_AUTH),
            Self::ClientAuth => Ok(CLIENT_AUTH),
            Self::Any => Ok(ANY),
            Self::Other(dotted) => ObjectIdentifier::new(dotted).map_err(|_| {
                let reason = "not an object identifier";
                crate::Error::InvalidName { what: "extended key usage", reason }
            }),
        }
    }
}
