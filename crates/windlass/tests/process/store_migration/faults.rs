//! Full disks during a migration, and servers that start too early.

use std::time::Duration;

use super::kill_during_migration::create_large_store;
use super::*;
use crate::server::wait;

/// Runs a command whose later writes to a file fail with ENOSPC.
fn on_full_disk(command: &Command, call: &str, file: &Path) -> Command {
    traced(command, call, &format!("--inject={call}:error=ENOSPC:when=3+"), Some(file))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_an_error_and_nothing_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let data = create_large_store(&dir, 4_000).await;
    let (file, partial) = (dir.path().join("file"), dir.path().join("file.partial"));
    let export = on_directory("export", &data, &file);
    let error = fails(on_full_disk(&export, "write", &partial));
    assert!(error.contains("no space left for") && error.contains("file.partial"), "{error}");
    assert!(!file.exists());
    let exported = run_ok(export);
    assert!(exported.contains("from an earlier run"), "{exported}");

    let new = dir.path().join("new");
    let import = on_directory("import", &new, &file);
    let filled = new.join("store/windlass.db.import");
    let error = fails(on_full_disk(&import, "pwrite64", &filled));
    assert!(error.contains("no space left for"), "{error}");
    assert_eq!(digest(&run_ok(import)), digest(&exported));
}

/// A full etcd keeps its contents, and no server opens it.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_etcd_is_an_error_and_is_not_served() {
    let dir = tempfile::tempdir().unwrap();
    let data = create_large_store(&dir, 10_000).await;
    let file = dir.path().join("file");
    run_ok(on_directory("export", &data, &file));
    let etcd = EtcdCluster::start(1, &["--quota-backend-bytes=4000000"]).unwrap();
    let error = fails(on_etcd("import", &etcd, &file));
    assert!(error.contains("no space left for etcd at"), "{error}");

    let place = TestDataDir::new();
    let mut server = Command::new(env!("CARGO_BIN_EXE_windlass"));
    server.args(["server", "--listen", "127.0.0.1:0", &etcd_flag(&etcd), "--data-dir"]).arg(place.data());
    let mut server = server.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let ended = wait(&mut server, Duration::from_secs(30));
    let _ = server.kill();
    let said = String::from_utf8(server.wait_with_output().unwrap().stderr).unwrap();
    assert!(ended.is_some_and(|status| !status.success()), "{said}");
    assert!(said.contains("`windlass store import --undo`"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_is_taken_back() {
    let dir = tempfile::tempdir().unwrap();
    let data = create_large_store(&dir, 4_000).await;
    let file = dir.path().join("file");
    run_ok(on_directory("export", &data, &file));
    let new = dir.path().join("new");
    let filled = new.join("store/windlass.db.import");
    fails(on_full_disk(&on_directory("import", &new, &file), "pwrite64", &filled));
    let undo = || {
        let mut command = store(["import", "--undo", "--data-dir"]);
        command.arg(&new);
        command
    };
    assert!(run_ok(undo()).starts_with("import undone: "));
    assert!(!filled.exists());
    let error = fails(undo());
    assert!(error.contains("has no unfinished import"), "{error}");
}

#[test]
fn a_store_is_in_one_place() {
    let both = fails(store(["export", "--data-dir=d", "--etcd-servers=http://127.0.0.1:1", "f"]));
    assert!(both.contains("cannot be used with"), "{both}");
    let nothing = fails(store(["import", "--data-dir=d"]));
    assert!(nothing.contains("<FILE>"), "{nothing}");
    let quiet = fails(store(["import", "--quiet", "--data-dir=d", "/there/is/no/such/file"]));
    assert!(quiet.contains("/there/is/no/such/file: No such file"), "{quiet}");
}
