//! Full disks, and a WAL that must not fill the disk.

use std::fs;
use std::process::Command as Process;

use super::*;

/// A small file system, if this process may mount one.
struct SmallDisk {
    dir: tempfile::TempDir,
}

impl SmallDisk {
    fn mount() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mount =
            Process::new("mount").args(["-t", "tmpfs", "-o", "size=4m", "tmpfs"]).arg(dir.path()).output();
        mount.is_ok_and(|output| output.status.success()).then_some(Self { dir })
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Process::new("umount").arg("--lazy").arg(self.dir.path()).status();
    }
}

/// Writes until the disk is full; returns the acknowledged keys.
async fn fill(store: &EmbeddedStore) -> Vec<String> {
    let mut acknowledged = Vec::new();
    for n in 0..10_000 {
        let key = format!("{n:05}");
        match store.commit(put(&key, vec![7; 20_000])).await {
            Ok(_) => acknowledged.push(key),
            Err(Error::Full { .. }) => return acknowledged,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the disk is not small");
}

async fn keys(store: &EmbeddedStore) -> Vec<String> {
    let page = store.range(KeyRange::default()).await.unwrap();
    page.items.into_iter().map(|(key, _)| key).collect()
}

#[tokio::test]
async fn a_full_disk_passes() {
    // Where mounting is not allowed, a limit in SQLite fails at the same places.
    let disk = SmallDisk::mount();
    let dir = tempfile::tempdir().unwrap();
    let mut options = EmbeddedOptions::new(dir.path());
    let ballast = disk.as_ref().map(|disk| disk.dir.path().join("ballast"));
    match (&disk, &ballast) {
        (Some(disk), Some(ballast)) => {
            options.dir = disk.dir.path().join("store");
            fs::write(ballast, vec![1; 1 << 20]).unwrap();
        }
        _ => options.max_pages = Some(400),
    }
    let store = EmbeddedStore::open(options.clone()).unwrap();
    let (sender, feed) = std::sync::mpsc::channel();
    let sink = move |message: crate::FeedMessage<'_>| {
        message.changes().iter().for_each(|e| sender.send(e.revision).unwrap())
    };
    store.watch(store.revision(), Box::new(sink)).unwrap();

    let mut expected = fill(&store).await;
    let revision = store.revision();
    assert!(!expected.is_empty());
    for _ in 0..20 {
        assert!(matches!(store.commit(put("more", vec![7; 20_000])).await, Err(Error::Full { .. })));
    }
    assert_eq!(store.failure(), None);
    assert_eq!(store.revision(), revision, "a failed write takes no revision");
    assert_eq!(feed.try_iter().last(), Some(revision), "a failed write is not delivered");
    assert_eq!(keys(&store).await, expected, "reads go on");

    match &ballast {
        Some(ballast) => fs::remove_file(ballast).unwrap(),
        None => {
            for key in expected.drain(..expected.len() / 2) {
                store.commit(delete(&key)).await.unwrap();
            }
            store.compact(store.revision()).await.unwrap();
        }
    }
    let next = store.revision() + 1;
    assert_eq!(store.commit(put("more", vec![7; 20_000])).await.unwrap().revision, next);
    expected.push("more".to_owned());
    store.close().await.unwrap();
    drop(store);
    check(&options.dir).unwrap();
    let store = EmbeddedStore::open(options).unwrap();
    assert_eq!(keys(&store).await, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_stays_small_under_load() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(open(dir.path()).unwrap());
    let longest = Arc::new(AtomicU64::new(0));
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let (store, longest) = (Arc::clone(&store), Arc::clone(&longest));
            let wal = wal_path(&db_path(dir.path()));
            tokio::spawn(async move {
                for _ in 0..40 {
                    store.commit(put(&format!("{writer}"), vec![3; 512 << 10])).await.unwrap();
                    longest.fetch_max(wal.metadata().unwrap().len(), Ordering::Relaxed);
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    // 80 MiB were written.
    let longest = longest.load(Ordering::Relaxed) >> 20;
    assert!(longest < 60, "the log grew to {longest} MiB");
    store.close().await.unwrap();
    assert!(!wal_path(&db_path(dir.path())).exists());
}
