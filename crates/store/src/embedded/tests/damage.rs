//! Damaged files are reported by name or harmless; never served, never a panic.

use std::fs;

use super::*;

/// A store's files and their expected contents.
struct StoreFiles {
    dir: tempfile::TempDir,
    truth: StoreSnapshot,
}

impl StoreFiles {
    /// A closed store, with all data in the database.
    async fn closed() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path()).unwrap();
        populate(&store).await;
        let truth = snapshot(&store).await.unwrap();
        store.close().await.unwrap();
        assert!(!dir.path().join("windlass.db-wal").exists());
        Self { dir, truth }
    }

    /// A crashed store, with all data in the write-ahead log.
    async fn crashed() -> Self {
        let live = tempfile::tempdir().unwrap();
        let store = open(live.path()).unwrap();
        populate(&store).await;
        let truth = snapshot(&store).await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        copy(live.path(), dir.path());
        assert!(dir.path().join("windlass.db-wal").metadata().unwrap().len() > 10_000);
        Self { dir, truth }
    }

    /// Opens a copy with one file changed. Returns true if the damage was detected.
    async fn check_damage(&self, file: &str, change: impl FnOnce(&mut Vec<u8>), what: &str) -> bool {
        let dir = tempfile::tempdir().unwrap();
        copy(self.dir.path(), dir.path());
        let path = dir.path().join(file);
        let mut bytes = fs::read(&path).unwrap();
        change(&mut bytes);
        fs::write(&path, bytes).unwrap();
        let checked = check(dir.path());
        let store = match open(dir.path()) {
            Ok(store) => store,
            Err(error) => {
                let named = format!("{error}").contains("windlass.db");
                assert!(named && is_damage(&error), "{what}: {error:?}");
                let Err(error) = checked else { panic!("{what}: the check missed {error}") };
                assert!(is_damage(&error), "{what}: {error:?}");
                return true;
            }
        };
        assert_eq!(snapshot(&store).await, Ok(self.truth.clone()), "{what}: wrong data");
        store.commit(put("/registry/things/010", "after")).await.unwrap();
        store.close().await.unwrap();
        false
    }
}

fn is_damage(error: &Error) -> bool {
    matches!(error, Error::Corrupt { .. } | Error::Format { .. })
}

#[tokio::test]
async fn a_flipped_bit_in_the_database_is_never_served() {
    let specimen = StoreFiles::closed().await;
    flip_bits(&specimen, "windlass.db", 149).await;
}

#[tokio::test]
async fn a_flipped_bit_in_the_log_is_never_served() {
    let specimen = StoreFiles::crashed().await;
    flip_bits(&specimen, "windlass.db-wal", 1499).await;
}

/// Flips one bit at every `step` bytes, each in a separate copy.
async fn flip_bits(specimen: &StoreFiles, file: &str, step: usize) {
    let length = fs::metadata(specimen.dir.path().join(file)).unwrap().len() as usize;
    let (mut noticed, mut tried) = (0, 0);
    // The headers of the file and the first page are small and matter most.
    for position in (0..150).step_by(3).chain((150..length).step_by(step)) {
        let bit = 1 << (position % 8);
        let what = format!("{file}, byte {position} of {length}, bit {bit:#x}");
        let flip = |bytes: &mut Vec<u8>| bytes[position] ^= bit;
        noticed += usize::from(specimen.check_damage(file, flip, &what).await);
        tried += 1;
    }
    assert!(noticed * 4 > tried, "only {noticed} of {tried} noticed: the files are mostly air");
}

#[tokio::test]
async fn a_file_cut_short_is_never_served() {
    let closed = StoreFiles::closed().await;
    let crashed = StoreFiles::crashed().await;
    for (specimen, file) in [(&closed, "windlass.db"), (&crashed, "windlass.db-wal")] {
        let length = fs::metadata(specimen.dir.path().join(file)).unwrap().len() as usize;
        let inside = (0..length).step_by(length / 40 + 1);
        for cut in inside.chain([1, 16, 99, 100, 511, 512, 4_095, 4_096, length - 1]) {
            let what = format!("{file} cut at {cut} of {length}");
            assert!(specimen.check_damage(file, |bytes| bytes.truncate(cut), &what).await, "{what}");
        }
    }
}

