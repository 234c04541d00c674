//! Specification of the requested certificate, from the flags or from the certificate to renew.

use anyhow::{Context, Result, bail};
use windlass_pki::{AltNames, ForeignCertificate, IssuedSubject, KeyType};

use super::certificate_dir::RenewableCertificate;
use super::issue_record::IssueRecord;
use crate::cli::{IssueArgs, NameArgs};

/// Parameters of a certificate to request.
#[derive(Debug)]
pub struct CertificateSpec {
    /// Name of the requested signer, for example example.com/web.
    pub signer: String,
    /// Requested usages by their names in the API.
    pub usages: Vec<String>,
    /// Requested lifetime in seconds; `None` requests the signer's default.
    pub seconds: Option<i32>,
    pub key_type: KeyType,
    /// Subject distinguished name of the certificate.
    pub subject: IssuedSubject,
    /// Requested subject alternative names, if any.
    pub names: AltNames,
}

impl CertificateSpec {
    /// Builds the specification of a first certificate from the flags.
    pub fn from_flags(arguments: &IssueArgs) -> Result<Self> {
        let signer = arguments.signer.clone().context("--signer is required")?;
        let key_type = arguments.key_type.unwrap_or(KeyType::EcdsaP256);
        let (subject, names) = names_from_flags(&arguments.names)?;
        let usages = match arguments.usage.as_slice() {
            [] => usual_usages(&signer, key_type),
            given => given.to_vec(),
        };
        Ok(Self { usages, seconds: seconds(arguments), signer, key_type, subject, names })
    }

    /// Builds the specification of a renewal: the installed certificate, with the changes that
    /// flags request.
    pub fn for_renewal(there: &RenewableCertificate, arguments: &IssueArgs) -> Result<Self> {
        let note = there.note.as_ref();
        let signer = arguments.signer.clone().or(note.map(|note| note.signer.clone()));
        let signer = signer.context("issue.json with the signer is missing; set --signer")?;
        let same_signer = note.filter(|note| note.signer == signer);
        let before = note.and_then(IssueRecord::key_type);
        let key_type = arguments.key_type.or(before).unwrap_or(KeyType::EcdsaP256);
        let usages = match (arguments.usage.as_slice(), same_signer) {
            ([], Some(note)) => note.usages.clone(),
            ([], None) => usual_usages(&signer, key_type),
            (given, _) => given.to_vec(),
        };
        let (subject, names) = names_from_certificate(&there.certificate);
        let seconds = seconds(arguments).or(note.and_then(|note| note.expiration_seconds));
        Ok(Self { signer, usages, seconds, key_type, subject, names })
    }

    /// Returns the record from which the request can be repeated.
    pub fn to_record(&self) -> IssueRecord {
        IssueRecord {
            signer: self.signer.clone(),
            usages: self.usages.clone(),
            expiration_seconds: self.seconds,
            key_type: self.key_type.flag_name().to_owned(),
        }
    }
}

fn seconds(arguments: &IssueArgs) -> Option<i32> {
    arguments.duration.and_then(|duration| i32::try_from(duration.as_secs()).ok())
}

fn names_from_flags(arguments: &NameArgs) -> Result<(IssuedSubject, AltNames)> {
    let organizations = arguments.org.iter().map(String::as_str).collect::<Vec<_>>();
    let subject = IssuedSubject::new(arguments.cn.as_deref().unwrap_or_default(), &organizations);
    let names = AltNames {
        dns_names: arguments.dns.clone(),
        email_addresses: arguments.email.clone(),
        ip_addresses: arguments.ip.iter().map(|address| address.to_canonical()).collect(),
        uris: arguments.uri.clone(),
    };
    if subject.is_empty() && names.is_empty() {
        bail!("the certificate needs a name: set --cn, --org, --dns, --ip, --uri or --email");
    }
    Ok((subject, names))
}

fn names_from_certificate(certificate: &ForeignCertificate) -> (IssuedSubject, AltNames) {
    (IssuedSubject::from_name(certificate.subject()), certificate.alt_names().clone())
}

/// Returns the default usages for a signer. For the kubelet signers, these are the ones that
/// kubelets request.
fn usual_usages(signer: &str, key_type: KeyType) -> Vec<String> {
    const SIGNS: &str = "digital signature";
    const ENCIPHERS: &str = "key encipherment";
    const SERVER: &str = "server auth";
    const CLIENT: &str = "client auth";
    // Only RSA keys support key encipherment.
    let usages: &[&str] = match (signer, key_type.can_encipher()) {
        ("kubernetes.io/kube-apiserver-client", _) => &[CLIENT],
        ("kubernetes.io/kube-apiserver-client-kubelet", true) => &[SIGNS, ENCIPHERS, CLIENT],
        ("kubernetes.io/kube-apiserver-client-kubelet", false) => &[SIGNS, CLIENT],
        ("kubernetes.io/kubelet-serving", true) => &[SIGNS, ENCIPHERS, SERVER],
        _ => &[SIGNS, SERVER],
    };
    usages.iter().map(|usage| (*usage).to_owned()).collect()
}

#[cfg(test)]
mod tests;
