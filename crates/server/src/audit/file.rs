//! The audit log file. It is rotated when full, and old backups are removed; backups are named as
//! by kube-apiserver: `audit-2026-11-15T12-00-00.000.log`.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use time::{Duration, OffsetDateTime, PrimitiveDateTime, UtcOffset};

use crate::limits;
use crate::server::Clock;

/// When to rotate the file, and how long to keep backups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogRotation {
    /// Size in megabytes at which to rotate; 0 means 100, as in Kubernetes.
    pub max_size_mb: u64,
    /// Number of backups to keep; 0 keeps all.
    pub max_backups: usize,
    /// Days to keep backups; 0 keeps them for ever.
    pub max_age_days: u32,
}

impl LogRotation {
    fn max_bytes(self) -> u64 {
        let megabytes = if self.max_size_mb == 0 { 100 } else { self.max_size_mb };
        megabytes.saturating_mul(1024 * 1024)
    }
}

/// An append-only, rotated log file.
pub(super) struct LogFile {
    path: PathBuf,
    rotation: LogRotation,
    max_bytes: u64,
    clock: Clock,
    open: Option<OpenLogFile>,
}

struct OpenLogFile {
    file: File,
    size: u64,
    /// Device and inode, which identify the file even if it was renamed.
    id: (u64, u64),
    /// Pipes and devices have no size and must never be rotated.
    regular: bool,
}

/// Maximum number of bytes of lines written at once.
const PIECE: usize = 1024 * 1024;

