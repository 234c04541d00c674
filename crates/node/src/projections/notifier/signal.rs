//! Sends a signal to the process whose PID is in a file.
//!
//! PID files often belong to the application itself. To prevent abuse, a file that belongs neither
//! to root nor to our own user may only name processes of its owner. Symlinks of other users in its
//! path are not followed.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, geteuid, getpid, kill_process, pidfd_open, pidfd_send_signal,
};

/// Bytes of a PID and its newline; the rest is not read.
const MAX_PID_FILE: u64 = 32;

/// Sends a signal. It has been delivered on return; the application's reaction is unknown.
pub fn send(signal: Signal, pid_file: &Path) -> Result<(), String> {
    let cannot = |error: std::io::Error| format!("cannot read {}: {error}", pid_file.display());
    let mut file = open(pid_file).map_err(cannot)?;
    let seen = file.metadata().map_err(cannot)?;
    if !seen.is_file() {
        return Err(format!("{} is not a file", pid_file.display()));
    }
    let mut text = String::new();
    file.by_ref().take(MAX_PID_FILE).read_to_string(&mut text).map_err(cannot)?;
    let pid = parse_pid(&text).map_err(|why| format!("{}: {why}", pid_file.display()))?;
    let raw = pid.as_raw_nonzero();
    // Opened before the owner check, because the PID may be reused before the signal is sent.
    let handle = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(handle) => Some(handle),
        Err(Errno::SRCH) => return Err(format!("process {raw} does not exist")),
        // Old kernels and seccomp filters reject the call.
        Err(_) => None,
    };
    let process = fs::metadata(format!("/proc/{raw}"));
    let process = process.map_err(|_| format!("process {raw} does not exist"))?;
    let users = (seen.uid(), process.uid());
    if !may_name(users, geteuid().as_raw()) {
        let (file, process) = users;
        return Err(format!(
            "process {raw} runs as user {process}, but {} belongs to user {file}",
            pid_file.display()
        ));
    }
    let sent = match handle {
        Some(handle) => pidfd_send_signal(handle, signal),
        None => kill_process(pid, signal),
    };
    sent.map_err(|error| format!("process {raw}: {error}"))
}

/// Opens a file without following a symlink, which may lead to another user's file, and without
/// blocking on a pipe.
fn open(path: &Path) -> std::io::Result<File> {
    let (directory, name) = windlass_safe_path::open_parent(path)?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::openat(directory, name, flags, Mode::empty())?))
}

/// Parses a PID that may be signalled: not a process group, not PID 1, not our own.
fn parse_pid(text: &str) -> Result<Pid, String> {
    let text = text.trim();
    let number = text.parse::<i32>().ok().filter(|number| *number > 0);
    let number = number.ok_or_else(|| format!("{text:?} is not a process ID"))?;
    match Pid::from_raw(number) {
        None | Some(Pid::INIT) => Err(format!("refusing to signal process {number}")),
        Some(pid) if pid == getpid() => Err(format!("process {number} is this agent")),
        Some(pid) => Ok(pid),
    }
}

/// Returns whether a file of one user may name a process of another.
fn may_name((file, process): (u32, u32), own: u32) -> bool {
    file == 0 || file == own || file == process
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_number_of_another_process_is_taken() {
        assert_eq!(parse_pid(" 4321\n").map(Pid::as_raw_nonzero).map(i32::from), Ok(4321));
        let own = getpid().as_raw_nonzero().to_string();
        for text in ["", "\n", "0", "-1", "-4321", "1", "12 34", "0x10", "web", &own] {
            assert!(parse_pid(text).is_err(), "{text:?} was taken");
        }
    }

    #[test]
    fn files_of_others_name_their_own_processes_only() {
        let cases = [
            ((0, 1000), 0, true),
            ((1000, 1000), 0, true),
            ((1000, 0), 0, false),
            ((1000, 1001), 0, false),
            ((500, 1000), 500, true),
            ((1000, 500), 500, false),
        ];
        for (users, own, may) in cases {
            assert_eq!(may_name(users, own), may, "{users:?} as {own}");
        }
    }

    #[test]
    fn links_and_pipes_are_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("pid"), dir.path().join("link"));
        std::fs::write(&file, "999999999\n").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let error = send(Signal::HUP, &link).unwrap_err();
        assert!(error.starts_with("cannot read"), "{error}");
        assert!(send(Signal::HUP, &file).unwrap_err().contains("process 999999999 does not exist"));
        assert!(send(Signal::HUP, dir.path()).unwrap_err().ends_with("is not a file"));
    }

    #[test]
    fn directories_that_others_replace_by_links_are_not_read() {
        if !geteuid().is_root() {
            // Only root can create a directory of another user.
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let (home, run) = (dir.path().join("home"), dir.path().join("run"));
        std::fs::create_dir(&home).unwrap();
        std::fs::create_dir(&run).unwrap();
        std::fs::write(run.join("pid"), "999999999\n").unwrap();
        std::os::unix::fs::symlink(&run, home.join("run")).unwrap();
        assert!(
            send(Signal::HUP, &home.join("run/pid"))
                .unwrap_err()
                .contains("process 999999999 does not exist")
        );
        std::os::unix::fs::lchown(&home, Some(65534), Some(65534)).unwrap();
        let error = send(Signal::HUP, &home.join("run/pid")).unwrap_err();
        assert!(error.contains("refusing to follow the symlink"), "{error}");
    }
}
