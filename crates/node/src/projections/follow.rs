//! Reads a file of projections again when it changes, and when a password does that it names.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::watch;

use super::{Projections, ProjectionsError, read};
use crate::files::Files;

/// How often files are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// How long a file has to stay as it is before it is read: whoever writes it may not be done.
const SETTLE: Duration = Duration::from_millis(100);

/// Reads it again whenever it changes. One that is wrong changes nothing; what is wrong with it is said
/// while it is. Does not end.
pub async fn follow(
    path: PathBuf,
    files: Files,
    out: watch::Sender<Projections>,
    problem: watch::Sender<Option<String>>,
) {
    let mut follower = Follower { path, files, last: Vec::new(), again: true };
    loop {
        // A panic in there is caught by the runtime, and the next round tries again.
        let looked = tokio::task::spawn_blocking({
            let (follower, current) = (follower.clone(), out.borrow().clone());
            move || follower.look(&current)
        });
        let pause = match looked.await {
            Ok((next, Look::Same)) => {
                follower = next;
                LOOK
            }
            Ok((next, Look::Changing)) => {
                follower = next;
                SETTLE
            }
            Ok((next, Look::Read(result))) => {
                follower = next;
                publish(result, &out, &problem);
                LOOK
            }
            Err(error) => {
                tracing::error!(%error, "looking at the file of projections");
                LOOK
            }
        };
        tokio::time::sleep(pause).await;
    }
}

fn publish(
    result: Result<Projections, ProjectionsError>,
    out: &watch::Sender<Projections>,
    problem: &watch::Sender<Option<String>>,
) {
    let (projections, trouble) = match result {
        Ok(projections) => (Some(projections), None),
        Err(error) => (None, Some(error.to_string())),
    };
    problem.send_if_modified(|known| {
        let is_new = *known != trouble;
        if is_new {
            match &trouble {
                Some(text) => tracing::error!("projections stay as they were: {text}"),
                None => tracing::info!("the file of projections is right again"),
            }
            *known = trouble;
        }
        is_new
    });
    out.send_if_modified(|known| match projections {
        Some(projections) if *known != projections => {
            *known = projections;
            true
        }
        _ => false,
    });
}

/// What was seen of a file when it was last looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    inode: (u64, u64),
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

#[derive(Clone)]
struct Follower {
    path: PathBuf,
    files: Files,
    last: Vec<Option<Stamp>>,
    /// Whether the files are to be read although they look the same: a clock that is too coarse does
    /// not tell two writes from each other.
    again: bool,
}

enum Look {
    Same,
    /// They changed; whether they still do is seen in a moment.
    Changing,
    Read(Result<Projections, ProjectionsError>),
}

impl Follower {
    fn look(mut self, current: &Projections) -> (Self, Look) {
        let now = self.stamps(current);
        // At the start there is nothing to compare with.
        let is_first = self.last.is_empty();
        if now != self.last {
            (self.last, self.again) = (now, true);
            if !is_first {
                return (self, Look::Changing);
            }
        }
        if !self.again {
            return (self, Look::Same);
        }
        let result = read(&self.path, &self.files);
        // What was read may name other passwords than before.
        let after = self.stamps(result.as_ref().unwrap_or(current));
        self.again = is_first || after != self.last;
        self.last = after;
        (self, Look::Read(result))
    }

    /// The file, then those of passwords.
    fn stamps(&self, projections: &Projections) -> Vec<Option<Stamp>> {
        let stores = projections.iter().flat_map(|projection| &projection.stores);
        let passwords = stores.filter_map(|store| store.kind.passphrase()?.file());
        std::iter::once(self.path.as_path()).chain(passwords).map(stamp).collect()
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let seen = fs::metadata(path).ok()?;
    Some(Stamp {
        inode: (seen.dev(), seen.ino()),
        size: seen.size(),
        modified: (seen.mtime(), seen.mtime_nsec()),
        changed: (seen.ctime(), seen.ctime_nsec()),
    })
}

#[cfg(test)]
mod tests;
