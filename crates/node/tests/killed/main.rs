//! A process that is killed at every step of writing a volume, with a concurrent reader: it sees
//! only complete old or new content, and a key always matches its certificate.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, fixtures included")]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use rustix::process::{Signal, getpid, kill_process};
use time::OffsetDateTime;
use windlass_node::volume::path::VolumePath;
use windlass_node::volume::payload::{PayloadFile, VolumePayload};
use windlass_node::volume::writer::{VolumeWriter, WriteOutcome};
use windlass_runtime::durable::FileSystem;

/// Environment variable with which this program starts itself as the child to be killed: the
/// volume, the directory to write, and the step.
const CHILD: &str = "WINDLASS_KILLED_CHILD";
const RUNS: usize = 500;
const NAMES: [&str; 4] = ["ca.pem", "credentials.pem", "pair/tls.crt", "pair/tls.key"];

/// Creates keys with their certificates, each pair in its own directory.
fn create_sets(folder: &Path, count: usize) {
    for number in 0..count {
        let pair = windlass_testkit::self_signed_ca(&format!("set {number}"));
        let (chain, key) = (pair.certificate().to_pem(), pair.key().to_pem().unwrap());
        let set = folder.join(number.to_string());
        fs::create_dir_all(set.join("pair")).unwrap();
        let contents = [chain.clone(), format!("{}{chain}", &*key), chain, key.to_string()];
        for (name, contents) in NAMES.iter().zip(contents) {
            fs::write(set.join(name), contents).unwrap();
        }
    }
}

fn payload(set: &Path) -> VolumePayload {
    let mut payload = VolumePayload::new(None);
    for name in NAMES {
        let file = PayloadFile::new(fs::read(set.join(name)).unwrap(), 0o600);
        payload.add(VolumePath::parse(name).unwrap(), file).unwrap();
    }
    payload
}

/// Reads all files of a directory; `None` if it is gone.
fn contents(directory: &Path) -> Option<Vec<Vec<u8>>> {
    NAMES.iter().map(|name| fs::read(directory.join(name)).ok()).collect()
}

/// Runs the child: writes one set, and aborts after this many operations.
fn write_and_die(reported: &str) {
    let [volume, set, step] = reported.split('\n').collect::<Vec<_>>()[..] else { panic!("{reported}") };
    let (step, done) = (step.parse::<usize>().unwrap(), AtomicUsize::new(0));
    let files = FileSystem::with_hook(Arc::new(move |_, _| {
        if done.fetch_add(1, SeqCst) == step {
            kill_process(getpid(), Signal::KILL).unwrap();
        }
        Ok(())
    }));
    VolumeWriter::new(Path::new(volume), files)
        .write(&payload(Path::new(set)), OffsetDateTime::now_utc())
        .unwrap();
}

/// Runs the child. Returns whether it was killed before the write was complete.
fn run_killed_child(volume: &Path, set: &Path, step: usize) -> bool {
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "readers_see_the_complete_old_or_new_files"])
        .env(CHILD, format!("{}\n{}\n{step}", volume.display(), set.display()))
        .stdout(Stdio::null())
        .stdin(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success() || status.signal() == Some(9), "{status}");
    !status.success()
}

/// Reads until told to stop. Returns how often it saw a complete set.
fn read(volume: &Path, sets: &BTreeSet<Vec<Vec<u8>>>, wanted: &AtomicBool) -> usize {
    let mut seen = 0;
    while wanted.load(SeqCst) {
        let Ok(target) = fs::read_link(volume.join("..data")) else { continue };
        // The directory may be removed while it is read; then there is a newer one.
        if let Some(found) = contents(&volume.join(&target)) {
            assert!(sets.contains(&found), "{} has a mixture", target.display());
            seen += 1;
        }
        let one = fs::read(volume.join("credentials.pem")).unwrap();
        assert!(sets.iter().any(|set| set[1] == one), "a file is not whole");
    }
    seen
}

fn names(volume: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(volume).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn readers_see_the_complete_old_or_new_files() {
    if let Ok(reported) = std::env::var(CHILD) {
        return write_and_die(&reported);
    }
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("sets");
    create_sets(&folder, 3);
    let set = |number: usize| -> PathBuf { folder.join((number % 3).to_string()) };
    let sets = (0..3).map(|number| contents(&set(number)).unwrap()).collect::<BTreeSet<_>>();
    let volume = place.path().join("volume");
    let writer = VolumeWriter::new(&volume, FileSystem::default());
    writer.write(&payload(&set(0)), OffsetDateTime::now_utc()).unwrap();

    let wanted = AtomicBool::new(true);
    let (mut killed, mut step) = (0, 0);
    let seen = std::thread::scope(|scope| {
        let reader = scope.spawn(|| read(&volume, &sets, &wanted));
        for run in 1..=RUNS {
            let before = contents(&volume.join("..data")).unwrap();
            let (dead, new) = (run_killed_child(&volume, &set(run), step), contents(&set(run)).unwrap());
            let found = contents(&volume.join("..data")).unwrap();
            assert!(found == before || found == new, "step {step}");
            assert!(dead || found == new);
            // After the last step there is no operation left to be killed at.
            (killed, step) = if dead { (killed + 1, step + 1) } else { (killed, 0) };
            // The next process finds it, and leaves nothing else there.
            let written = writer.write(&payload(&set(run)), OffsetDateTime::now_utc()).unwrap();
            assert_eq!(written == WriteOutcome::Unchanged, found == new, "step {step}");
            let target = fs::read_link(volume.join("..data")).unwrap();
            let target = target.to_str().unwrap().to_owned();
            let all = ["..data", "ca.pem", "credentials.pem", "pair"].map(str::to_owned);
            assert_eq!(names(&volume), all.into_iter().chain([target]).collect(), "step {step}");
        }
        wanted.store(false, SeqCst);
        reader.join().unwrap()
    });
    assert!(killed > RUNS * 9 / 10, "only {killed} of {RUNS} were killed");
    assert!(seen > RUNS, "only {seen} were read");
}
