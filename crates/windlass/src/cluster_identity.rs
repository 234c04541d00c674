//! Identity of the cluster that a shared store belongs to.
//!
//! Servers on one etcd must have the same CAs and token keys: otherwise one server rejects the
//! certificates and tokens that another issued. The first server records its identity in the store
//! (`record`). The others compare theirs with it before they create anything, and report which
//! files to copy from where.
//!
//! The CA of kubelet serving certificates was added later and is needed for signing only. A server
//! without the recorded one starts, does not create its own, and signs for these signers as soon as
//! it is copied.
//!
//! The record holds hashes of public keys and the location of the first server's files. It contains
//! no secrets.

mod record;
#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use windlass_controllers::ca::CaCheck;
use windlass_pki::{Certificate, PublicKey};
use windlass_store::{Error, KeyChange, Store, WritePrecondition, WriteRequest};

use crate::datadir::DataDirLayout;
use crate::serve::ServiceAccountKeys;
use crate::shell;
use record::{ClusterIdentityRecord, fingerprint};

/// Key of the record in the store. No API kind uses it, so no cache takes it for an object.
pub const KEY: &str = "windlass/plane";

/// Maximum number of attempts after concurrent writes.
const ATTEMPTS: usize = 10;

/// Parts of the identity that all servers must share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IdentityPart {
    Serving,
    Clients,
    Accounts,
    KubeletServing,
}

const PARTS: [IdentityPart; 4] =
    [IdentityPart::Serving, IdentityPart::Clients, IdentityPart::Accounts, IdentityPart::KubeletServing];

impl IdentityPart {
    /// Returns the files of this part in a data directory; the first one is compared.
    fn files(self) -> [&'static str; 2] {
        match self {
            IdentityPart::Serving => ["ca.crt", "ca.key"],
            IdentityPart::Clients => ["client-ca.crt", "client-ca.key"],
            IdentityPart::Accounts => ["sa.pub", "sa.key"],
            IdentityPart::KubeletServing => ["kubelet-serving-ca.crt", "kubelet-serving-ca.key"],
        }
    }

    /// Returns whether a server without this part cannot start.
    fn is_required(self) -> bool {
        self != IdentityPart::KubeletServing
    }
}

/// Authorities and keys of this server, to compare with the recorded ones.
#[derive(Debug)]
pub struct ServerIdentity {
    /// Layout of this server's data directory.
    pub layout: DataDirLayout,
    /// Host name for error messages of other servers; `None` if unknown.
    pub host: Option<String>,
    /// Whether it serves with a certificate of the CA in its data directory.
    pub serving: bool,
    /// Whether it verifies clients with the CA in its data directory.
    pub clients: bool,
    /// Keys of service-account tokens, if not those of the data directory.
    pub accounts: Option<ServiceAccountKeys>,
    /// Whether this identity replaces the recorded one.
    pub replaces: bool,
}

/// Difference between this server and the record in one part.
#[derive(Debug, PartialEq, Eq)]
enum IdentityMismatch {
    Missing(IdentityPart),
    Differs(IdentityPart),
}

impl IdentityMismatch {
    fn part(&self) -> IdentityPart {
        let (IdentityMismatch::Missing(part) | IdentityMismatch::Differs(part)) = self;
        *part
    }
}

impl ServerIdentity {
    /// Fails if the store belongs to a cluster whose CAs this server does not have. Call this
    /// before creating any, so that missing ones are not generated. Returns the recorded
    /// fingerprint of the CA of kubelet serving certificates, if there is one.
    pub async fn check(&self, store: &dyn Store, name: &str) -> Result<Option<String>> {
        match read(store).await? {
            Some((record, _)) if !self.replaces => {
                self.compare(&record, name)?;
                Ok(self.kubelet_serving(&record))
            }
            _ => Ok(None),
        }
    }

