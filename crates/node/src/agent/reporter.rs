//! Writes the status whenever it changes.

use std::path::PathBuf;

use tokio::sync::watch;

use crate::clock::Clock;
use crate::files::Files;
use crate::keeper::report::Reports;
use crate::manager::Report;
use crate::register::Registration;
use crate::status::{Certificate, Server, Status, Volumes};

/// What there is to say, and where.
pub struct Reporter {
    /// The node's name.
    pub node: String,
    /// Where its certificates are.
    pub cert_dir: PathBuf,
    /// Where the status goes.
    pub root_dir: PathBuf,
    /// The disk.
    pub files: Files,
    /// What time it is.
    pub clock: Clock,
    /// What its managers say.
    pub reports: Vec<watch::Receiver<Report>>,
    /// What the server has of it.
    pub registration: watch::Receiver<Registration>,
    /// What there is of volumes.
    pub volumes: watch::Receiver<Reports>,
    /// What is wrong with the file of the machine's own volumes.
    pub wrong: watch::Receiver<Option<String>>,
}

impl Reporter {
    /// Writes until it is dropped.
    pub async fn run(mut self) {
        let mut before = None;
        loop {
            let status = self.status();
            // Heartbeats alone are nothing new.
            let Status { certificates, server, volumes, .. } = &status;
            let said = (certificates.clone(), server.clone(), volumes.clone());
            if before.as_ref() != Some(&said) {
                let (directory, files) = (self.root_dir.clone(), self.files.clone());
                let write = move || status.write(&directory, &files);
                match tokio::task::spawn_blocking(write).await {
                    Ok(Ok(())) => before = Some(said),
                    Ok(Err(error)) => tracing::debug!(%error, "cannot write the status"),
                    Err(_) => {}
                }
            }
            self.changed().await;
        }
    }

    fn status(&mut self) -> Status {
        let reports = self.reports.iter_mut();
        let certificates = reports.map(|one| Certificate::of(&one.borrow_and_update())).collect();
        Status {
            node: self.node.clone(),
            written: (self.clock)().wall,
            process: std::process::id(),
            // Whoever reads it is in another directory.
            certificate_directory: std::path::absolute(&self.cert_dir)
                .unwrap_or_else(|_| self.cert_dir.clone()),
            certificates,
            server: Server::of(&self.registration.borrow_and_update()),
            volumes: Volumes::of(
                &self.volumes.borrow_and_update(),
                self.wrong.borrow_and_update().as_deref(),
            ),
        }
    }

    async fn changed(&mut self) {
        let reports = self.reports.iter_mut().map(|report| Box::pin(report.changed()));
        let reports = futures::future::select_all(reports);
        tokio::select! {
            _ = reports => {}
            Ok(()) = self.volumes.changed() => {}
            Ok(()) = self.wrong.changed() => {}
            changed = self.registration.changed() => {
                if changed.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        }
    }
}
