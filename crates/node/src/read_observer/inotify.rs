//! Watches of files with inotify.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::fs::{FsWord, statfs};
use rustix::io::Errno;

/// File systems whose files other machines may open, of which this kernel sees nothing: 9P, AFS, Ceph, CIFS, NFS, SMB.
const NETWORK_FILE_SYSTEMS: [FsWord; 7] =
    [0x0102_1997, 0x5346_414f, 0x00c3_6400, 0xff53_4d42, 0x6969, 0x517b, 0xfe53_4d42];
/// Enough for dozens of events without names; more are read in the next round.
const BUFFER_BYTES: usize = 4096;

/// ID of a watch within its instance.
pub type WatchDescriptor = i32;

/// What happened to a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// The file was opened.
    Opened(WatchDescriptor),
    /// The watch is gone, because the file is.
    Removed(WatchDescriptor),
}

/// An inotify instance of this process.
pub struct InotifyInstance(OwnedFd);

impl InotifyInstance {
    pub fn new() -> io::Result<Self> {
        Ok(Self(inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?))
    }

    /// Watches opens of a file. Fails for a symlink, on network file systems, and if the limit of the user is reached.
    pub fn watch(&self, file: &Path) -> io::Result<WatchDescriptor> {
        let parent = file.parent().unwrap_or(Path::new("/"));
        if NETWORK_FILE_SYSTEMS.contains(&statfs(parent)?.f_type) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        // The kernel merges events of the same kind that follow each other. With an event between two opens, both are seen.
        let flags = WatchFlags::OPEN | WatchFlags::CLOSE_NOWRITE | WatchFlags::DONT_FOLLOW;
        Ok(inotify::add_watch(&self.0, file, flags)?)
    }

    /// Removes a watch. It may be gone already, with its file.
    pub fn unwatch(&self, descriptor: WatchDescriptor) {
        let _ = inotify::remove_watch(&self.0, descriptor);
    }

    /// Returns the events that have not been read yet.
    pub fn drain(&self) -> Vec<WatchEvent> {
        let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
        let mut reader = Reader::new(&self.0, &mut buffer);
        let mut events = Vec::new();
        loop {
            match reader.next() {
                Ok(event) if event.events().contains(ReadFlags::IGNORED) => {
                    events.push(WatchEvent::Removed(event.wd()));
                }
                Ok(event) if event.events().contains(ReadFlags::OPEN) => {
                    events.push(WatchEvent::Opened(event.wd()));
                }
                // Closes. An overflow of the queue loses opens, so that files seem not to be read.
                Ok(_) => {}
                Err(Errno::INTR) => {}
                Err(_) => return events,
            }
        }
    }
}
