//! Stored record of the identity of a cluster.

use anyhow::{Context, Result, bail};
use aws_lc_rs::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use super::IdentityPart;

/// Version of the stored format.
const VERSION: u32 = 1;

/// Fingerprints of the CAs and keys of a cluster. Parts without an entry are set by flags on every
/// server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterIdentityRecord {
    version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ca: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client_ca: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    service_accounts: Option<String>,
    /// Older releases preserve this field: they write the record only to add what is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kubelet_serving_ca: Option<String>,
    /// Host name of the server that wrote the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Data directory of the server that wrote the record.
    pub directory: String,
}

impl ClusterIdentityRecord {
    /// Creates a record without any fingerprints.
    pub fn new(host: Option<String>, directory: String) -> Self {
        Self {
            version: VERSION,
            ca: None,
            client_ca: None,
            service_accounts: None,
            kubelet_serving_ca: None,
            host,
            directory,
        }
    }

    /// Parses the stored JSON; fails if its version is not supported.
    pub fn read(value: &[u8]) -> Result<Self> {
        let record: Self = serde_json::from_slice(value)
            .context("cannot read the record of certificate authorities in the store")?;
        if record.version != VERSION {
            bail!(
                "the record of certificate authorities in the store has version {}, this program supports \
                 version {VERSION}; use the release that wrote it, or a newer one",
                record.version
            );
        }
        Ok(record)
    }

    /// Serializes the record to the JSON that is stored.
    pub fn to_json(&self) -> Result<Vec<u8>> {
        Ok(serde_json::to_vec(self)?)
    }

    pub(super) fn part(&self, part: IdentityPart) -> Option<&String> {
        match part {
            IdentityPart::Serving => self.ca.as_ref(),
            IdentityPart::Clients => self.client_ca.as_ref(),
            IdentityPart::Accounts => self.service_accounts.as_ref(),
            IdentityPart::KubeletServing => self.kubelet_serving_ca.as_ref(),
        }
    }

    pub(super) fn set(&mut self, part: IdentityPart, fingerprint: Option<String>) {
        match part {
            IdentityPart::Serving => self.ca = fingerprint,
            IdentityPart::Clients => self.client_ca = fingerprint,
            IdentityPart::Accounts => self.service_accounts = fingerprint,
            IdentityPart::KubeletServing => self.kubelet_serving_ca = fingerprint,
        }
    }
}

/// Returns the hash of a public key.
pub fn fingerprint(der: &[u8]) -> String {
    let hash = digest(&SHA256, der);
    hash.as_ref().iter().fold("sha256:".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}
