//! Writing a store into a file.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FlockOperation, flock};
use windlass_safe_path::{open_parent, private};

use super::format::{End, Header, Next, Reader, Sums, line};
use super::{Listener, Moved, News, Place, Source, Step};
use crate::embedded::{io_error, partial, refuse_untrusted};
use crate::{Error, Revision};

/// How often an export begins again because the revision it reads was compacted.
const TRIES: usize = 3;

/// Writes all objects of a store, as they are at one revision, into a file. Servers may be using
/// the store.
///
/// Until everything is written the file has `.partial` at the end of its name; an export that
/// finds such a file goes on with it, if its revision can still be read. The file is for its owner
/// only, because objects hold secrets: one that somebody else may have prepared is refused, and so is
/// a directory in which others can replace it.
pub fn export(place: &Place, file: &Path, tell: Listener<'_>) -> Result<Moved, Error> {
    if file.try_exists().map_err(|e| io_error(file, &e))? {
        return Err(Error::Refused { path: file.to_owned(), what: "exists already".to_owned() });
    }
    refuse_untrusted(file)?;
    let mut source = place.source()?;
    let mut writing = Writing::open(&partial(file))?;
    let mut state = writing.resume(source.as_mut(), tell)?;
    let mut tries = 1;
    loop {
        let mut done = match state.take() {
            Some(state) => state,
            None => writing.begin(source.as_mut())?,
        };
        match writing.objects(&mut done, source.as_mut(), tell) {
            Ok(()) => return writing.finish(done, file),
            Err(Error::Compacted { .. }) if tries < TRIES => {
                tries += 1;
                let at = done.revision;
                tell(News::Note(format!("revision {at} was compacted; beginning again")));
                // Only a store that is opened anew knows where it is now.
                source = place.source()?;
            }
            Err(error) => return Err(error),
        }
    }
}

/// The file that is not complete.
struct Writing {
    path: PathBuf,
    directory: OwnedFd,
    /// Its name in the directory.
    name: OsString,
    file: File,
}

/// What is written already.
struct Done {
    revision: Revision,
    sums: Sums,
    last: Option<String>,
    earlier: u64,
}

impl Writing {
    fn open(path: &Path) -> Result<Self, Error> {
        let on = |error: std::io::Error| io_error(path, &error);
        let refuse = |what: String| Error::Refused { path: path.to_owned(), what };
        let (directory, name) = open_parent(path).map_err(on)?;
        let file = match private::open_at(&directory, name.as_ref()) {
            // The system has no number for what is wrong with the file itself.
            Err(error) if error.raw_os_error().is_none() => {
                return Err(refuse(format!("cannot be used: {error}; remove it")));
            }
            opened => opened.map_err(on)?,
        };
        flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| refuse("is being written by another process".to_owned()))?;
        // Whoever had the lock may have finished, and given the file its name.
        let there = rustix::fs::statat(&directory, &name, AtFlags::SYMLINK_NOFOLLOW);
        let inode = file.metadata().map_err(on)?.ino();
        if there.map_err(|error| on(error.into()))?.st_ino == inode {
            Ok(Self { path: path.to_owned(), directory, name, file })
        } else {
            Err(refuse("was being written by another process".to_owned()))
        }
    }

    /// Finds out what of an earlier export can be kept.
    fn resume(
        &mut self,
        source: &mut dyn Source,
        tell: Listener<'_>,
    ) -> Result<Option<Done>, Error> {
        if self.on(self.file.metadata())?.len() == 0 {
            return Ok(None);
        }
        let path = self.path.display().to_string();
        let mut again = |why: &str| {
            tell(News::Note(format!("{path} is not continued: {why}; beginning again")));
            Ok(None)
        };
        let copy = self.on(self.file.try_clone())?;
        let Ok(mut reader) = Reader::new(&self.path, copy) else {
            return again("it has no readable beginning");
        };
        let revision = reader.header.revision;
        let (engine, store) = source.origin();
        if reader.header != Header::new(engine, store, revision) {
            return again("it is of another store");
        }
        if revision > source.revision() {
            return again("its revision has not happened in this store");
        }
        if let Err(error) = source.page(revision, None) {
            let Error::Compacted { .. } = error else { return Err(error) };
            return again(&format!("its revision {revision} was compacted"));
        }
        // The last line may be half there, and after a power loss more may be missing.
        let mut kept = reader.read;
        while let Ok(Next::Object { .. }) = reader.next() {
            kept = reader.read;
        }
        Ok(Some(self.keep(revision, kept)?))
    }

    /// Keeps the first bytes, which are known to be whole lines, and cuts off the rest.
    fn keep(&mut self, revision: Revision, kept: u64) -> Result<Done, Error> {
        self.on(self.file.set_len(kept))?;
        self.on((&self.file).seek(SeekFrom::Start(0)))?;
        let mut reader = Reader::new(&self.path, self.on(self.file.try_clone())?)?;
        while reader.read < kept {
            reader.next()?;
        }
        self.on((&self.file).seek(SeekFrom::Start(kept)))?;
        let (sums, last) = reader.into_sums();
        let earlier = sums.contents.objects;
        Ok(Done { revision, sums, last, earlier })
    }

    /// Begins with an empty file, at the newest revision.
    fn begin(&mut self, source: &mut dyn Source) -> Result<Done, Error> {
        self.on(self.file.set_len(0))?;
        self.on((&self.file).seek(SeekFrom::Start(0)))?;
        let revision = source.revision();
        let (engine, store) = source.origin();
        let line = Header::new(engine, store, revision).line();
        let mut sums = Sums::new();
        sums.header(&line);
        self.on((&self.file).write_all(line.as_bytes()))?;
        Ok(Done { revision, sums, last: None, earlier: 0 })
    }

    /// Writes all objects that are not written yet.
    fn objects(
        &self,
        done: &mut Done,
        source: &mut dyn Source,
        tell: Listener<'_>,
    ) -> Result<(), Error> {
        let mut out = BufWriter::with_capacity(1 << 20, &self.file);
        loop {
            let page = source.page(done.revision, done.last.as_deref())?;
            for (key, stored) in &page.items {
                let line = line(key, stored);
                done.sums.object(&line, key, &stored.value);
                self.on(out.write_all(line.as_bytes()))?;
            }
            if let Some((key, _)) = page.items.into_iter().next_back() {
                done.last = Some(key);
            }
            let written = done.sums.contents.objects;
            let total = source.count().max(written);
            tell(News::Progress { step: Step::Exporting, done: written, total });
            if !page.more {
                return self.on(out.flush());
            }
        }
    }

    /// Writes the end, and gives the file its name.
    fn finish(self, done: Done, name: &Path) -> Result<Moved, Error> {
        let Done { revision, sums, earlier, .. } = done;
        let (End { objects, contents, .. }, line) = sums.end();
        self.on((&self.file).write_all(line.as_bytes()))?;
        self.on(self.file.sync_all())?;
        let last = name.file_name().unwrap_or_default();
        let renamed = rustix::fs::renameat(&self.directory, &self.name, &self.directory, last);
        renamed.map_err(|error| io_error(name, &error.into()))?;
        self.on(windlass_safe_path::sync(&self.directory))?;
        Ok(Moved { objects, digest: contents, revision, earlier })
    }

    fn on<T>(&self, result: std::io::Result<T>) -> Result<T, Error> {
        result.map_err(|error| io_error(&self.path, &error))
    }
}
