//! Writes the status file whenever the status changes.

use std::path::PathBuf;

use tokio::sync::watch;

use crate::clock::Clock;
use crate::node_certificates::NodeCertificateReport;
use crate::node_status::NodeRegistration;
use crate::status_file::{AgentStatus, CertificateStatus, RegistrationStatus, VolumesStatus};
use crate::volume_manager::report::VolumeReports;
use windlass_runtime::durable::FileSystem;

pub struct StatusFileWriter {
    /// The name of the Node object, written to the status file.
    pub node: String,
    /// Directory of the node's certificates, reported in the status file.
    pub cert_dir: PathBuf,
    /// Directory in which the status file is written.
    pub root_dir: PathBuf,
    pub files: FileSystem,
    /// Source of the time stamps in the status file.
    pub clock: Clock,
    /// Reports of the certificate managers; a change of any rewrites the file.
    pub reports: Vec<watch::Receiver<NodeCertificateReport>>,
    /// State of the Node object on the server.
    pub registration: watch::Receiver<NodeRegistration>,
    /// The latest report of every volume.
    pub volumes: watch::Receiver<VolumeReports>,
    /// Why the projections file was rejected, if it was.
    pub projections_error: watch::Receiver<Option<String>>,
}

impl StatusFileWriter {
    /// Writes the status file until it is dropped.
    pub async fn run(mut self) {
        let mut before = None;
        loop {
            let status = self.status();
            // A heartbeat alone does not rewrite the file.
            let AgentStatus { certificates, registration, volumes, .. } = &status;
            let said = (certificates.clone(), registration.clone(), volumes.clone());
            if before.as_ref() != Some(&said) {
                let (directory, files) = (self.root_dir.clone(), self.files.clone());
                let write = move || status.write(&directory, &files);
                match tokio::task::spawn_blocking(write).await {
                    Ok(Ok(())) => before = Some(said),
                    Ok(Err(error)) => tracing::debug!(%error, "cannot write the status file"),
                    Err(_) => {}
                }
            }
            self.changed().await;
        }
    }

    fn status(&mut self) -> AgentStatus {
        let reports = self.reports.iter_mut();
        let certificates =
            reports.map(|one| CertificateStatus::from_report(&one.borrow_and_update())).collect();
        AgentStatus {
            node_name: self.node.clone(),
            last_update_time: (self.clock)().wall,
            pid: std::process::id(),
            // Readers of the file run in another directory.
            certificate_directory: std::path::absolute(&self.cert_dir)
                .unwrap_or_else(|_| self.cert_dir.clone()),
            certificates,
            registration: RegistrationStatus::from_registration(&self.registration.borrow_and_update()),
            volumes: VolumesStatus::from_reports(
                &self.volumes.borrow_and_update(),
                self.projections_error.borrow_and_update().as_deref(),
            ),
        }
    }

    async fn changed(&mut self) {
        let reports = self.reports.iter_mut().map(|report| Box::pin(report.changed()));
        let reports = futures::future::select_all(reports);
        tokio::select! {
            _ = reports => {}
            Ok(()) = self.volumes.changed() => {}
            Ok(()) = self.projections_error.changed() => {}
            changed = self.registration.changed() => {
                if changed.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        }
    }
}
