//! What is kept on the disk of one certificate, so that the next life of the process goes on with it.
//!
//! It is one file that is replaced as a whole: a line that says what follows, and then keys and
//! certificates as PEM. A request that is begun is in it before the server hears of it, so that whoever
//! is killed between the two finds its own request again.

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use windlass_pki::pem::{self, PemBlock};
use windlass_pki::{ForeignCertificate, IssuedChain, PrivateKey, labelled_certificates};
use zeroize::Zeroizing;

use super::{CertificateSpec, CertificateSubject};
use crate::clock;
use crate::key_pair::matches_key;
use crate::renewal::RenewalTimes;
use crate::volume::id::SourceId;
use windlass_runtime::durable::{DiskError, FileSystem, PRIVATE_MODE};

/// More than keys and chains can be.
const LIMIT: usize = 512 * 1024;
const VERSION: u32 = 1;

/// The persistent state of one certificate, stored in a `StateFile`.
#[derive(Clone, Default)]
pub struct CertificateState {
    /// The key and chain to serve; `None` before the first issuance.
    pub current: Option<Arc<IssuedCertificate>>,
    /// The request in progress; stored before it is sent to the server.
    pub begun: Option<Arc<PendingRequest>>,
}

/// A key and the certificates for it.
pub struct IssuedCertificate {
    /// The private key as PKCS#8 PEM; wiped when dropped.
    pub key: Zeroizing<String>,
    /// The certificate and those that vouch for it, as PEM.
    pub chain: String,
    /// When it is to be renewed.
    pub times: RenewalTimes,
}

/// A request that is on the server, or will be.
pub struct PendingRequest {
    /// Its name, which we chose.
    pub name: String,
    /// The private key that the request is for.
    pub key: PrivateKey,
}

/// What was found on the disk.
#[derive(Default)]
pub struct LoadedState {
    /// What can be gone on with.
    pub kept: CertificateState,
    /// Whether what is served is not quite what is wanted.
    pub outdated: bool,
    /// What is wrong with it.
    pub warning: Option<String>,
}

/// What was issued cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IssuedCertificateError {
    /// The text is not a valid certificate chain.
    #[error(transparent)]
    Chain(#[from] windlass_pki::ChainError),
    /// It is for another key.
    #[error("the certificate belongs to another key")]
    Mismatch,
    /// The certificate expired at this time, by the clock of this host.
    #[error("the certificate expired at {}, according to the local clock", clock::text(*.0))]
    Expired(OffsetDateTime),
    /// The key cannot be written down.
    #[error(transparent)]
    Key(#[from] windlass_pki::Error),
}

/// Where one certificate is kept, and what it is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateFile {
    /// Path of the state file, in the private state directory.
    pub path: PathBuf,
    /// What tells what is wanted from anything else.
    pub definition: String,
    signer: String,
    is_host: bool,
}

#[derive(Serialize, Deserialize)]
struct StateHeader {
    version: u32,
    definition: String,
    signer: String,
    /// Present if there is a certificate.
    current: Option<IssuedHeader>,
    /// The name of the request, if there is one.
    begun: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct IssuedHeader {
    certificates: usize,
    #[serde(with = "time::serde::rfc3339")]
    begin_refresh_at: OffsetDateTime,
}

impl IssuedCertificate {
    /// Judges what was issued. `begin` is when the signer wants it renewed.
    pub fn issued(
        key: &PrivateKey,
        chain: &str,
        subject: &CertificateSubject,
        begin: Option<OffsetDateTime>,
        now: OffsetDateTime,
    ) -> Result<Self, IssuedCertificateError> {
        let issued = IssuedChain::parse(chain)?;
        issued.check_rest()?;
        let leaf = issued.leaf();
        if !matches_key(leaf, key.public_key()) {
            return Err(IssuedCertificateError::Mismatch);
        }
        if leaf.not_after() < now {
            return Err(IssuedCertificateError::Expired(leaf.not_after()));
        }
        let times = times(leaf, begin, matches!(subject, CertificateSubject::Host { .. }));
        let all = labelled_certificates(chain.as_bytes()).collect::<Vec<_>>();
        let chain = pem::encode_certificates(all.iter().map(Vec::as_slice));
        Ok(Self { key: key.to_pem()?, chain, times })
    }
}

impl StateFile {
    /// Returns the state file of a source, in the directory that `wanted` names.
    pub fn for_source(id: &SourceId, wanted: &CertificateSpec) -> Self {
        let file = format!("{}-{}.pem", file_name(&id.volume.name), id.index);
        Self {
            path: wanted.state.join(file),
            definition: definition(wanted),
            signer: wanted.source.signer.clone(),
            is_host: matches!(wanted.subject, CertificateSubject::Host { .. }),
        }
    }

    /// What there is. What cannot be read is as good as nothing.
    pub fn load(&self, files: &FileSystem) -> LoadedState {
        let found = match files.read(&self.path, LIMIT) {
            Ok(found) => found,
            Err(error) => {
                return LoadedState { warning: Some(error.to_string()), ..LoadedState::default() };
            }
        };
        let Some(text) = found else { return LoadedState::default() };
        match self.read(&text) {
            Ok((head, kept)) => self.discard_mismatched(&head, kept),
            Err(why) => {
                let warning = format!("{} is damaged: {why}", self.path.display());
                LoadedState { warning: Some(warning), ..LoadedState::default() }
            }
        }
    }

    /// Puts this in the place of what there is.
    pub fn save(&self, files: &FileSystem, kept: &CertificateState) -> Result<(), DiskError> {
        if let Some(directory) = self.path.parent() {
            files.create_directory(directory)?;
        }
        files.replace(&self.path, self.text(kept).as_bytes(), PRIVATE_MODE)
    }