    /// Adds to the record what it lacks. If two servers start at the same time with different CAs,
    /// the second fails. Returns the recorded fingerprint of the CA of kubelet serving
    /// certificates.
    pub async fn ensure_recorded(&self, store: &dyn Store, name: &str) -> Result<Option<String>> {
        for _ in 0..ATTEMPTS {
            let found = read(store).await?;
            let (known, expect) = match &found {
                Some((record, revision)) => (Some(record), WritePrecondition::Revision(*revision)),
                None => (None, WritePrecondition::Absent),
            };
            if let Some(record) = known
                && !self.replaces
            {
                self.compare(record, name)?;
            }
            let record = self.complete(known)?;
            if known == Some(&record) {
                self.warn_of_kubelet_serving(&record);
                return Ok(self.kubelet_serving(&record));
            }
            let write =
                WriteRequest { key: KEY.into(), expect, change: KeyChange::Put(record.to_json()?.into()) };
            match store.commit(write).await {
                Ok(_) => {
                    tracing::info!("recorded the certificate authorities of this server in {name}");
                    self.warn_of_kubelet_serving(&record);
                    return Ok(self.kubelet_serving(&record));
                }
                // Another server wrote first, or our write has an unknown outcome: read the record
                // again.
                Err(Error::Conflict { .. } | Error::Unknown { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        bail!("{name}: the record of certificate authorities changes continuously; retry later")
    }

    fn compare(&self, record: &ClusterIdentityRecord, name: &str) -> Result<()> {
        let mut faults = Vec::new();
        for part in PARTS {
            let Some(wanted) = record.part(part).filter(|_| self.provides(part)) else { continue };
            let found = match self.fingerprints(part) {
                Err(_) if !part.is_required() => vec![String::new()],
                found => found?,
            };
            match found {
                found if found.is_empty() => faults.push(IdentityMismatch::Missing(part)),
                found if !found.contains(wanted) => faults.push(IdentityMismatch::Differs(part)),
                found => self.warn_of_another(part, wanted, &found),
            }
        }
        if faults.iter().any(|fault| fault.part().is_required()) {
            bail!(self.explain(record, &faults, name));
        }
        Ok(())
    }

    fn kubelet_serving(&self, record: &ClusterIdentityRecord) -> Option<String> {
        record
            .part(IdentityPart::KubeletServing)
            .filter(|_| self.provides(IdentityPart::KubeletServing))
            .cloned()
    }

    fn warn_of_kubelet_serving(&self, record: &ClusterIdentityRecord) {
        let part = IdentityPart::KubeletServing;
        let Some(wanted) = self.kubelet_serving(record) else { return };
        if !self.fingerprints(part).is_ok_and(|found| found.contains(&wanted)) {
            tracing::warn!(
                "{} differs from the CA with which the other servers sign serving certificates of nodes; this \
                 server does not sign them until the CA is copied:\n{}",
                self.layout.pki_file(first_file(part)).display(),
                self.commands(record, &part.files())
            );
        }
    }

    /// During a rotation, the signing key differs from the recorded one before or after the switch.
    fn warn_of_another(&self, part: IdentityPart, wanted: &String, found: &[String]) {
        if part == IdentityPart::Accounts && found.first() != Some(wanted) {
            tracing::warn!(
                "service-account tokens are signed with another key than the recorded one; add it to \
                 --service-account-key-file of every server"
            );
        }
    }

    /// Returns the complete record: the known entries and those that this server adds.
    fn complete(&self, known: Option<&ClusterIdentityRecord>) -> Result<ClusterIdentityRecord> {
        let mut record = known.cloned().unwrap_or_else(|| self.blank());
        for part in PARTS {
            if !self.provides(part) || (record.part(part).is_some() && !self.replaces) {
                continue;
            }
            let found = match self.fingerprints(part) {
                Ok(found) => found.into_iter().next(),
                // The signer reports the error; nothing else depends on this part.
                Err(_) if !part.is_required() => continue,
                Err(error) => return Err(error),
            };
            if record.part(part) != found.as_ref() {
                (record.host, record.directory) = (self.host.clone(), self.directory());
                record.set(part, found);
            }
        }
        Ok(record)
    }

    fn blank(&self) -> ClusterIdentityRecord {
        ClusterIdentityRecord::new(self.host.clone(), self.directory())
    }

    fn directory(&self) -> String {
        self.pki_dir().to_string_lossy().into_owned()
    }

    fn pki_dir(&self) -> PathBuf {
        self.layout.root().join("pki")
    }

    fn provides(&self, part: IdentityPart) -> bool {
        match part {
            IdentityPart::Serving | IdentityPart::KubeletServing => self.serving,
            IdentityPart::Clients => self.clients,
            IdentityPart::Accounts => true,
        }
    }

    /// Returns the fingerprints of this server's keys for a part, the active one first; empty if
    /// there are none.
    fn fingerprints(&self, part: IdentityPart) -> Result<Vec<String>> {
        let keys = match (part, &self.accounts) {
            (IdentityPart::Accounts, Some(keys)) => {
                let paths = std::iter::once(&keys.signing).chain(&keys.verifying);
                let keys: Result<Vec<_>> = paths.map(|path| public_keys(path)).collect();
                keys?.into_iter().flatten().flatten().collect()
            }
            (IdentityPart::Accounts, None) => {
                public_keys(&self.layout.pki_file(first_file(part)))?.unwrap_or_default()
            }
            _ => authority(&self.layout.pki_file(first_file(part)))?.into_iter().collect(),
        };
        Ok(keys.iter().map(|key| fingerprint(key.as_der())).collect())
    }

    fn explain(&self, record: &ClusterIdentityRecord, faults: &[IdentityMismatch], name: &str) -> String {
        let list = |wanted: fn(&IdentityMismatch) -> bool| {
            let files = faults.iter().filter(|fault| wanted(fault)).map(|fault| first_file(fault.part()));
            files.collect::<Vec<_>>().join(", ")
        };
        let missing = list(|fault| matches!(fault, IdentityMismatch::Missing(_)));
        let differs = list(|fault| matches!(fault, IdentityMismatch::Differs(_)));
        let pki = self.pki_dir();
        let mut text = format!("{name} belongs to servers with other certificate authorities or keys.");
        if !missing.is_empty() {
            text += &format!("\nMissing files: {missing} in {}", pki.display());
        }
        if !differs.is_empty() {
            text += &format!("\nDifferent files: {differs} in {}", pki.display());
        }
        let named = self.accounts.is_some() && faults.iter().any(|f| f.part() == IdentityPart::Accounts);
        if named {
            text += "\nThe key of their service-account tokens is missing in \
                     --service-account-signing-key-file and --service-account-key-file.";
        }
        let wanted = faults
            .iter()
            .map(IdentityMismatch::part)
            .filter(|part| !named || *part != IdentityPart::Accounts);
        let files: Vec<_> = wanted.flat_map(IdentityPart::files).collect();
        if !files.is_empty() {
            text += "\nAll servers on one etcd must share these files. Copy them from another server:\n";
            text += &self.commands(record, &files);
        }
        text += "\nTo replace the recorded ones by those of this server, start it with --record-authorities.";
        text
    }

    /// Formats commands that copy files from the server that wrote the record.
    fn commands(&self, record: &ClusterIdentityRecord, files: &[&str]) -> String {
        let pki = self.pki_dir();
        let here = record.host.is_some() && record.host == self.host;
        let program = if here { "cp -p" } else { "scp -p" };
        let mut text = format!("  mkdir -p -m 700 {}\n  {program}", word(&pki));
        for file in files {
            let path = format!("{}/{file}", record.directory);
            let place = match &record.host {
                _ if here => path,
                Some(host) => format!("{host}:{path}"),
                None => format!("SERVER:{path}"),
            };
            text += &format!(" {}", shell::word(&place));
        }
        text + &format!(" {}/", word(&pki))
    }
}

/// Returns a check that accepts only the CA with this fingerprint.
pub fn recorded_ca(wanted: String) -> CaCheck {
    Box::new(move |ca| {
        ensure!(
            fingerprint(ca.public_key().as_der()) == wanted,
            "differs from the CA that the other servers use"
        );
        Ok(())
    })
}

fn word(path: &Path) -> String {
    shell::word(&path.to_string_lossy()).into_owned()
}

fn first_file(part: IdentityPart) -> &'static str {
    let [first, _] = part.files();
    first
}

/// Reads the record and its revision from the store.
async fn read(store: &dyn Store) -> Result<Option<(ClusterIdentityRecord, u64)>> {
    let stored = store.get(KEY).await?;
    let record = stored.map(|stored| Ok((ClusterIdentityRecord::read(&stored.value)?, stored.revision)));
    record.transpose()
}

/// Reads the public key of a CA; `None` if the file is missing.
fn authority(path: &Path) -> Result<Option<PublicKey>> {
    let Some(text) = contents(path)? else { return Ok(None) };
    let certificate = Certificate::from_pem(&text);
    let certificate = certificate.with_context(|| format!("cannot read {}", path.display()))?;
    Ok(Some(certificate.public_key().clone()))
}

fn public_keys(path: &Path) -> Result<Option<Vec<PublicKey>>> {
    let Some(text) = contents(path)? else { return Ok(None) };
    let keys = PublicKey::list_from_pem(&text);
    Ok(Some(keys.with_context(|| format!("cannot read {}", path.display()))?))
}

fn contents(path: &Path) -> Result<Option<zeroize::Zeroizing<Vec<u8>>>> {
    match fs::read(path) {
        Ok(text) => Ok(Some(text.into())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}
