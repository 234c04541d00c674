//! Import of a store from a file.

use std::fs::File;
use std::path::Path;

use super::format::{ExportItem, ExportReader};
use super::{
    ImportPlan, ImportStart, MigrationEvent, MigrationListener, MigrationSource, MigrationStep,
    MigrationSummary, ObjectDigest, StoreLocation,
};
use crate::file_output::io_error;
use crate::{Error, RESTORE_JUMP, Revision};

/// Number of objects, or megabytes, between two progress reports.
const REPORT: u64 = 1_000;

/// Creates a store from an export file. The target must be empty, or contain only what an earlier,
/// interrupted import of the same objects wrote.
///
/// The whole file is checked before anything is changed, and the whole store is read back before it
/// can be opened. All its revisions are above those of the exported one.
pub fn import(
    place: &StoreLocation,
    file: &Path,
    report: MigrationListener<'_>,
) -> Result<MigrationSummary, Error> {
    let plan = check_file(file, report)?;
    let mut target = match place.target(&plan)? {
        ImportStart::Ready(target) => target,
        ImportStart::Occupied => return accept_existing(place, &plan, report),
    };
    let mut reader = open(file)?;
    let (mut done, mut earlier) = (0, 0);
    let total = plan.objects;
    let end = loop {
        match reader.next()? {
            ExportItem::End(end) => break end,
            ExportItem::Object { key, value } => {
                earlier += u64::from(target.put(key, value)?);
                done += 1;
                if done % REPORT == 0 || done == total {
                    report(MigrationEvent::Progress { step: MigrationStep::Importing, done, total });
                }
            }
        }
    };
    if (end.objects, end.contents.as_str()) != (plan.objects, plan.digest.as_str()) {
        let what = "was changed while it was read".to_owned();
        return Err(Error::Refused { path: file.to_owned(), what });
    }
    target.flush()?;
    let found = digest_objects(target.as_mut(), total, report)?;
    if found != (plan.objects, plan.digest.clone()) {
        let what = format!(
            "holds other objects than the file after the import: {} with digest {}, not {} with digest {}",
            found.0, found.1, plan.objects, plan.digest
        );
        return Err(Error::Corrupt { path: place.path(), what });
    }
    let revision = target.publish()?;
    Ok(MigrationSummary { objects: plan.objects, digest: plan.digest, revision, earlier })
}

/// Undoes an unfinished import: removes everything it wrote.
pub fn undo_import(place: &StoreLocation) -> Result<(), Error> {
    place.undo()
}

fn open(file: &Path) -> Result<ExportReader, Error> {
    ExportReader::new(file, File::open(file).map_err(|error| io_error(file, &error))?)
}

/// Reads and verifies the whole file before anything is imported.
fn check_file(file: &Path, report: MigrationListener<'_>) -> Result<ImportPlan, Error> {
    let total = std::fs::metadata(file).map_err(|error| io_error(file, &error))?.len();
    let mut reader = open(file)?;
    let mut objects: u64 = 0;
    loop {
        match reader.next()? {
            ExportItem::Object { .. } => objects += 1,
            ExportItem::End(end) => {
                report(MigrationEvent::Progress { step: MigrationStep::CheckingFile, done: total, total });
                let above = reader.header.revision + RESTORE_JUMP;
                return Ok(ImportPlan { objects: end.objects, digest: end.contents, above });
            }
        }
        if objects.is_multiple_of(REPORT) {
            report(MigrationEvent::Progress { step: MigrationStep::CheckingFile, done: reader.read, total });
        }
    }
}

/// Counts and digests the objects of a store.
fn digest_objects(
    source: &mut (impl MigrationSource + ?Sized),
    total: u64,
    report: MigrationListener<'_>,
) -> Result<(u64, String), Error> {
    let mut digest = ObjectDigest::new();
    let mut last: Option<String> = None;
    let revision: Revision = source.revision();
    loop {
        let page = source.page(revision, last.as_deref())?;
        for (key, stored) in &page.items {
            digest.add(key, &stored.value);
        }
        let done = digest.objects;
        report(MigrationEvent::Progress { step: MigrationStep::CheckingStore, done, total: total.max(done) });
        match page.items.into_iter().next_back() {
            Some((key, _)) if page.more => last = Some(key),
            _ => return Ok((digest.objects, digest.hex())),
        }
    }
}

/// Rejects an existing store, unless it is what this import would create: an earlier run may have
/// been interrupted after it had finished.
fn accept_existing(
    place: &StoreLocation,
    plan: &ImportPlan,
    report: MigrationListener<'_>,
) -> Result<MigrationSummary, Error> {
    let mut source = place.source()?;
    let revision = source.revision();
    let same = revision > plan.above
        && source.count() == plan.objects
        && digest_objects(source.as_mut(), plan.objects, report)? == (plan.objects, plan.digest.clone());
    if same {
        report(MigrationEvent::Note("all objects are already in the store".to_owned()));
        let ImportPlan { objects, digest, .. } = plan.clone();
        return Ok(MigrationSummary { objects, digest, revision, earlier: objects });
    }
    let what = "is not empty; objects are imported only into an empty store".to_owned();
    Err(Error::Refused { path: place.path(), what })
}
