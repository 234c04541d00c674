//! Export of a store to a file.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FlockOperation, flock};
use windlass_safe_path::{open_parent, private};

use super::format::{ExportChecksums, ExportHeader, ExportItem, ExportReader, ExportTrailer, encode_object};
use super::{
    MigrationEvent, MigrationListener, MigrationSource, MigrationStep, MigrationSummary, StoreLocation,
};
use crate::file_output::{io_error, partial_path, refuse_untrusted};
use crate::{Error, Revision};

/// Maximum attempts of an export whose revision is compacted while it reads.
const TRIES: usize = 3;

/// Writes all objects of a store at one revision into a file. Servers may be using the store.
///
/// Until it is complete, the file's name ends in `.partial`; an export that finds such a file
/// resumes it, if its revision can still be read. Only the owner can access the file, because
/// objects contain secrets: a file that another user may have prepared is rejected, and so is a
/// directory in which others can replace it.
pub fn export(
    place: &StoreLocation,
    file: &Path,
    report: MigrationListener<'_>,
) -> Result<MigrationSummary, Error> {
    if file.try_exists().map_err(|e| io_error(file, &e))? {
        return Err(Error::Refused { path: file.to_owned(), what: "exists already".to_owned() });
    }
    refuse_untrusted(file)?;
    let mut source = place.source()?;
    let mut writing = PartialExport::open(&partial_path(file))?;
    let mut state = writing.resume(source.as_mut(), report)?;
    let mut tries = 1;
    loop {
        let mut done = match state.take() {
            Some(state) => state,
            None => writing.start(source.as_mut())?,
        };
        match writing.write_objects(&mut done, source.as_mut(), report) {
            Ok(()) => return writing.finish(done, file),
            Err(Error::Compacted { .. }) if tries < TRIES => {
                tries += 1;
                let at = done.revision;
                report(MigrationEvent::Note(format!("revision {at} was compacted; starting over")));
                // Only a newly opened store knows its current revision.
                source = place.source()?;
            }
            Err(error) => return Err(error),
        }
    }
}

/// The export file until it is complete.
struct PartialExport {
    path: PathBuf,
    directory: OwnedFd,
    /// File name within the directory.
    name: OsString,
    file: File,
}

struct ExportProgress {
    revision: Revision,
    sums: ExportChecksums,
    last: Option<String>,
    earlier: u64,
}

