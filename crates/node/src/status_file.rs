//! Status file of the agent, read by `windlass node status`: certificates, activities and failures.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::node_certificates::{CurrentCertificateReport, ManagerActivity, NodeCertificateReport};
use crate::node_status::NodeRegistration;
use crate::template::CertificatePurpose;
use crate::volume_manager::report::{CertificateReport, VolumeReports};
use windlass_runtime::durable::{DiskError, FileSystem};
use windlass_runtime::file_lock::DirectoryLock;

/// Name of the status file, in the agent's root directory.
pub const FILE: &str = "windlass-node-status.json";
/// The file contains no secrets.
const READABLE: u32 = 0o644;
/// Limit of listed volumes that are blocked.
const MOST_BLOCKED: usize = 20;
/// Limit of listed certificates in volumes. The file stays far below [`LARGEST`].
const MOST_CERTIFICATES: usize = 200;
/// Limit of alternative names listed per certificate.
const MOST_NAMES: usize = 10;
/// Size limit in bytes; a larger file is not ours.
const LARGEST: usize = 1 << 20;

/// Content of the status file.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentStatus {
    /// The name of the Node object that the agent runs for.
    pub node_name: String,
    /// Wall-clock time at which the agent wrote the file.
    #[serde(with = "time::serde::rfc3339")]
    pub last_update_time: OffsetDateTime,
    /// PID of the process that wrote the file.
    pub pid: u32,
    /// Absolute path of the certificate directory.
    pub certificate_directory: PathBuf,
    /// The node's client certificate and, if it is rotated, the serving certificate.
    pub certificates: Vec<CertificateStatus>,
    /// State of the Node object on the server.
    pub registration: RegistrationStatus,
    /// The state of the volumes of pods and of the host.
    #[serde(default)]
    pub volumes: VolumesStatus,
}

/// State of all volumes of a node.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumesStatus {
    /// Why the projections file was rejected; the previous projections stay in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub projections_error: Option<String>,
    /// Number of volumes with up-to-date files. Each volume is counted once: as ready, blocked or
    /// pending.
    pub ready: usize,
    /// Number of volumes with stale files or none.
    pub blocked: usize,
    /// Number of volumes not inspected yet.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub pending: usize,
    /// Some of the blocked volumes, with reasons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocked_volumes: Vec<BlockedVolume>,
    /// Certificates in the volumes, those that expire first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<VolumeCertificate>,
    /// Number of certificates that are not listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_certificates: usize,
}

/// A certificate in a volume's files.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeCertificate {
    /// `host/name` for a projection, `namespace/pod/volume` for a volume of a pod.
    pub volume: String,
    /// The signer it was requested from.
    pub signer_name: String,
    /// The common name of its subject.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub common_name: String,
    /// Its first alternative names, at most 10.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subject_alt_names: Vec<String>,
    /// The common name of its issuer.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub issuer: String,
    /// Its serial number, in hexadecimal digits.
    pub serial_number: String,
    /// The beginning of its validity.
    #[serde(with = "time::serde::rfc3339")]
    pub not_before: OffsetDateTime,
    /// The end of its validity.
    #[serde(with = "time::serde::rfc3339")]
    pub not_after: OffsetDateTime,
}

/// A volume without up-to-date files.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockedVolume {
    /// `host/name` for a projection, `namespace/pod/volume` for a pod's volume.
    pub volume: String,
    /// Whether the volume has stale files.
    pub stale: bool,
    /// The reason why it is blocked.
    pub message: String,
}

