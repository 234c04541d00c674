//! Record stored next to a certificate, with the parameters of its request that the certificate
//! does not contain.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use windlass_pki::KeyType;

/// Parameters of a request, stored next to the certificate so that `--renew` can repeat it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IssueRecord {
    /// Name of the signer that issued the certificate.
    pub signer: String,
    /// Requested usages by their names in the API.
    pub usages: Vec<String>,
    /// Requested lifetime in seconds; `None` if not requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expiration_seconds: Option<i32>,
    /// The type of the key, in the notation of the flag.
    pub key_type: String,
}

impl IssueRecord {
    /// Parses the contents of `issue.json`; unreadable text is an error.
    pub fn read(text: &[u8]) -> Result<Self> {
        serde_json::from_slice(text).context("not written by windlass issue")
    }

    /// Serializes the record to the JSON of `issue.json`.
    pub fn render(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// The type of the key, if this release knows it.
    pub fn key_type(&self) -> Option<KeyType> {
        KeyType::from_flag_name(&self.key_type)
    }
}