impl PartialExport {
    fn open(path: &Path) -> Result<Self, Error> {
        let on = |error: std::io::Error| io_error(path, &error);
        let refuse = |what: String| Error::Refused { path: path.to_owned(), what };
        let (directory, name) = open_parent(path).map_err(on)?;
        let file = match private::open_at(&directory, name.as_ref()) {
            // Errors about the file itself have no OS error code.
            Err(error) if error.raw_os_error().is_none() => {
                return Err(refuse(format!("cannot be used: {error}; remove it")));
            }
            opened => opened.map_err(on)?,
        };
        flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| refuse("is being written by another process".to_owned()))?;
        // The previous lock holder may have finished and renamed the file.
        let there = rustix::fs::statat(&directory, &name, AtFlags::SYMLINK_NOFOLLOW);
        let inode = file.metadata().map_err(on)?.ino();
        if there.map_err(|error| on(error.into()))?.st_ino == inode {
            Ok(Self { path: path.to_owned(), directory, name, file })
        } else {
            Err(refuse("was being written by another process".to_owned()))
        }
    }

    /// Determines how much of an earlier export can be kept.
    fn resume(
        &mut self,
        source: &mut dyn MigrationSource,
        report: MigrationListener<'_>,
    ) -> Result<Option<ExportProgress>, Error> {
        if self.with_path(self.file.metadata())?.len() == 0 {
            return Ok(None);
        }
        let path = self.path.display().to_string();
        let mut again = |why: &str| {
            report(MigrationEvent::Note(format!("{path} cannot be resumed: {why}; starting over")));
            Ok(None)
        };
        let copy = self.with_path(self.file.try_clone())?;
        let Ok(mut reader) = ExportReader::new(&self.path, copy) else {
            return again("its header is unreadable");
        };
        let revision = reader.header.revision;
        let (engine, store) = source.origin();
        if reader.header != ExportHeader::new(engine, store, revision) {
            return again("it belongs to another store");
        }
        if revision > source.revision() {
            return again("its revision is in the future of this store");
        }
        if let Err(error) = source.page(revision, None) {
            let Error::Compacted { .. } = error else { return Err(error) };
            return again(&format!("its revision {revision} was compacted"));
        }
        // The last line may be incomplete, and after a power loss more may be missing.
        let mut kept = reader.read;
        while let Ok(ExportItem::Object { .. }) = reader.next() {
            kept = reader.read;
        }
        Ok(Some(self.truncate_to(revision, kept)?))
    }

    /// Keeps the first bytes, which are complete lines, and truncates the rest.
    fn truncate_to(&mut self, revision: Revision, kept: u64) -> Result<ExportProgress, Error> {
        self.with_path(self.file.set_len(kept))?;
        self.with_path((&self.file).seek(SeekFrom::Start(0)))?;
        let mut reader = ExportReader::new(&self.path, self.with_path(self.file.try_clone())?)?;
        while reader.read < kept {
            reader.next()?;
        }
        self.with_path((&self.file).seek(SeekFrom::Start(kept)))?;
        let (sums, last) = reader.into_sums();
        let earlier = sums.contents.objects;
        Ok(ExportProgress { revision, sums, last, earlier })
    }

    /// Starts with an empty file, at the newest revision.
    fn start(&mut self, source: &mut dyn MigrationSource) -> Result<ExportProgress, Error> {
        self.with_path(self.file.set_len(0))?;
        self.with_path((&self.file).seek(SeekFrom::Start(0)))?;
        let revision = source.revision();
        let (engine, store) = source.origin();
        let line = ExportHeader::new(engine, store, revision).encode();
        let mut sums = ExportChecksums::new();
        sums.add_header(&line);
        self.with_path((&self.file).write_all(line.as_bytes()))?;
        Ok(ExportProgress { revision, sums, last: None, earlier: 0 })
    }

    /// Writes all objects that are not written yet.
    fn write_objects(
        &self,
        done: &mut ExportProgress,
        source: &mut dyn MigrationSource,
        report: MigrationListener<'_>,
    ) -> Result<(), Error> {
        let mut out = BufWriter::with_capacity(1 << 20, &self.file);
        loop {
            let page = source.page(done.revision, done.last.as_deref())?;
            for (key, stored) in &page.items {
                let line = encode_object(key, stored);
                done.sums.add_object(&line, key, &stored.value);
                self.with_path(out.write_all(line.as_bytes()))?;
            }
            if let Some((key, _)) = page.items.into_iter().next_back() {
                done.last = Some(key);
            }
            let written = done.sums.contents.objects;
            let total = source.count().max(written);
            report(MigrationEvent::Progress { step: MigrationStep::Exporting, done: written, total });
            if !page.more {
                return self.with_path(out.flush());
            }
        }
    }

    /// Writes the trailer, and renames the file.
    fn finish(self, done: ExportProgress, name: &Path) -> Result<MigrationSummary, Error> {
        let ExportProgress { revision, sums, earlier, .. } = done;
        let (ExportTrailer { objects, contents, .. }, line) = sums.finish();
        self.with_path((&self.file).write_all(line.as_bytes()))?;
        self.with_path(self.file.sync_all())?;
        let last = name.file_name().unwrap_or_default();
        let renamed = rustix::fs::renameat(&self.directory, &self.name, &self.directory, last);
        renamed.map_err(|error| io_error(name, &error.into()))?;
        self.with_path(windlass_safe_path::sync(&self.directory))?;
        Ok(MigrationSummary { objects, digest: contents, revision, earlier })
    }

    fn with_path<T>(&self, result: std::io::Result<T>) -> Result<T, Error> {
        result.map_err(|error| io_error(&self.path, &error))
    }
}
