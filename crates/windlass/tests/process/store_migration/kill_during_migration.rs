//! Exports and imports that are killed at random moments and restarted.

use std::path::PathBuf;

use bytes::Bytes;
use tempfile::TempDir;
use windlass_store::{
    EmbeddedOptions, EmbeddedStore, EtcdOptions, EtcdStore, KeyChange, Store, WritePrecondition, WriteRequest,
};
use windlass_testkit::wait_for_async;

use super::*;

const OBJECTS: usize = 10_000;
const ROUNDS: usize = 8;

/// Creates a data directory with many objects in its store.
pub async fn create_large_store(dir: &TempDir, objects: usize) -> PathBuf {
    let data = dir.path().join("many");
    let store = EmbeddedStore::open(EmbeddedOptions::new(data.join("store"))).unwrap();
    let put = |n: usize| {
        let value = Bytes::from(format!("{n:08}").repeat(128));
        let (key, change) = (format!("core/configmaps/default/{n:06}"), KeyChange::Put(value));
        store.commit(WriteRequest { key, expect: WritePrecondition::Absent, change })
    };
    for done in futures::future::join_all((0..objects).map(put)).await {
        done.unwrap();
    }
    store.close().await.unwrap();
    data
}

/// Runs a command repeatedly and kills it at one of its system calls, the first or any later one;
/// then lets it finish. Returns its output.
fn kill_until_done(mut command: impl FnMut() -> Command, calls: &str, most: usize) -> String {
    let mut killed = 0;
    for round in 0..ROUNDS {
        let nth = if round == 0 { 3 } else { rand::random_range(1..=most) };
        let fault = format!("--inject={calls}:signal=KILL:when={nth}");
        let (succeeded, _, complained) = run(traced(&command(), calls, &fault, None));
        assert!(succeeded || complained.is_empty(), "round {round}: {complained}");
        killed += usize::from(!succeeded);
    }
    assert!(killed > 0, "it was never killed");
    run_ok(command())
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let data = create_large_store(&dir, OBJECTS).await;
    let etcd = EtcdCluster::start(1, &[]).unwrap();
    let whole = dir.path().join("whole");
    let expected = digest(&run_ok(on_directory("export", &data, &whole)));

    // A successful export is removed, so that every round has work to do.
    let file = dir.path().join("file");
    let export = || {
        let _ = std::fs::remove_file(&file);
        on_directory("export", &data, &file)
    };
    let calls = "write,fsync,rename";
    assert_eq!(digest(&kill_until_done(export, calls, 12)), expected);
    assert!(std::fs::read(&file).unwrap() == std::fs::read(&whole).unwrap());

    let new = dir.path().join("new");
    let import = || on_directory("import", &new, &file);
    let calls = "pwrite64,fdatasync,unlink,rename";
    assert_eq!(digest(&kill_until_done(import, calls, 6_000)), expected);
    let again = dir.path().join("from the directory");
    assert_eq!(digest(&run_ok(on_directory("export", &new, &again))), expected);

    let import = || on_etcd("import", &etcd, &file);
    let calls = "write,writev,sendto";
    assert_eq!(digest(&kill_until_done(import, calls, 400)), expected);
    let again = dir.path().join("from etcd");
    assert_eq!(digest(&run_ok(on_etcd("export", &etcd, &again))), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_waits_for_an_etcd_that_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let data = create_large_store(&dir, OBJECTS).await;
    let mut etcd = EtcdCluster::start(1, &[]).unwrap();
    let file = dir.path().join("file");
    let expected = digest(&run_ok(on_directory("export", &data, &file)));
    let import = on_etcd("import", &etcd, &file).stdout(Stdio::piped()).spawn().unwrap();

    // All keys of the cluster: the store itself cannot be opened yet.
    let mut options = EtcdOptions::new(etcd.urls());
    options.prefix = "/".to_owned();
    let everything = EtcdStore::open(options).unwrap();
    wait_for_async("nothing arrives", async || {
        everything.get("windlass/core/configmaps/default/000500").await.unwrap().is_some()
    })
    .await;
    drop(everything);
    let member = &mut etcd.members_mut()[0];
    member.kill().unwrap();
    member.restart(&[]).unwrap();

    let output = import.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(digest(&String::from_utf8(output.stdout).unwrap()), expected);
    let again = dir.path().join("again");
    assert_eq!(digest(&run_ok(on_etcd("export", &etcd, &again))), expected);
}
