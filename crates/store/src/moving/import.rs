//! Making a store of a file.

use std::fs::File;
use std::path::Path;

use super::format::{Next, Reader};
use super::{Digest, Listener, Moved, News, Place, Plan, Source, Start, Step};
use crate::embedded::io_error;
use crate::{Error, RESTORE_JUMP, Revision};

/// How many objects, or megabytes, come between two reports.
const REPORT: u64 = 1_000;

/// Makes a store of the file of an export. There must be none yet, or only what an earlier,
/// interrupted import of the same objects has put there.
///
/// The whole file is checked before anything is changed, and the whole store is read back before
/// anyone can open it. All its revisions are above those of the exported one.
pub fn import(place: &Place, file: &Path, tell: Listener<'_>) -> Result<Moved, Error> {
    let plan = check(file, tell)?;
    let mut target = match place.target(&plan)? {
        Start::Ready(target) => target,
        Start::Occupied => return complete(place, &plan, tell),
    };
    let mut reader = open(file)?;
    let (mut done, mut earlier) = (0, 0);
    let total = plan.objects;
    let end = loop {
        match reader.next()? {
            Next::End(end) => break end,
            Next::Object { key, value } => {
                earlier += u64::from(target.put(key, value)?);
                done += 1;
                if done % REPORT == 0 || done == total {
                    tell(News::Progress { step: Step::Importing, done, total });
                }
            }
        }
    };
    if (end.objects, end.contents.as_str()) != (plan.objects, plan.digest.as_str()) {
        let what = "was changed while it was read".to_owned();
        return Err(Error::Refused { path: file.to_owned(), what });
    }
    target.settle()?;
    let found = contents(target.as_mut(), total, tell)?;
    if found != (plan.objects, plan.digest.clone()) {
        let what = format!(
            "holds other objects than the file after the import: {} with digest {}, not {} with \
             digest {}",
            found.0, found.1, plan.objects, plan.digest
        );
        return Err(Error::Corrupt { path: place.path(), what });
    }
    let revision = target.publish()?;
    Ok(Moved { objects: plan.objects, digest: plan.digest, revision, earlier })
}

/// Takes back an import that was not finished: all that it has put is removed.
pub fn undo_import(place: &Place) -> Result<(), Error> {
    place.undo()
}

fn open(file: &Path) -> Result<Reader, Error> {
    Reader::new(file, File::open(file).map_err(|error| io_error(file, &error))?)
}

/// Reads the whole file.
fn check(file: &Path, tell: Listener<'_>) -> Result<Plan, Error> {
    let total = std::fs::metadata(file).map_err(|error| io_error(file, &error))?.len();
    let mut reader = open(file)?;
    let mut objects: u64 = 0;
    loop {
        match reader.next()? {
            Next::Object { .. } => objects += 1,
            Next::End(end) => {
                tell(News::Progress { step: Step::CheckingFile, done: total, total });
                let above = reader.header.revision + RESTORE_JUMP;
                return Ok(Plan { objects: end.objects, digest: end.contents, above });
            }
        }
        if objects.is_multiple_of(REPORT) {
            tell(News::Progress { step: Step::CheckingFile, done: reader.read, total });
        }
    }
}

/// Counts and sums up what a store holds.
fn contents(
    source: &mut (impl Source + ?Sized),
    total: u64,
    tell: Listener<'_>,
) -> Result<(u64, String), Error> {
    let mut digest = Digest::new();
    let mut last: Option<String> = None;
    let revision: Revision = source.revision();
    loop {
        let page = source.page(revision, last.as_deref())?;
        for (key, stored) in &page.items {
            digest.add(key, &stored.value);
        }
        let done = digest.objects;
        tell(News::Progress { step: Step::CheckingStore, done, total: total.max(done) });
        match page.items.into_iter().next_back() {
            Some((key, _)) if page.more => last = Some(key),
            _ => return Ok((digest.objects, digest.hex())),
        }
    }
}

/// A store that is there is refused, unless it is what this import would make: an earlier run may
/// have been interrupted after it had finished.
fn complete(place: &Place, plan: &Plan, tell: Listener<'_>) -> Result<Moved, Error> {
    let mut source = place.source()?;
    let revision = source.revision();
    let same = revision > plan.above
        && source.count() == plan.objects
        && contents(source.as_mut(), plan.objects, tell)? == (plan.objects, plan.digest.clone());
    if same {
        tell(News::Note("everything is there already".to_owned()));
        let Plan { objects, digest, .. } = plan.clone();
        return Ok(Moved { objects, digest, revision, earlier: objects });
    }
    let what = "is not empty; objects are imported only into an empty store".to_owned();
    Err(Error::Refused { path: place.path(), what })
}
