//! Waiting for a certificate.

use std::time::Duration;

use anyhow::{Result, bail};
use futures::StreamExt as _;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt as _};

use super::issuance_step::{IssuanceStep, step};
use super::progress::WaitProgress;
use crate::commands::csr::CsrObject;
use crate::commands::print::plain;
use crate::commands::{InterruptedError, api_client};

/// How often what turns on a terminal turns.
const FRAME: Duration = Duration::from_millis(120);
/// How often to look, for those who may not watch.
const LOOK: Duration = Duration::from_secs(1);
/// Waiting for as long as it takes.
const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// The certificate of this very request, once there is one. No time is all the time.
pub async fn wait(
    api: &Api<CsrObject>,
    request: &CsrObject,
    patience: Duration,
    progress: &mut WaitProgress,
) -> Result<Vec<u8>> {
    let name = request.name_any();
    let patience = if patience.is_zero() { FOR_EVER } else { patience };
    let waiting = CsrWaiter { api, request, name: &name };
    tokio::select! {
        issued = waiting.watch(progress) => issued,
        () = tokio::time::sleep(patience) => {
            bail!("no certificate after {patience:?}: the key is thrown away, and {name} is left; \
                   give it more time with --timeout, or see windlass csr show {name}")
        }
        _ = tokio::signal::ctrl_c() => {
            Err(InterruptedError(format!("the key is discarded, {name} remains")).into())
        }
    }
}

struct CsrWaiter<'a> {
    api: &'a Api<CsrObject>,
    request: &'a CsrObject,
    name: &'a str,
}

impl CsrWaiter<'_> {
    async fn watch(&self, progress: &mut WaitProgress) -> Result<Vec<u8>> {
        let only = watcher::Config::default().fields(&format!("metadata.name={}", self.name));
        let mut events = watcher(self.api.clone(), only).default_backoff().boxed();
        let mut frames = tokio::time::interval(FRAME);
        let mut looks = tokio::time::interval(LOOK);
        let (mut seen, mut may_watch) = (false, true);
        loop {
            let issued = tokio::select! {
                event = events.next(), if may_watch => match event {
                    Some(Ok(Event::Init)) => {
                        seen = false;
                        None
                    }
                    Some(Ok(Event::InitApply(request) | Event::Apply(request))) => {
                        seen = true;
                        self.inspect(Some(&request), progress)?
                    }
                    Some(Ok(Event::InitDone)) if seen => None,
                    Some(Ok(Event::InitDone | Event::Delete(_))) => self.inspect(None, progress)?,
                    Some(Err(error)) => {
                        may_watch = !is_forbidden(&error);
                        self.report_watch_error(&error, progress);
                        None
                    }
                    None => bail!("the watch of {} ended", self.name),
                },
                _ = looks.tick(), if !may_watch => {
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

    /// The certificate, if there is one; an error if there will be none.
    fn inspect(
        &self,
        found: Option<&CsrObject>,
        progress: &mut WaitProgress,
    ) -> Result<Option<Vec<u8>>> {
        let Self { request, name, .. } = self;
        let same = |found: &&CsrObject| found.metadata.uid == request.metadata.uid;
        let Some(found) = found.filter(same) else {
            bail!("{name} was deleted before there was a certificate: ask again");
        };
        let step = step(found);
        let text = step.text(name, &request.spec.signer_name);
        match step {
            IssuanceStep::Issued(certificate) => return Ok(Some(certificate)),
            IssuanceStep::Approval(_) | IssuanceStep::Signing(_) => progress.report(&text),
            IssuanceStep::Denied(_) => {
                bail!("{text}; whoever decided it can tell what to ask for instead")
            }
            IssuanceStep::Failed(_) => bail!("{text}; ask for what the signer signs"),
        }
        Ok(None)
    }

    fn report_watch_error(&self, error: &watcher::Error, progress: &mut WaitProgress) {
        // Watches end all the time; that one does not begin is worth knowing.
        if let watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error) =
            error
            && !matches!(error, kube::Error::Api(status) if status.is_forbidden())
        {
            progress.report(&format!(
                "trying to watch {}: {}",
                self.name,
                plain(&windlass_runtime::client_error::describe(error))
            ));
        }
    }
}

/// Whether we may not watch. Then we may perhaps look.
fn is_forbidden(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => status.is_forbidden(),
        _ => false,
    }
}
