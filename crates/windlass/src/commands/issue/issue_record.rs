//! What is written down beside a certificate, so that it can be asked for again: what the
//! certificate itself does not say.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use windlass_pki::KeyType;

/// Parameters of a request, stored next to the certificate so that `--renew` can repeat it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IssueRecord {
    /// Name of the signer that issued the certificate.
    pub signer: String,
    /// For which usages, by their names.
    pub usages: Vec<String>,
    /// For how long, if that was said.
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
