use std::sync::{Arc, Mutex};

use super::*;

/// A log file in a temporary directory, with a stopped clock and a tiny size limit.
struct LogFileFixture {
    dir: tempfile::TempDir,
    now: Arc<Mutex<OffsetDateTime>>,
}

impl LogFileFixture {
    fn new() -> LogFileFixture {
        let now = time::macros::datetime!(2026-11-15 12:00 UTC);
        LogFileFixture { dir: tempfile::tempdir().unwrap(), now: Arc::new(Mutex::new(now)) }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("audit.log")
    }

    fn open(&self, max_bytes: u64, rotation: LogRotation) -> LogFile {
        let now = self.now.clone();
        let clock: Clock = Arc::new(move || *now.lock().unwrap());
        let mut file = LogFile::open(&self.path(), rotation, clock).unwrap();
        file.max_bytes = max_bytes;
        file
    }

    fn pass(&self, time: Duration) {
        *self.now.lock().unwrap() += time;
    }

    /// Returns the file names in order.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    /// Returns all lines written, the oldest first.
    fn text(&self) -> String {
        let read = |name: &String| fs::read_to_string(self.dir.path().join(name)).unwrap();
        self.names().iter().map(read).collect()
    }
}

#[track_caller]
fn append(file: &mut LogFile, lines: &[&str]) {
    let (lost, error) = append_all(file, lines);
    assert!(error.is_none(), "{lost} lines: {error:?}");
}

/// Returns the number of lines that could not be written and the last error.
fn append_all(file: &mut LogFile, lines: &[&str]) -> (usize, Option<io::Error>) {
    let (mut reported, mut lost, mut last) = (0, 0, None);
    file.append(lines.iter().map(|line| line.as_bytes()), |count, written| {
        reported += count;
        if let Err(error) = written {
            lost += count;
            last = Some(error);
        }
    });
    assert_eq!(reported, lines.len(), "every line is accounted for");
    (lost, last)
}

#[test]
fn full_files_are_rotated_with_a_timestamp() {
    let bench = LogFileFixture::new();
    let mut file = bench.open(10, LogRotation::default());
    append(&mut file, &["one1\n", "two2\n"]);
    assert_eq!(bench.names(), ["audit.log"]);
    append(&mut file, &["tri3\n"]);
    assert_eq!(bench.names(), ["audit-2026-11-15T12-00-00.000.log", "audit.log"]);
    bench.pass(Duration::milliseconds(1500));
    append(&mut file, &["4\n", "a line that is longer than any file\n", "5\n"]);
    assert_eq!(
        bench.names(),
        [
            "audit-2026-11-15T12-00-00.000.log",
            "audit-2026-11-15T12-00-01.500.log",
            "audit-2026-11-15T12-00-01.501.log",
            "audit.log"
        ]
    );
    let all = "one1\ntwo2\ntri3\n4\na line that is longer than any file\n5\n";
    assert_eq!(bench.text(), all);
}

#[test]
fn no_line_is_lost_or_cut_whatever_the_sizes() {
    let bench = LogFileFixture::new();
    let mut file = bench.open(300, LogRotation::default());
    let lines: Vec<String> = (0..500).map(|n| format!("{n:05}{}\n", "x".repeat(n % 97))).collect();
    for batch in lines.chunks(7) {
        append(&mut file, &batch.iter().map(String::as_str).collect::<Vec<_>>());
        bench.pass(Duration::SECOND);
    }
    assert_eq!(bench.text(), lines.concat());
    for name in bench.names() {
        let size = fs::metadata(bench.dir.path().join(&name)).unwrap().len();
        assert!(size <= 300, "{name}: {size}");
    }
}

