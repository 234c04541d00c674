use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::*;

/// Polls rarely, so that only events can be the cause of a timely reload.
const EVENTS_ONLY: FileWatchTiming =
    FileWatchTiming { poll: Duration::from_secs(3600), settle: Duration::from_millis(10) };
/// Polls often, for changes that cause no event.
const POLLING: FileWatchTiming =
    FileWatchTiming { poll: Duration::from_millis(20), settle: Duration::from_millis(10) };
const DEADLINE: Duration = Duration::from_secs(20);

/// A number in a file that is reloaded when the file changes.
struct NumberFile {
    dir: TempDir,
    value: Arc<ReloadableFile<u32>>,
    reloads: Arc<AtomicUsize>,
    task: JoinHandle<Infallible>,
}

impl NumberFile {
    fn start(path: &str, timing: FileWatchTiming, prepare: impl Fn(&Path)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        prepare(dir.path());
        let value = Arc::new(ReloadableFile::new(0));
        let reloads = Arc::new(AtomicUsize::new(0));
        let (target, count, file) = (value.clone(), reloads.clone(), dir.path().join(path));
        let reload = move || {
            count.fetch_add(1, SeqCst);
            target.update(read_number(&file));
        };
        let files = [dir.path().join(path)];
        let task = tokio::spawn(reload_on_change(files, timing, reload));
        Self { dir, value, reloads, task }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    async fn wait_for(&self, number: u32) {
        let mut changes = self.value.subscribe();
        let waiting = changes.wait_for(|current| **current == number);
        let found = tokio::time::timeout(DEADLINE, waiting).await;
        found.unwrap_or_else(|_| panic!("still {}", self.value.current())).unwrap();
    }

    async fn wait_for_error(&self, expected: bool) {
        let mut errors = self.value.subscribe_error();
        let waiting = errors.wait_for(|error| error.is_some() == expected);
        tokio::time::timeout(DEADLINE, waiting).await.unwrap().unwrap();
    }
}

impl Drop for NumberFile {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn read_number(path: &Path) -> anyhow::Result<u32> {
    let text = read_limited(path, 100)?;
    Ok(std::str::from_utf8(&text)?.trim().parse()?)
}

/// Replaces a file at once, as editors do.
fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(&new, path).unwrap();
}

fn write_one(dir: &Path) {
    fs::write(dir.join("number"), "1").unwrap();
}

#[tokio::test]
async fn a_file_that_does_not_change_is_not_read_again() {
    for timing in [EVENTS_ONLY, POLLING] {
        let number = NumberFile::start("number", timing, write_one);
        number.wait_for(1).await;
        // Reads by others are events, too, and so are other files in the directory.
        for n in 0..50 {
            fs::read(number.path("number")).unwrap();
            fs::write(number.path("other"), n.to_string()).unwrap();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // One more at most: the file was so young that a second write could have had the same timestamp.
        let reloads = number.reloads.load(SeqCst);
        assert!(reloads <= 2, "{reloads} reloads with {timing:?}");
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(number.reloads.load(SeqCst), reloads);
    }
}

#[tokio::test]
async fn a_replaced_or_rewritten_file_is_reloaded() {
    let number = NumberFile::start("number", EVENTS_ONLY, write_one);
    number.wait_for(1).await;
    for n in 2..6 {
        replace(&number.path("number"), &n.to_string());
        number.wait_for(n).await;
    }
    fs::write(number.path("number"), "7").unwrap();
    number.wait_for(7).await;
}

#[tokio::test]
async fn a_swapped_symlink_of_a_mounted_secret_is_followed() {
    let prepare = |dir: &Path| {
        fs::create_dir(dir.join("..1")).unwrap();
        write_one(&dir.join("..1"));
        symlink("..1", dir.join("..data")).unwrap();
        symlink("..data/number", dir.join("number")).unwrap();
    };
    let number = NumberFile::start("number", EVENTS_ONLY, prepare);
    number.wait_for(1).await;
    for n in 2..5 {
        let set = number.path(&format!("..{n}"));
        fs::create_dir(&set).unwrap();
        fs::write(set.join("number"), n.to_string()).unwrap();
        symlink(&set, number.path("..data_tmp")).unwrap();
        fs::rename(number.path("..data_tmp"), number.path("..data")).unwrap();
        number.wait_for(n).await;
    }
}

#[tokio::test]
async fn a_replaced_directory_is_found_by_polling_and_watched() {
    let prepare = |dir: &Path| {
        fs::create_dir(dir.join("config")).unwrap();
        write_one(&dir.join("config"));
    };
    let number = NumberFile::start("config/number", POLLING, prepare);
    number.wait_for(1).await;
    fs::create_dir(number.path("next")).unwrap();
    fs::write(number.path("next/number"), "2").unwrap();
    fs::rename(number.path("config"), number.path("old")).unwrap();
    fs::rename(number.path("next"), number.path("config")).unwrap();
    number.wait_for(2).await;
    replace(&number.path("config/number"), "3");
    number.wait_for(3).await;
}

#[tokio::test]
async fn invalid_content_keeps_the_last_valid_one_until_it_is_valid_again() {
    let number = NumberFile::start("number", EVENTS_ONLY, write_one);
    number.wait_for(1).await;
    replace(&number.path("number"), "one");
    number.wait_for_error(true).await;
    assert_eq!(*number.value.current(), 1);
    assert_eq!(number.value.error().unwrap(), "invalid digit found in string");
    replace(&number.path("number"), "2");
    number.wait_for(2).await;
    number.wait_for_error(false).await;
    fs::remove_file(number.path("number")).unwrap();
    number.wait_for_error(true).await;
    assert!(number.value.error().unwrap().starts_with("cannot read "));
    replace(&number.path("number"), "2");
    number.wait_for_error(false).await;
    assert_eq!(*number.value.current(), 2);
}

#[tokio::test]
async fn changed_files_are_named_and_added_ones_are_reported_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    for name in ["a", "b"] {
        fs::write(path(name), name).unwrap();
    }
    // Old enough not to be ambiguous.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut watcher = FileWatcher::new([path("a"), path("b")], EVENTS_ONLY);
    replace(&path("b"), "changed");
    assert_eq!(watcher.changed().await, [path("b")]);
    watcher.set_files([path("a"), path("c")]);
    assert_eq!(watcher.changed().await, [path("c")]);
    fs::write(path("c"), "appears").unwrap();
    assert_eq!(watcher.changed().await, [path("c")]);
    let silent = tokio::time::timeout(Duration::from_millis(300), watcher.changed()).await;
    assert!(silent.is_err(), "{silent:?}");
}

#[tokio::test(start_paused = true)]
async fn polling_works_with_virtual_time() {
    let number = NumberFile::start("number", FileWatchTiming::default(), write_one);
    number.wait_for(1).await;
    replace(&number.path("number"), "2");
    number.wait_for(2).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    let reloads = number.reloads.load(SeqCst);
    assert!(reloads <= 4, "{reloads}");
}

#[test]
fn content_is_offered_and_errors_are_reported_once() {
    let file = ReloadableFile::new(1);
    let errors = Mutex::new(file.subscribe_error());
    assert_eq!(file.update(Ok::<_, String>(1)), ReloadOutcome::Unchanged);
    assert_eq!(file.update(Ok::<_, String>(2)), ReloadOutcome::Changed);
    assert_eq!(file.update(Err("bad")), ReloadOutcome::Rejected("bad".into()));
    assert_eq!(file.update(Err("bad")), ReloadOutcome::Unchanged);
    assert_eq!(file.update(Err("worse")), ReloadOutcome::Rejected("worse".into()));
    assert_eq!((*file.current(), file.error()), (2, Some("worse".to_owned())));
    assert!(errors.lock().unwrap().has_changed().unwrap());
    assert_eq!(file.update(Ok::<_, String>(2)), ReloadOutcome::Recovered);
    assert_eq!(file.error(), None);
    let cause = anyhow::anyhow!("cause").context("context");
    assert_eq!(file.update(Err(cause)), ReloadOutcome::Rejected("context: cause".into()));
    assert_eq!(file.update(Ok::<_, String>(3)), ReloadOutcome::Changed);
}

#[test]
fn files_are_read_within_limits() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let error = read_limited(&path, 4).unwrap_err().to_string();
    assert!(error.starts_with("cannot read ") && error.contains("No such file"), "{error}");
    fs::write(&path, "").unwrap();
    assert!(matches!(read_limited(&path, 4), Err(FileReadError::Empty(_))));
    fs::write(&path, "0123456789").unwrap();
    assert_eq!(read_limited(&path, 4).unwrap().as_slice(), b"01234");
    assert_eq!(read_limited(&path, 10).unwrap().as_slice(), b"0123456789");
}
