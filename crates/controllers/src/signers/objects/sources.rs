//! Follows the signers file and the objects, and updates the set of signers.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::super::config::{SignerConfig, SignersConfig};
use super::super::file::SignersFile;
use super::super::set::SignerSet;
use super::{ObjectVerdict, SignerObjects, resolve};

/// Time for which further changes are waited for. Several entries or objects usually change together.
pub(super) const DEBOUNCE: Duration = Duration::from_millis(100);

/// Sources of the configuration of signers, for the life of the process.
pub(crate) struct SignerSources {
    pub(crate) set: Arc<SignerSet>,
    /// Signers that are neither in a file nor objects.
    fixed: Vec<SignerConfig>,
    file: Option<Arc<SignersFile>>,
    /// `None` until the objects were listed; none while the server does not have the kind.
    objects: watch::Sender<Option<Arc<SignerObjects>>>,
    verdicts: watch::Sender<Arc<BTreeMap<String, ObjectVerdict>>>,
}

impl SignerSources {
    pub(crate) fn new(
        set: Arc<SignerSet>,
        fixed: Vec<SignerConfig>,
        file: Option<Arc<SignersFile>>,
    ) -> Arc<SignerSources> {
        let (objects, verdicts) = (watch::Sender::new(None), watch::Sender::default());
        Arc::new(SignerSources { set, fixed, file, objects, verdicts })
    }

    pub(crate) fn file(&self) -> Option<&Arc<SignersFile>> {
        self.file.as_ref()
    }

    /// Replaces all objects, after a list or a change.
    pub(crate) fn set_objects(&self, objects: Arc<SignerObjects>) {
        self.objects.send_replace(Some(objects));
    }

    /// Removes all objects, because the server does not have the kind.
    pub(crate) fn clear_objects(&self) {
        self.objects.send_if_modified(|objects| {
            let changes = objects.as_ref().is_none_or(|objects| !objects.is_empty());
            *objects = Some(Arc::default());
            changes
        });
    }

    pub(super) fn objects(&self) -> watch::Receiver<Option<Arc<SignerObjects>>> {
        self.objects.subscribe()
    }

    pub(super) fn verdicts(&self) -> watch::Receiver<Arc<BTreeMap<String, ObjectVerdict>>> {
        self.verdicts.subscribe()
    }

    /// Returns a receiver of the entries of the file; it never changes without a file.
    pub(super) fn entries(&self) -> watch::Receiver<Arc<SignersConfig>> {
        match &self.file {
            Some(file) => file.subscribe(),
            None => watch::channel(Arc::default()).1,
        }
    }

    /// Updates the set of signers whenever the file or the objects change.
    pub(crate) async fn run(self: Arc<Self>) -> Infallible {
        let (mut entries, mut objects) = (self.entries(), self.objects());
        loop {
            let sources = self.clone();
            let (file, found) = (entries.borrow_and_update().clone(), objects.borrow_and_update().clone());
            let updated = tokio::task::spawn_blocking(move || sources.update(&file, found.as_deref())).await;
            if let Err(error) = updated {
                tracing::error!(%error, "update of the signers panicked; waiting for the next change");
            }
            tokio::select! {
                Ok(()) = entries.changed() => {}
                Ok(()) = objects.changed() => {}
            }
            tokio::time::sleep(DEBOUNCE).await;
        }
    }

    fn update(&self, file: &SignersConfig, objects: Option<&SignerObjects>) {
        let entries = [self.fixed.as_slice(), &file.signers].concat();
        // Until the objects are known, those of an earlier time as leader stay.
        let Some(objects) = objects else { return };
        let resolution = resolve(&entries, objects);
        self.set.update(resolution.signers);
        self.verdicts.send_replace(Arc::new(resolution.verdicts));
    }
}
