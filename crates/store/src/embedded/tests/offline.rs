//! Check, backup and restore; locks and formats.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;

#[tokio::test]
async fn a_second_process_is_kept_out() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).unwrap();
    let error = open(dir.path()).unwrap_err();
    let holder = Some(std::process::id());
    assert_eq!(error, Error::Locked { dir: dir.path().to_owned(), holder });
    let text = error.to_string();
    assert!(text.contains(&dir.path().display().to_string()), "{text}");
    assert!(text.contains(&std::process::id().to_string()), "{text}");
    store.commit(put("k", "1")).await.unwrap();
    drop(store);
    assert_eq!(open(dir.path()).unwrap().revision(), 2);
}

#[tokio::test]
async fn only_the_owner_can_read_the_files() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("new");
    let store = open(&dir).unwrap();
    store.commit(put("k", "1")).await.unwrap();
    backup(&dir, &parent.path().join("saved")).unwrap();
    let files = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path());
    for path in files.chain([dir.clone(), parent.path().join("saved")]) {
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{} has mode {mode:o}", path.display());
    }
}

#[tokio::test]
async fn a_check_counts() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).unwrap();
    for write in [put("a", "12"), put("a", "34"), put("b", "56"), delete("b"), put("c", "")] {
        store.commit(write).await.unwrap();
    }
    // While the server is running, and after.
    let online = check(dir.path()).unwrap();
    store.close().await.unwrap();
    let offline = check(dir.path()).unwrap();
    assert_eq!(online, offline);
    let StoreReport { path, store, format, revision, floor, keys, records, bytes } = offline;
    assert_eq!((path, format, store.len()), (db_path(dir.path()), 1, 32));
    assert_eq!((revision, floor, keys, records, bytes), (6, 1, 2, 5, 11));
    let empty = tempfile::tempdir().unwrap();
    assert!(check(empty.path()).unwrap_err().to_string().contains("windlass.db"));
    assert_eq!(fs::read_dir(empty.path()).unwrap().count(), 0, "a check makes nothing");
}

#[tokio::test]
async fn a_check_leaves_a_crashed_store_as_it_is() {
    let live = tempfile::tempdir().unwrap();
    let store = open(live.path()).unwrap();
    populate(&store).await;
    let dir = tempfile::tempdir().unwrap();
    copy(live.path(), dir.path());
    let files = || ["windlass.db", "windlass.db-wal"].map(|f| fs::read(dir.path().join(f)).unwrap());
    let before = files();
    let report = check(dir.path()).unwrap();
    assert_eq!(report.revision, store.revision());
    backup(dir.path(), &live.path().join("saved")).unwrap();
    assert!(files() == before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_of_a_busy_store_is_one_moment_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(open(dir.path()).unwrap());
    populate(&store).await;
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let writer = tokio::spawn({
        let (store, stop) = (Arc::clone(&store), Arc::clone(&stop));
        async move {
            for n in 0.. {
                store.commit(put(&format!("{}", n % 7), format!("{n}"))).await.unwrap();
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        }
    });
    let out = tempfile::tempdir().unwrap();
    for n in 0..5 {
        let file = out.path().join(format!("{n}"));
        let before = store.revision();
        let report = backup(dir.path(), &file).unwrap();
        assert!(before <= report.revision && report.revision <= store.revision());
        let restored = out.path().join(format!("dir{n}"));
        restore(&file, &restored).unwrap();
        let copy = open(&restored).unwrap().range(KeyRange::default()).await.unwrap();
        let at = Some(report.revision);
        let original = store.range(KeyRange { at, ..KeyRange::default() }).await.unwrap();
        assert_eq!(copy.items, original.items);
    }
    stop.store(true, Ordering::Relaxed);
    writer.await.unwrap();
    let names: Vec<_> = fs::read_dir(out.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names.len(), 10, "nothing else is left behind: {names:?}");
}

#[tokio::test]
async fn a_restored_store_continues_far_above_its_backup() {
    let out = tempfile::tempdir().unwrap();
    let (dir, file, new) = (out.path().join("dir"), out.path().join("file"), out.path().join("new"));
    let store = open(&dir).unwrap();
    populate(&store).await;
    let saved = backup(&dir, &file).unwrap();
    let before = snapshot(&store).await.unwrap();
    let report = restore(&file, &new).unwrap();
    let revision = saved.revision + crate::RESTORE_JUMP;
    assert_eq!((report.revision, report.floor, report.keys), (revision, revision, saved.keys));
    assert_eq!(report.records, report.keys, "only what exists is kept");
    let restored = open(&new).unwrap();
    assert_eq!((restored.revision(), restored.floor()), (revision, revision));
    let page = restored.range(KeyRange::default()).await.unwrap();
    assert_eq!((page.revision, page.items), (revision, before.page.items));
    let floor = revision;
    assert_eq!(restored.history(saved.revision, 1).await, Err(Error::Compacted { floor }));
    assert_eq!(restored.commit(put("k", "1")).await.unwrap().revision, revision + 1);
}

#[tokio::test]
async fn backup_and_restore_do_not_overwrite() {
    let out = tempfile::tempdir().unwrap();
    let (dir, file) = (out.path().join("dir"), out.path().join("file"));
    let store = open(&dir).unwrap();
    populate(&store).await;
    backup(&dir, &file).unwrap();
    let bytes = fs::read(&file).unwrap();
    let text = backup(&dir, &file).unwrap_err().to_string();
    assert!(text.contains("exists already"), "{text}");
    assert!(fs::read(&file).unwrap() == bytes);
    let text = restore(&file, &dir).unwrap_err().to_string();
    assert!(text.contains("is not empty"), "{text}");

    // A damaged backup is rejected before anything is created.
    let mut bad = bytes.clone();
    let middle = bad.windows(7).position(|w| w == b"changed").unwrap();
    bad[middle] ^= 1;
    fs::write(&file, bad).unwrap();
    let new = out.path().join("new");
    let error = restore(&file, &new).unwrap_err();
    assert!(matches!(&error, Error::Corrupt { path, .. } if *path == file), "{error}");
    assert!(!new.exists());

    // So is a backup of a newer format.
    fs::write(&file, bytes).unwrap();
    Connection::open(&file).unwrap().execute_batch("UPDATE meta SET format = 9").unwrap();
    let supported = schema::FORMAT;
    let expected = Error::Format { path: file.clone(), found: 9, supported };
    assert_eq!(restore(&file, &new).unwrap_err(), expected);

    // An unfinished restore is not mistaken for a new store.
    fs::create_dir(&new).unwrap();
    fs::write(crate::file_output::partial_path(&db_path(&new)), "half").unwrap();
    let text = open(&new).unwrap_err().to_string();
    assert!(text.contains("a restore was not finished"), "{text}");
}