    /// Removes the state file with its keys; succeeds if there is none.
    pub fn remove(&self, files: &FileSystem) -> Result<(), DiskError> {
        files.remove(&self.path)
    }

    /// A certificate of another signer is not served, and what was asked for is not what is wanted.
    fn discard_mismatched(&self, head: &StateHeader, kept: CertificateState) -> LoadedState {
        if head.definition == self.definition {
            return LoadedState { kept, ..LoadedState::default() };
        }
        let current = kept.current.filter(|_| head.signer == self.signer);
        LoadedState {
            outdated: current.is_some(),
            kept: CertificateState { current, begun: None },
            warning: None,
        }
    }

    fn text(&self, kept: &CertificateState) -> Zeroizing<String> {
        let current = kept.current.as_ref().map(|current| IssuedHeader {
            certificates: labelled_certificates(current.chain.as_bytes()).count(),
            begin_refresh_at: current.times.begin_refresh_at,
        });
        let head = StateHeader {
            version: VERSION,
            definition: self.definition.clone(),
            signer: self.signer.clone(),
            current,
            begun: kept.begun.as_ref().map(|begun| begun.name.clone()),
        };
        let head = serde_json::to_string(&head).unwrap_or_default();
        let key = kept.begun.as_ref().and_then(|begun| begun.key.to_pem().ok());
        let mut parts = vec![head.as_str(), "\n"];
        if let Some(current) = &kept.current {
            parts.extend([current.key.as_str(), &current.chain]);
        }
        parts.extend(key.as_ref().map(|key| key.as_str()));
        // As much as it takes: growing would leave copies of keys behind.
        let length = parts.iter().map(|part| part.len()).sum();
        let mut text = Zeroizing::new(String::with_capacity(length));
        parts.iter().for_each(|part| text.push_str(part));
        text
    }

    fn read(&self, text: &[u8]) -> Result<(StateHeader, CertificateState), String> {
        let end = text.iter().position(|byte| *byte == b'\n').ok_or("its first line has no end")?;
        let (head, rest) = text.split_at(end);
        let head: StateHeader = serde_json::from_slice(head).map_err(|error| error.to_string())?;
        if head.version != VERSION {
            return Err(format!("it has the version {}", head.version));
        }
        let mut blocks = pem::blocks(rest).map_err(|error| error.to_string())?.into_iter();
        let current = match &head.current {
            Some(described) => Some(Arc::new(self.current(described, &mut blocks)?)),
            None => None,
        };
        let begun = match &head.begun {
            Some(name) => Some(Arc::new(PendingRequest {
                name: name.clone(),
                key: parse_key(blocks.next().as_ref())?,
            })),
            None => None,
        };
        match blocks.next() {
            None => Ok((head, CertificateState { current, begun })),
            Some(_) => Err("there is more in it than there should be".into()),
        }
    }

    fn current(
        &self,
        head: &IssuedHeader,
        blocks: &mut impl Iterator<Item = PemBlock>,
    ) -> Result<IssuedCertificate, String> {
        let key = parse_key(blocks.next().as_ref())?;
        let chain = blocks.take(head.certificates).collect::<Vec<_>>();
        if chain.len() < head.certificates || chain.iter().any(|b| b.label != pem::CERTIFICATE) {
            return Err("certificates are missing".into());
        }
        let mut leaf = None;
        for block in chain.iter().rev() {
            let read = ForeignCertificate::from_der(&block.contents);
            leaf = Some(read.map_err(|error| error.to_string())?);
        }
        let leaf = leaf.ok_or("there is no certificate")?;
        if !matches_key(&leaf, key.public_key()) {
            return Err("the certificate belongs to another key".into());
        }
        Ok(IssuedCertificate {
            key: key.to_pem().map_err(|error| error.to_string())?,
            chain: pem::encode_certificates(chain.iter().map(|block| block.contents.as_slice())),
            times: times(&leaf, Some(head.begin_refresh_at), self.is_host),
        })
    }
}

fn times(leaf: &ForeignCertificate, begin: Option<OffsetDateTime>, is_host: bool) -> RenewalTimes {
    if is_host { RenewalTimes::for_host(leaf) } else { RenewalTimes::for_pod(leaf, begin) }
}

fn parse_key(block: Option<&PemBlock>) -> Result<PrivateKey, String> {
    let block = block.ok_or("a key is missing")?;
    // The reader of keys judges what it is.
    let text = pem::encode(&block.label, &block.contents);
    PrivateKey::from_pem(text.as_bytes()).map_err(|error| error.to_string())
}

/// Everything that makes another certificate of it.
fn definition(wanted: &CertificateSpec) -> String {
    let source = &wanted.source;
    let subject = match &wanted.subject {
        CertificateSubject::Pod { service_account } => {
            serde_json::json!({ "pod": service_account })
        }
        CertificateSubject::Host { common_name, names } => serde_json::json!({
            "host": common_name,
            "dns": names.dns_names,
            "emails": names.email_addresses,
            "addresses": names.ip_addresses,
            "uris": names.uris,
        }),
    };
    let all = serde_json::json!([
        source.signer,
        source.key_type,
        source.max_expiration_seconds,
        source.user_annotations,
        subject,
    ]);
    hex(digest(&SHA256, all.to_string().as_bytes()).as_ref())
}

/// A volume's name as that of a file. Pods' are fit for it, others need not be.
fn file_name(name: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if !name.is_empty() && name.len() <= 100 && name.chars().all(fits) {
        return name.to_owned();
    }
    // What no name that fits can be.
    format!("{}.", hex(digest(&SHA256, name.as_bytes()).as_ref()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
