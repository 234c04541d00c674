//! Reasons of revocations.

/// Reason code of a revocation (RFC 5280 §5.3.1). `removeFromCRL` is missing, because only delta CRLs
/// contain it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum RevocationReason {
    /// No reason is given; the entry then has no reason code.
    #[default]
    Unspecified,
    /// Somebody else has, or may have, the private key.
    KeyCompromise,
    /// The private key of the CA that was certified is compromised.
    CaCompromise,
    /// The subject's name or organization changed.
    AffiliationChanged,
    /// Another certificate replaced this one.
    Superseded,
    /// The certificate is no longer needed.
    CessationOfOperation,
    /// Suspended; the only reason that can be withdrawn.
    CertificateHold,
    /// The subject lost a privilege that the certificate states.
    PrivilegeWithdrawn,
    /// The attribute authority's private key is compromised.
    AaCompromise,
}

impl RevocationReason {
    /// All reasons, in the order of their codes.
    pub const ALL: &'static [Self] = &[
        Self::Unspecified,
        Self::KeyCompromise,
        Self::CaCompromise,
        Self::AffiliationChanged,
        Self::Superseded,
        Self::CessationOfOperation,
        Self::CertificateHold,
        Self::PrivilegeWithdrawn,
        Self::AaCompromise,
    ];

    /// Returns the name in RFC 5280, for example `keyCompromise`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unspecified => "unspecified",
            Self::KeyCompromise => "keyCompromise",
            Self::CaCompromise => "cACompromise",
            Self::AffiliationChanged => "affiliationChanged",
            Self::Superseded => "superseded",
            Self::CessationOfOperation => "cessationOfOperation",
            Self::CertificateHold => "certificateHold",
            Self::PrivilegeWithdrawn => "privilegeWithdrawn",
            Self::AaCompromise => "aACompromise",
        }
    }

    /// Parses a name of RFC 5280; upper and lower case differ.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|reason| reason.name() == name)
    }

    /// Returns the value of `CRLReason`.
    pub(super) const fn code(self) -> u8 {
        match self {
            Self::Unspecified => 0,
            Self::KeyCompromise => 1,
            Self::CaCompromise => 2,
            Self::AffiliationChanged => 3,
            Self::Superseded => 4,
            Self::CessationOfOperation => 5,
            Self::CertificateHold => 6,
            Self::PrivilegeWithdrawn => 9,
            Self::AaCompromise => 10,
        }
    }

    pub(super) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.iter().copied().find(|reason| reason.code() == code)
    }
}