/// State of one certificate of the node.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CertificateStatus {
    /// What it is for: client or serving.
    pub purpose: String,
    /// The signer name that the certificate is requested from.
    pub signer_name: String,
    /// The certificate in use; `None` before the first issuance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<CurrentCertificateStatus>,
    /// What the certificate manager is doing or waiting for.
    pub activity: ActivityStatus,
    /// The last failure; `None` once a certificate is stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<CertificateError>,
    /// Number of failures since the start.
    pub error_count: u64,
    /// Number of certificates stored since the start.
    pub stored_count: u64,
    /// Problems found in the certificate store at the start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// The certificate that is in use.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CurrentCertificateStatus {
    /// Common name of the subject, which is the Kubernetes user name.
    pub common_name: String,
    /// Organizations of the subject, which are the Kubernetes groups.
    pub organizations: Vec<String>,
    /// DNS names among its alternative names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dns_names: Vec<String>,
    /// IP addresses among its alternative names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ip_addresses: Vec<String>,
    /// Serial number of the certificate, in hexadecimal digits.
    pub serial_number: String,
    /// Start of the validity, from the certificate.
    #[serde(with = "time::serde::rfc3339")]
    pub not_before: OffsetDateTime,
    /// End of the validity, from the certificate.
    #[serde(with = "time::serde::rfc3339")]
    pub not_after: OffsetDateTime,
    /// When the next certificate will be requested.
    #[serde(with = "time::serde::rfc3339")]
    pub renewal_time: OffsetDateTime,
    /// When the server first rejected the certificate; `None` while it accepts it.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "time::serde::rfc3339::option")]
    pub rejection_time: Option<OffsetDateTime>,
    /// Required names that the certificate lacks, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing_names: Option<String>,
}

/// What a certificate manager is doing, for programs and for people.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ActivityStatus {
    /// Machine-readable state in UpperCamelCase, such as `Waiting`.
    pub state: String,
    /// The same as a sentence for people; the wording may change.
    pub message: String,
    /// Name of the pending request, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_name: Option<String>,
}

/// The last failure of a certificate manager, as in the status file.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct CertificateError {
    /// Machine-readable cause in UpperCamelCase, the same as in events.
    pub reason: String,
    /// Error message for people, without secrets; the wording may change.
    pub message: String,
}

/// State of the Node object on the server.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RegistrationStatus {
    /// Whether the Node object exists.
    pub registered: bool,
    /// Whether a kubelet reports for the node.
    pub kubelet_reports: bool,
    /// IP addresses in the status of the Node object; may be empty.
    pub addresses: Vec<String>,
    /// The last registration or heartbeat error; `None` after a success.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl AgentStatus {
    /// Writes the status file to a directory.
    pub fn write(&self, directory: &Path, files: &FileSystem) -> Result<(), DiskError> {
        let text = serde_json::to_vec_pretty(self).unwrap_or_default();
        let path = directory.join(FILE);
        match files.replace(&path, &text, READABLE) {
            // A full disk is exactly what must be reported.
            Err(error) if error.is_full() => files.overwrite(&path, &text),
            written => written,
        }
    }

    /// Reads the status file of an agent, if there is one.
    pub fn read(directory: &Path) -> Result<Option<Self>, String> {
        let path = directory.join(FILE);
        let text = FileSystem::default().read(&path, LARGEST).map_err(|error| error.to_string())?;
        let Some(text) = text else { return Ok(None) };
        let read = serde_json::from_slice(&text);
        read.map(Some).map_err(|error| format!("cannot read {}: {error}", path.display()))
    }
}

/// Returns whether a running agent uses this certificate directory.
pub fn is_running(directory: &Path) -> std::io::Result<bool> {
    DirectoryLock::is_held(directory)
}

impl CertificateStatus {
    /// Converts the report of a certificate manager.
    pub fn from_report(report: &NodeCertificateReport) -> Self {
        let purpose = match report.purpose {
            CertificatePurpose::Client => "client",
            CertificatePurpose::Serving => "serving",
        };
        Self {
            purpose: purpose.into(),
            signer_name: report.purpose.signer().into(),
            current: report.held.as_ref().map(CurrentCertificateStatus::from_report),
            activity: ActivityStatus::from_activity(&report.doing),
            error: report.trouble.as_ref().map(|trouble| CertificateError {
                reason: trouble.cause.reason().into(),
                message: trouble.message.clone(),
            }),
            error_count: report.errors,
            stored_count: report.stored,
            warnings: report.warnings.clone(),
        }
    }
}

