//! File names of the certificate store, as kubelet's.

use std::path::{Path, PathBuf};

use time::OffsetDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;

/// kubelet writes local time; UTC has no repeated hour.
const STAMP: &[BorrowedFormatItem<'_>] = format_description!("[year]-[month]-[day]-[hour]-[minute]-[second]");
const STAMP_SHAPE: &str = "0000-00-00-00-00-00";

/// File names of one purpose in the certificate directory.
#[derive(Clone, Debug)]
pub struct CertDirLayout {
    directory: PathBuf,
    prefix: String,
}

impl CertDirLayout {
    pub fn new(directory: &Path, prefix: &str) -> Self {
        Self { directory: directory.to_owned(), prefix: prefix.to_owned() }
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub fn current(&self) -> PathBuf {
        self.file(&format!("{}-current.pem", self.prefix))
    }

    /// Returns the symlink that kubelet renames to the current one.
    pub fn updated(&self) -> PathBuf {
        self.file(&format!("{}-updated.pem", self.prefix))
    }

    pub fn key(&self) -> PathBuf {
        self.file(&format!("{}.key.tmp", self.prefix))
    }

    /// Returns the paths of separate certificate and key files.
    pub fn two_files(&self) -> [PathBuf; 2] {
        ["crt", "key"].map(|kind| self.file(&format!("{}.{kind}", self.prefix)))
    }

    /// Returns an unused name for a certificate stored now.
    pub fn free_name(&self, now: OffsetDateTime, taken: impl Fn(&str) -> bool) -> String {
        let stem = format!("{}-{}", self.prefix, stamp(now));
        let numbered = (2u64..).map(|number| format!("{stem}-{number}.pem"));
        let mut names = std::iter::once(format!("{stem}.pem")).chain(numbered);
        names.find(|name| !taken(name)).unwrap_or_default()
    }

    /// Returns whether this is the name of a certificate file, ours or kubelet's.
    pub fn is_certificate_file(&self, name: &str) -> bool {
        let middle = name
            .strip_prefix(&self.prefix)
            .and_then(|rest| rest.strip_prefix('-'))
            .and_then(|rest| rest.strip_suffix(".pem"));
        let Some((stamp, rest)) = middle.and_then(|m| m.split_at_checked(STAMP_SHAPE.len())) else {
            return false;
        };
        let alike = |(found, shape): (char, char)| match shape {
            '0' => found.is_ascii_digit(),
            _ => found == shape,
        };
        let number = |rest: &str| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit());
        stamp.chars().zip(STAMP_SHAPE.chars()).all(alike)
            && (rest.is_empty() || rest.strip_prefix('-').is_some_and(number))
    }
}

/// Returns the path that a broken file is renamed to.
pub fn aside(path: &Path, now: OffsetDateTime) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".corrupt-{}", stamp(now)));
    path.with_file_name(name)
}

fn stamp(now: OffsetDateTime) -> String {
    now.to_offset(time::UtcOffset::UTC).format(STAMP).unwrap_or_else(|_| STAMP_SHAPE.into())
}