#[tokio::test]
async fn missing_files_are_noticed() {
    let crashed = StoreFiles::crashed().await;
    let closed = StoreFiles::closed().await;
    let cases: [(&StoreFiles, &[&str], &str); 4] = [
        (&crashed, &["windlass.db"], "is missing, but its write-ahead log exists"),
        (&crashed, &["windlass.db-wal"], "was acknowledged"),
        (&crashed, &["windlass.db", "windlass.db-wal"], "it is missing, but revision"),
        (&closed, &["windlass.db"], "it is missing, but revision"),
    ];
    for (specimen, missing, expected) in cases {
        let dir = tempfile::tempdir().unwrap();
        copy(specimen.dir.path(), dir.path());
        for file in missing {
            fs::remove_file(dir.path().join(file)).unwrap();
        }
        let text = open(dir.path()).unwrap_err().to_string();
        assert!(text.contains(expected), "without {missing:?}: {text}");
        let again = open(dir.path()).unwrap_err().to_string();
        assert_eq!(text, again, "a refusal leaves everything as it was");
    }
}

#[tokio::test]
async fn an_older_copy_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).unwrap();
    store.commit(put("k", "1")).await.unwrap();
    store.close().await.unwrap();
    drop(store);
    let old = fs::read(db_path(dir.path())).unwrap();
    let store = open(dir.path()).unwrap();
    store.commit(put("k", "2")).await.unwrap();
    store.close().await.unwrap();
    drop(store);
    fs::write(db_path(dir.path()), old).unwrap();
    let text = open(dir.path()).unwrap_err().to_string();
    assert!(text.contains("it ends at revision 2, but revision 3 was acknowledged"), "{text}");
}

/// Changes a database without the store's knowledge.
fn tamper(dir: &Path, sql: &str) {
    Connection::open(db_path(dir)).unwrap().execute_batch(sql).unwrap();
}

#[tokio::test]
async fn tampering_is_noticed() {
    let cases = [
        ("UPDATE kv SET value = x'00' WHERE rev = 44", "record 44: its checksum does not match"),
        ("UPDATE kv SET key = 'x' WHERE rev = 44", "record 44: its checksum does not match"),
        ("UPDATE kv SET created = 3 WHERE rev = 44", "record 44: its checksum does not match"),
        ("UPDATE kv SET prev = 3 WHERE rev = 44", "record 44: its checksum does not match"),
        ("UPDATE kv SET value = NULL WHERE rev = 44", "record 44: its checksum does not match"),
        ("DELETE FROM kv WHERE rev = 44", "record 44 is missing"),
        ("DELETE FROM kv WHERE rev > 50", "it ends at revision 50"),
        ("DELETE FROM kv", "it ends at revision"),
        ("UPDATE meta SET floor = 45", "the checksum of its meta record does not match"),
        ("DELETE FROM meta", "its meta table is empty"),
        ("DROP TABLE meta", "it has no meta table"),
        ("DROP INDEX kv_key", "its tables are not those of a store"),
        ("CREATE TRIGGER t AFTER INSERT ON kv BEGIN SELECT 1; END", "its tables are not those"),
        ("UPDATE meta SET format = 2", "has data format 2, but this program supports format 1"),
        ("UPDATE meta SET format = 0", "has data format 0, but this program supports format 1"),
    ];
    let specimen = StoreFiles::closed().await;
    for (sql, expected) in cases {
        let dir = tempfile::tempdir().unwrap();
        copy(specimen.dir.path(), dir.path());
        tamper(dir.path(), sql);
        let error = open(dir.path()).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("windlass.db"), "{sql}: {error}");
        let error = check(dir.path()).unwrap_err().to_string();
        assert!(error.contains(expected), "check after {sql}: {error}");
    }
}

#[tokio::test]
async fn a_record_damaged_while_open_is_not_served() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).unwrap();
    for key in ["a", "b"] {
        store.commit(put(key, "1")).await.unwrap();
    }
    tamper(dir.path(), "UPDATE kv SET value = x'00' WHERE rev = 2");
    let expected = Error::Corrupt {
        path: db_path(dir.path()),
        what: "record 2: its checksum does not match".to_owned(),
    };
    assert_eq!(store.range(KeyRange::default()).await, Err(expected.clone()));
    assert_eq!(store.history(1, 10).await, Err(expected.clone()));
    assert_eq!(store.watch(1, Box::new(|_| {})), Err(expected.clone()));
    assert_eq!(store.commit(put("a", "2")).await, Err(expected));
    // Undamaged keys remain available.
    assert_eq!(store.get("b").await.unwrap().unwrap().revision, 3);
    assert_eq!(store.commit(put("b", "2")).await.unwrap().revision, 4);
}