impl CurrentCertificateStatus {
    fn from_report(held: &CurrentCertificateReport) -> Self {
        Self {
            common_name: held.common_name.clone(),
            organizations: held.organizations.clone(),
            dns_names: held.names.dns_names.clone(),
            ip_addresses: held.names.ip_addresses.iter().map(ToString::to_string).collect(),
            serial_number: held.serial.clone(),
            not_before: held.not_before,
            not_after: held.expires,
            renewal_time: held.rotate_at,
            rejection_time: held.rejected_since,
            missing_names: held.lacking.clone(),
        }
    }
}

impl ActivityStatus {
    fn from_activity(doing: &ManagerActivity) -> Self {
        let plain = |state: &str, message: String| Self { state: state.into(), message, request_name: None };
        match doing {
            ManagerActivity::Holding => plain("Holding", "renewal is not due yet".into()),
            ManagerActivity::Unspecified => plain(
                "Unspecified",
                "waiting for the node's addresses, which are the names of this certificate".into(),
            ),
            ManagerActivity::Asking => plain("Asking", "requesting a certificate".into()),
            ManagerActivity::Waiting { request, stage, since } => Self {
                request_name: Some(request.clone()),
                ..plain(
                    "Waiting",
                    format!("{request} has been waiting {} since {}", stage.text(), moment(*since)),
                )
            },
            ManagerActivity::Storing => plain("Storing", "storing a certificate".into()),
            ManagerActivity::Pausing { until } => plain("Pausing", format!("retrying at {}", moment(*until))),
        }
    }
}

impl RegistrationStatus {
    /// Converts the state of the registration.
    pub fn from_registration(known: &NodeRegistration) -> Self {
        Self {
            registered: known.uid.is_some(),
            kubelet_reports: known.kubelet,
            addresses: known.addresses.iter().map(ToString::to_string).collect(),
            error: known.problem.clone(),
        }
    }
}

impl VolumesStatus {
    /// Summarizes the reports of all volumes.
    pub fn from_reports(reports: &VolumeReports, projections_error: Option<&str>) -> Self {
        let blocked = reports.iter().filter_map(|(id, report)| {
            let (stale, message) = (report.ready, report.blocked.clone()?);
            Some(BlockedVolume { volume: id.to_string(), stale, message })
        });
        let blocked_volumes = blocked.clone().take(MOST_BLOCKED).collect();
        let unblocked = reports.values().filter(|report| report.blocked.is_none());
        let ready = unblocked.clone().filter(|report| report.ready).count();
        let certificates = reports.iter().flat_map(|(id, report)| {
            report.certificates.iter().map(|found| VolumeCertificate::from_report(id.to_string(), found))
        });
        let mut certificates = certificates.collect::<Vec<_>>();
        certificates.sort_by(|a, b| (a.not_after, &a.volume).cmp(&(b.not_after, &b.volume)));
        let more_certificates = certificates.len().saturating_sub(MOST_CERTIFICATES);
        certificates.truncate(MOST_CERTIFICATES);
        Self {
            projections_error: projections_error.map(str::to_owned),
            ready,
            blocked: blocked.count(),
            pending: unblocked.count() - ready,
            blocked_volumes,
            certificates,
            more_certificates,
        }
    }
}

