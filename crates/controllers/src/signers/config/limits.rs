//! The sections `limits` and `intermediates`.

use std::time::Duration;

use windlass_api::signer_name::SignerName;
use windlass_runtime::config::{ConfigField, ConfigResult};

use super::parse_signer_name;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Limits on the requests to one signer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SignerLimits {
    /// Approved requests that wait for a certificate at the same time; `None` for no limit.
    pub pending_requests: Option<u32>,
    /// Certificates that one requester gets within an hour; `None` for no limit.
    pub certificates_per_requester_per_hour: Option<u32>,
}

/// Which other signers get intermediate CAs from a signer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntermediatePolicy {
    /// Signers whose CA certificates this signer issues; never empty.
    pub signer_names: Vec<SignerName>,
    /// Maximum lifetime of an intermediate; at least one day.
    pub max_duration: Duration,
    /// How many more CAs a chain may have below an intermediate.
    pub max_path_length: u8,
}

impl SignerLimits {
    pub(super) fn parse(section: &ConfigField<'_>) -> ConfigResult<SignerLimits> {
        let fields = section.fields(&["pendingRequests", "certificatesPerRequesterPerHour"])?;
        let limit = |field: &ConfigField<'_>| {
            let number = field.integer_in(1..=i64::from(i32::MAX))?;
            Ok(u32::try_from(number).unwrap_or(u32::MAX))
        };
        let pending_requests = fields.optional("pendingRequests", limit);
        let certificates = fields.optional("certificatesPerRequesterPerHour", limit);
        Ok(SignerLimits {
            pending_requests: pending_requests?,
            certificates_per_requester_per_hour: certificates?,
        })
    }
}

impl IntermediatePolicy {
    pub(super) fn parse(section: &ConfigField<'_>) -> ConfigResult<IntermediatePolicy> {
        let fields = section.fields(&["signerNames", "maxDuration", "maxPathLength"])?;
        let signer_names = fields.required("signerNames", |list| {
            list.parse_nonempty("no intermediate would be issued", parse_signer_name)
        });
        let max_duration = fields.required("maxDuration", |field| field.duration_at_least(DAY));
        let max_path_length = fields.optional("maxPathLength", |field| field.integer_in(0..=16));
        Ok(IntermediatePolicy {
            signer_names: signer_names?,
            max_duration: max_duration?,
            max_path_length: max_path_length?.and_then(|length| u8::try_from(length).ok()).unwrap_or(0),
        })
    }
}