const STAMP: &[BorrowedFormatItem<'static>] =
    format_description!("[year]-[month]-[day]T[hour]-[minute]-[second].[subsecond digits:3]");

impl LogFile {
    /// Opens the file, so that an unwritable one is detected at startup.
    pub(super) fn open(path: &Path, rotation: LogRotation, clock: Clock) -> io::Result<LogFile> {
        let max_bytes = rotation.max_bytes();
        let path = std::path::absolute(path)?;
        let mut file = LogFile { path, rotation, max_bytes, clock, open: None };
        file.open_current()?;
        file.prune();
        Ok(file)
    }

    /// Appends lines. Calls `written` with the number of lines that were or were not written, in
    /// order.
    pub(super) fn append<'a>(
        &mut self,
        lines: impl Iterator<Item = &'a [u8]>,
        mut written: impl FnMut(usize, io::Result<()>),
    ) {
        let (mut piece, mut count) = (Vec::new(), 0);
        for line in lines {
            let room = self.room();
            if !piece.is_empty() && (piece.len() + line.len()) as u64 > room.min(PIECE as u64) {
                written(count, self.write(&piece));
                piece.clear();
                count = 0;
            }
            piece.extend_from_slice(line);
            count += 1;
        }
        if count > 0 {
            written(count, self.write(&piece));
        }
    }

    /// Tests whether an event could be written: writes that many bytes and truncates them again.
    /// Only regular files can be tested without a trace.
    pub(super) fn probe(&mut self) -> io::Result<()> {
        let open = self.open_current()?;
        if !open.regular {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let written = open.file.write_all(&[b'\n'; limits::AUDIT_EVENT]);
        open.file.set_len(open.size)?;
        written
    }

    /// Flushes the file to disk (fsync).
    pub(super) fn sync(&self) {
        if let Some(Err(error)) = self.open.as_ref().map(|open| open.file.sync_data()) {
            tracing::error!(%error, "audit log not synced to disk");
        }
    }

    /// Returns the bytes left in the file, or in a new one if it is full.
    fn room(&self) -> u64 {
        let size = self.open.as_ref().map_or(0, |open| open.size);
        if size >= self.max_bytes { self.max_bytes } else { self.max_bytes - size }
    }

    /// Writes a chunk, rotating first if it does not fit; retries once on failure.
    fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        self.try_write(piece).or_else(|_| {
            self.open = None;
            self.try_write(piece)
        })
    }

    fn try_write(&mut self, piece: &[u8]) -> io::Result<()> {
        let size = self.open_current()?.size;
        if size > 0 && size + piece.len() as u64 > self.max_bytes {
            self.rotate()?;
        }
        let open = self.open_current()?;
        match open.file.write_all(piece) {
            Ok(()) => {
                open.size += if open.regular { piece.len() as u64 } else { 0 };
                Ok(())
            }
            Err(error) => {
                // A partial line would corrupt the next one. Truncation may fail as well; nothing
                // more can be done then.
                let _ = open.file.set_len(open.size);
                Err(error)
            }
        }
    }

    /// Returns the file at the path; reopens it if it was moved away.
    fn open_current(&mut self) -> io::Result<&mut OpenLogFile> {
        let there = fs::metadata(&self.path).ok().map(|meta| (meta.dev(), meta.ino()));
        let open = match self.open.take() {
            Some(open) if there == Some(open.id) => open,
            _ => open(&self.path)?,
        };
        Ok(self.open.insert(open))
    }

    /// Renames the file to a backup with the current time.
    fn rotate(&mut self) -> io::Result<()> {
        let mut stamp = (self.clock)().to_offset(UtcOffset::UTC);
        let mut aside = self.backup(stamp);
        while aside.exists() {
            stamp += Duration::MILLISECOND;
            aside = self.backup(stamp);
        }
        self.open = None;
        fs::rename(&self.path, aside)?;
        self.prune();
        Ok(())
    }

    fn backup(&self, stamp: OffsetDateTime) -> PathBuf {
        let (prefix, suffix) = self.affixes();
        let stamp = stamp.format(STAMP).unwrap_or_default();
        self.path.with_file_name(format!("{prefix}{stamp}{suffix}"))
    }

    /// Returns the parts of backup names before and after the time.
    fn affixes(&self) -> (String, String) {
        let text = |part: Option<&OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
        let extension = text(self.path.extension());
        let suffix = if extension.is_empty() { extension } else { format!(".{extension}") };
        (format!("{}-", text(self.path.file_stem())), suffix)
    }

    /// Removes backups that exceed the maximum number or age.
    fn prune(&self) {
        let LogRotation { max_backups, max_age_days, .. } = self.rotation;
        let now = (self.clock)();
        let old =
            |stamp: OffsetDateTime| max_age_days > 0 && now - stamp > Duration::days(max_age_days.into());
        for (number, (stamp, path)) in self.backups().into_iter().enumerate() {
            let surplus = max_backups > 0 && number >= max_backups;
            if (surplus || old(stamp))
                && let Err(error) = fs::remove_file(&path)
            {
                tracing::warn!(%error, path = %path.display(), "old audit log not removed");
            }
        }
    }

    /// Returns the backups, the newest first.
    fn backups(&self) -> Vec<(OffsetDateTime, PathBuf)> {
        let (prefix, suffix) = self.affixes();
        let Some(Ok(entries)) = self.path.parent().map(fs::read_dir) else { return Vec::new() };
        let mut found: Vec<_> = entries
            .filter_map(|entry| {
                let entry = entry.ok()?;
                let name = entry.file_name();
                let stamp = name.to_str()?.strip_prefix(&prefix)?.strip_suffix(&suffix)?;
                let stamp = PrimitiveDateTime::parse(stamp, STAMP).ok()?.assume_utc();
                Some((stamp, entry.path()))
            })
            .collect();
        found.sort_by(|a, b| b.cmp(a));
        found
    }
}

/// Opens a file for appending, readable by its owner only.
fn open(path: &Path) -> io::Result<OpenLogFile> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let mut file = File::options().create(true).append(true).read(true).mode(0o600).open(path)?;
    let meta = file.metadata()?;
    let regular = meta.is_file();
    let mut size = if regular { meta.len() } else { 0 };
    // A line left incomplete by a power failure must not swallow the next one.
    if size > 0 {
        let mut last = [0];
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            file.write_all(b"\n")?;
            size += 1;
        }
    }
    Ok(OpenLogFile { file, size, id: (meta.dev(), meta.ino()), regular })
}

#[cfg(test)]
mod tests;