impl VolumeCertificate {
    fn from_report(volume: String, found: &CertificateReport) -> Self {
        Self {
            volume,
            signer_name: found.signer.clone(),
            common_name: found.common_name.clone(),
            subject_alt_names: found.names.iter().take(MOST_NAMES).cloned().collect(),
            issuer: found.issuer.clone(),
            serial_number: found.serial.clone(),
            not_before: found.not_before,
            not_after: found.not_after,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// Formats a time, to the second.
fn moment(time: OffsetDateTime) -> String {
    let whole = time.replace_nanosecond(0).unwrap_or(time);
    whole.format(&Rfc3339).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::csr::CsrStage;
    use crate::testing::{START, report};
    use crate::volume::id::{VolumeId, VolumeOwner};
    use crate::volume_manager::report::VolumeReport;

    fn status() -> AgentStatus {
        let mut waiting = report(CertificatePurpose::Client, Some(START));
        waiting.doing = ManagerActivity::Waiting {
            request: "node-csr-x".into(),
            stage: CsrStage::Approval,
            since: START,
        };
        AgentStatus {
            node_name: "n1".into(),
            last_update_time: START,
            pid: 7,
            certificate_directory: "/pki".into(),
            certificates: vec![
                CertificateStatus::from_report(&waiting),
                CertificateStatus::from_report(&report(CertificatePurpose::Serving, None)),
            ],
            registration: RegistrationStatus::from_registration(&NodeRegistration {
                uid: Some("u".into()),
                ..NodeRegistration::default()
            }),
            volumes: VolumesStatus { ready: 3, ..VolumesStatus::default() },
        }
    }

    #[test]
    fn round_trips_through_file() {
        let place = tempfile::tempdir().unwrap();
        assert_eq!(AgentStatus::read(place.path()), Ok(None));
        let status = status();
        status.write(place.path(), &FileSystem::default()).unwrap();
        assert_eq!(AgentStatus::read(place.path()), Ok(Some(status)));
        std::fs::write(place.path().join(FILE), "{").unwrap();
        assert!(AgentStatus::read(place.path()).is_err_and(|error| error.contains(FILE)));
    }

    #[test]
    fn volumes_are_counted_and_some_blocked_ones_listed() {
        let certificate = |number: usize| CertificateReport {
            signer: "a.b/c".into(),
            common_name: "web".into(),
            names: (0..20).map(|name| format!("{name}.example.com")).collect(),
            issuer: "root".into(),
            serial: format!("{number:04x}"),
            not_before: START,
            not_after: START - time::Duration::minutes(i64::try_from(number).unwrap()),
        };
        let volume = |number: usize| VolumeId { owner: VolumeOwner::Host, name: number.to_string() };
        let report = |number: usize| VolumeReport {
            directory: "v".into(),
            sources: Vec::new(),
            ready: number.is_multiple_of(2),
            blocked: (number < 50).then(|| format!("no {number}")),
            changed: None,
            anchors: Vec::new(),
            certificates: vec![certificate(number)],
        };
        let reports = (0..300).map(|number| (volume(number), Arc::new(report(number)))).collect();
        let volumes = VolumesStatus::from_reports(&Arc::new(reports), None);
        // Those that are blocked and keep older files are counted once.
        assert_eq!((volumes.ready, volumes.blocked, volumes.pending), (125, 50, 125));
        assert_eq!(volumes.blocked_volumes.len(), 20);
        assert_eq!((volumes.certificates.len(), volumes.more_certificates), (200, 100));
        let soonest = &volumes.certificates[0];
        assert_eq!((&*soonest.volume, &*soonest.serial_number), ("host/299", "012b"));
        assert_eq!(soonest.subject_alt_names.len(), 10);
        let first = &volumes.blocked_volumes[0];
        assert_eq!((&*first.volume, &*first.message, first.stale), ("host/0", "no 0", true));
    }

    #[test]
    fn pending_request_is_named() {
        let client = &status().certificates[0];
        let text = "node-csr-x has been waiting to be approved since 2026-03-01T12:00:00Z";
        assert_eq!(client.activity.message, text);
        assert_eq!(client.activity.request_name.as_deref(), Some("node-csr-x"));
    }

    #[test]
    fn an_agent_at_work_is_seen() {
        let place = tempfile::tempdir().unwrap();
        assert!(!is_running(place.path()).unwrap());
        let lock = DirectoryLock::acquire(place.path()).unwrap();
        assert!(is_running(place.path()).unwrap());
        drop(lock);
        assert!(!is_running(place.path()).unwrap());
        assert!(!is_running(&place.path().join("none")).unwrap());
    }
}
