//! Waits for a certificate to be issued.

use std::time::Duration;

use anyhow::{Result, bail};
use kube::{Api, ResourceExt as _};
use windlass_runtime::watch::{ListTracker, ObjectWatch, TrackedEvent, WatchError};

use super::issuance_step::{IssuanceStep, step};
use super::progress::WaitProgress;
use crate::commands::csr::CsrObject;
use crate::commands::print::plain;
use crate::commands::{InterruptedError, api_client};

/// Interval of the animation on a terminal.
const FRAME: Duration = Duration::from_millis(120);
/// Polling interval for users without permission to watch.
const POLL: Duration = Duration::from_secs(1);
const UNLIMITED: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// Waits for the certificate of this request. A timeout of zero means none.
pub async fn wait(
    api: &Api<CsrObject>,
    request: &CsrObject,
    timeout: Duration,
    progress: &mut WaitProgress,
) -> Result<Vec<u8>> {
    let name = request.name_any();
    let timeout = if timeout.is_zero() { UNLIMITED } else { timeout };
    let waiting = CsrWaiter { api, request, name: &name };
    tokio::select! {
        issued = waiting.watch(progress) => issued,
        () = tokio::time::sleep(timeout) => {
            bail!("timed out after {timeout:?}: {name} has no certificate; the key is discarded, {name} remains; \
                   raise --timeout, or see windlass csr show {name}")
        }
        _ = tokio::signal::ctrl_c() => {
            Err(InterruptedError(format!("the key is discarded, {name} remains")).into())
        }
    }
}

/// Status with which the server refuses a watch; the user may be allowed to get the request.
const FORBIDDEN: u16 = 403;

struct CsrWaiter<'a> {
    api: &'a Api<CsrObject>,
    request: &'a CsrObject,
    name: &'a str,
}

impl CsrWaiter<'_> {
    async fn watch(&self, progress: &mut WaitProgress) -> Result<Vec<u8>> {
        let only = format!("metadata.name={}", self.name);
        let mut events = ObjectWatch::with_fields(self.api.clone(), Some(&only));
        let mut tracker = ListTracker::default();
        let mut frames = tokio::time::interval(FRAME);
        let mut polls = tokio::time::interval(POLL);
        let mut may_watch = true;
        loop {
            let issued = tokio::select! {
                event = events.next(), if may_watch => match event {
                    Ok(event) => match tracker.track(event, CsrObject::name_any) {
                        Some(TrackedEvent::Applied(_, request)) => self.inspect(Some(&request), progress)?,
                        Some(TrackedEvent::Listed(names)) if names.is_empty() => self.inspect(None, progress)?,
                        Some(TrackedEvent::Deleted(..)) => self.inspect(None, progress)?,
                        Some(TrackedEvent::Listed(_)) | None => None,
                    },
                    Err(error) => {
                        may_watch = error.status != Some(FORBIDDEN);
                        self.report_watch_error(&error, progress);
                        None
                    }
                },
                _ = polls.tick(), if !may_watch => {
                    let found = api_client::with_timeout(self.api.get_opt(self.name)).await?;
                    let found = found.map_err(api_client::explain)?;
                    self.inspect(found.as_ref(), progress)?
                }
                _ = frames.tick() => {
                    progress.tick();
                    None
                }
            };
            if let Some(issued) = issued {
                return Ok(issued);
            }
        }
    }

    /// Returns the certificate if it was issued; an error if it never will be.
    fn inspect(&self, found: Option<&CsrObject>, progress: &mut WaitProgress) -> Result<Option<Vec<u8>>> {
        let Self { request, name, .. } = self;
        let same = |found: &&CsrObject| found.metadata.uid == request.metadata.uid;
        let Some(found) = found.filter(same) else {
            bail!("{name} was deleted before a certificate was issued; create a new request");
        };
        let step = step(found);
        let text = step.text(name, &request.spec.signer_name);
        match step {
            IssuanceStep::Issued(certificate) => return Ok(Some(certificate)),
            IssuanceStep::Approval(_) | IssuanceStep::Signing(_) => progress.report(&text),
            IssuanceStep::Denied(_) => {
                bail!("{text}; ask the approver which request is acceptable")
            }
            IssuanceStep::Failed(_) => bail!("{text}; request what the signer permits"),
        }
        Ok(None)
    }

    fn report_watch_error(&self, error: &WatchError, progress: &mut WaitProgress) {
        // Established watches end all the time and resume.
        if !error.was_established && error.status != Some(FORBIDDEN) {
            progress.report(&format!("retrying to watch {}: {}", self.name, plain(&error.message)));
        }
    }
}