#[test]
fn as_many_are_kept_as_wanted() {
    let bench = LogFileFixture::new();
    fs::write(bench.dir.path().join("audit-notes.log"), "not ours\n").unwrap();
    let mut file = bench.open(5, LogRotation { max_backups: 2, ..LogRotation::default() });
    for number in 0..6 {
        append(&mut file, &[&format!("{number}\n"), "...\n"]);
        bench.pass(Duration::MINUTE);
    }
    let names = bench.names();
    assert_eq!(names.len(), 4, "{names:?}");
    assert!(names.contains(&"audit-notes.log".to_owned()));
}

#[test]
fn old_entries_are_removed() {
    let bench = LogFileFixture::new();
    let rotation = LogRotation { max_age_days: 2, ..LogRotation::default() };
    let mut file = bench.open(5, rotation);
    append(&mut file, &["first\n"]);
    append(&mut file, &["second\n"]);
    bench.pass(Duration::days(2));
    append(&mut file, &["third\n"]);
    assert_eq!(bench.names().len(), 3, "two days are not over two days");
    drop(file);
    bench.pass(Duration::SECOND);
    bench.open(5, rotation);
    let names = bench.names();
    assert_eq!(names, ["audit-2026-11-17T12-00-00.000.log", "audit.log"]);
}

#[test]
fn a_file_that_was_moved_away_is_recreated() {
    let bench = LogFileFixture::new();
    let mut file = bench.open(1000, LogRotation::default());
    append(&mut file, &["before\n"]);
    fs::rename(bench.path(), bench.dir.path().join("audit.log.1")).unwrap();
    append(&mut file, &["after\n"]);
    assert_eq!(fs::read_to_string(bench.path()).unwrap(), "after\n");
    fs::remove_file(bench.path()).unwrap();
    append(&mut file, &["again\n"]);
    assert_eq!(fs::read_to_string(bench.path()).unwrap(), "again\n");
}

#[test]
fn a_restart_appends_to_the_log() {
    let bench = LogFileFixture::new();
    fs::write(bench.path(), "whole\nhal").unwrap();
    let mut file = bench.open(1000, LogRotation::default());
    append(&mut file, &["next\n"]);
    drop(file);
    append(&mut bench.open(1000, LogRotation::default()), &["last\n"]);
    assert_eq!(bench.text(), "whole\nhal\nnext\nlast\n");
}

#[test]
fn only_the_owner_can_read_it() {
    let bench = LogFileFixture::new();
    bench.open(1000, LogRotation::default());
    assert_eq!(fs::metadata(bench.path()).unwrap().mode() & 0o777, 0o600);
}

#[test]
fn failed_writes_are_reported_and_later_lines_are_retried() {
    let bench = LogFileFixture::new();
    let place = bench.dir.path().join("logs");
    let clock: Clock = Arc::new(|| OffsetDateTime::UNIX_EPOCH);
    let mut file = LogFile::open(&place.join("audit.log"), LogRotation::default(), clock).unwrap();
    fs::remove_dir_all(&place).unwrap();
    fs::write(&place, "in the way").unwrap();
    assert_eq!(append_all(&mut file, &["a\n", "b\n"]).0, 2);
    assert!(file.probe().is_err());
    fs::remove_file(&place).unwrap();
    file.probe().unwrap();
    append(&mut file, &["c\n"]);
    assert_eq!(fs::read_to_string(place.join("audit.log")).unwrap(), "c\n");
}

#[test]
fn a_full_disk_loses_lines_but_no_device() {
    let clock: Clock = Arc::new(|| OffsetDateTime::UNIX_EPOCH);
    let open = |path| LogFile::open(Path::new(path), LogRotation::default(), clock.clone()).unwrap();
    let (lost, error) = append_all(&mut open("/dev/full"), &["a\n"]);
    assert_eq!((lost, error.unwrap().kind()), (1, io::ErrorKind::StorageFull));
    assert!(open("/dev/full").probe().is_err());
    let mut null = open("/dev/null");
    null.max_bytes = 1;
    append(&mut null, &["one\n", "two\n", "three\n"]);
    assert!(Path::new("/dev/null").exists(), "it was not put aside");
}
