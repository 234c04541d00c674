//! Migrations with interruptions and damage, on both engines.

mod corruption;
mod resume;
mod untrusted_files;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;
use windlass_testkit::etcd::EtcdCluster;

use super::*;
use crate::{
    EmbeddedOptions, EmbeddedStore, EtcdStore, KeyChange, KeyRange, RESTORE_JUMP, Store, StoredValue,
    WritePrecondition, WriteRequest, check,
};

type Objects = BTreeMap<String, Bytes>;

/// A directory, and an etcd on demand.
struct MigrationFixture {
    dir: TempDir,
    etcd: Option<EtcdCluster>,
}

impl MigrationFixture {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), etcd: None }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn directory(&self, name: &str) -> StoreLocation {
        StoreLocation::Directory(self.path(name))
    }

    fn etcd(&mut self, prefix: &str) -> StoreLocation {
        let args = ["--heartbeat-interval=20", "--election-timeout=200"];
        let cluster = self.etcd.get_or_insert_with(|| EtcdCluster::start(1, &args).unwrap());
        let mut options = EtcdOptions::new(cluster.urls());
        options.prefix = prefix.to_owned();
        StoreLocation::Etcd(options)
    }

    /// Returns locations on both engines without a store.
    fn both(&mut self, name: &str) -> [StoreLocation; 2] {
        [self.directory(name), self.etcd(&format!("/{name}"))]
    }
}

fn open(place: &StoreLocation) -> Result<Arc<dyn Store>, Error> {
    Ok(match place {
        StoreLocation::Directory(dir) => Arc::new(EmbeddedStore::open(EmbeddedOptions::new(dir))?),
        StoreLocation::Etcd(options) => Arc::new(EtcdStore::open(options.clone())?),
    })
}

fn wait<T>(task: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(task)
}

fn write(store: &dyn Store, key: &str, change: KeyChange) -> Revision {
    let write = WriteRequest { key: key.to_owned(), expect: WritePrecondition::Any, change };
    wait(store.commit(write)).unwrap().revision
}

fn put(store: &dyn Store, key: &str, value: impl Into<Bytes>) -> Revision {
    write(store, key, KeyChange::Put(value.into()))
}

/// Writes many objects to the store concurrently.
fn put_all(store: &dyn Store, objects: impl Iterator<Item = (String, Bytes)>) {
    let put = |(key, value)| {
        store.commit(WriteRequest { key, expect: WritePrecondition::Any, change: KeyChange::Put(value) })
    };
    for done in wait(futures::future::join_all(objects.map(put))) {
        done.unwrap();
    }
}

fn read_all(store: &dyn Store) -> Vec<(String, StoredValue)> {
    wait(store.range(KeyRange::default())).unwrap().items
}

fn objects(store: &dyn Store) -> Objects {
    read_all(store).into_iter().map(|(key, stored)| (key, stored.value)).collect()
}

/// Fills a store with history, and with keys and values of every kind; returns its contents.
fn fill(place: &StoreLocation, many: usize) -> Objects {
    let store = open(place).unwrap();
    for (key, value) in [
        ("a", Bytes::from_static(b"{\"kind\":\"ConfigMap\"}")),
        ("empty", Bytes::new()),
        ("no/text", Bytes::from_static(&[0, 255, 10, 13, 200])),
        ("quotes \" and \\ and \n lines", Bytes::from_static("\u{1}\n\"\\ü\u{10ffff}".as_bytes())),
        ("ü/\u{10ffff}", Bytes::from(vec![b'x'; 700_000])),
        ("gone", Bytes::from_static(b"1")),
    ] {
        put(store.as_ref(), key, value);
    }
    write(store.as_ref(), "gone", KeyChange::Delete);
    put(store.as_ref(), "a", "{\"kind\":\"Secret\"}");
    let object = |n| (format!("many/{n:06}"), Bytes::from(format!("{n}").repeat(20)));
    put_all(store.as_ref(), (0..many).map(object));
    let objects = objects(store.as_ref());
    wait(store.close()).unwrap();
    objects
}

fn ignore_events() -> impl FnMut(MigrationEvent) {
    |_| ()
}

fn refusal_message<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn objects_survive_both_ways() {
    let mut world = MigrationFixture::new();
    let old = world.directory("old");
    let there = fill(&old, 1_300);
    let file = world.path("there");
    let exported = export(&old, &file, &mut ignore_events()).unwrap();
    assert_eq!((exported.objects, exported.earlier), (there.len() as u64, 0));
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(refusal_message(export(&old, &file, &mut ignore_events())).contains("exists already"));

    let etcd = world.etcd("/moved");
    let imported = import(&etcd, &file, &mut ignore_events()).unwrap();
    assert_eq!((imported.objects, &imported.digest), (exported.objects, &exported.digest));
    assert!(imported.revision > exported.revision + RESTORE_JUMP);
    assert_continues(&etcd, &there, exported.revision, imported.revision);

    let back = world.path("back");
    let again = export(&etcd, &back, &mut ignore_events()).unwrap();
    assert_eq!(again.digest, exported.digest);
    let new = world.directory("new");
    let imported = import(&new, &back, &mut ignore_events()).unwrap();
    assert_eq!(imported.digest, exported.digest);
    assert_eq!(imported.revision, again.revision + RESTORE_JUMP + again.objects);
    assert_continues(&new, &there, again.revision, imported.revision);
    assert_eq!(check(&world.path("new")).unwrap().keys, again.objects);
}

/// Asserts that the store contains the objects, and counts on above every known revision.
fn assert_continues(place: &StoreLocation, objects: &Objects, old: Revision, new: Revision) {
    let store = open(place).unwrap();
    assert!(store.revision() >= new && store.floor() >= new);
    let found = read_all(store.as_ref());
    assert_eq!(&self::objects(store.as_ref()), objects);
    assert!(found.iter().all(|(_, stored)| stored.revision > old + RESTORE_JUMP));
    assert!(found.iter().all(|(_, stored)| stored.created == stored.revision));
    for known in [1, old, old + 1, old + RESTORE_JUMP] {
        let refused = wait(store.history(known, 1));
        assert!(matches!(refused, Err(Error::Compacted { .. })), "{known}: {refused:?}");
    }
    let (key, stored) = &found[0];
    let change = KeyChange::Put(Bytes::from_static(b"new"));
    let stale =
        WriteRequest { key: key.clone(), expect: WritePrecondition::Revision(old), change: change.clone() };
    let current = Some(stored.revision);
    assert_eq!(wait(store.commit(stale)), Err(Error::Conflict { current }));
    let fresh =
        WriteRequest { key: key.clone(), expect: WritePrecondition::Revision(stored.revision), change };
    let changed = wait(store.commit(fresh)).unwrap();
    assert_eq!(changed.previous.as_ref(), Some(stored));
    let history = wait(store.history(store.floor(), 10)).unwrap();
    assert_eq!(history.iter().map(|event| event.revision).collect::<Vec<_>>(), [changed.revision]);
    // Restores the original for the next case.
    put(store.as_ref(), key, stored.value.clone());
    wait(store.close()).unwrap();
}

#[test]
fn a_store_that_is_there_is_not_touched() {
    let mut world = MigrationFixture::new();
    let old = world.directory("old");
    fill(&old, 3);
    let file = world.path("file");
    export(&old, &file, &mut ignore_events()).unwrap();
    for place in world.both("other") {
        put(open(&place).unwrap().as_ref(), "other", "1");
        let refused = refusal_message(import(&place, &file, &mut ignore_events()));
        assert!(refused.contains("is not empty"), "{refused}");
        assert_eq!(objects(open(&place).unwrap().as_ref()).len(), 1);
        let refused = refusal_message(undo_import(&place));
        assert!(refused.contains("has no unfinished import"), "{refused}");
    }
    // A repeated import after a finished one succeeds.
    for place in world.both("same") {
        let first = import(&place, &file, &mut ignore_events()).unwrap();
        let again = import(&place, &file, &mut ignore_events()).unwrap();
        assert_eq!((&again.digest, again.earlier), (&first.digest, first.objects));
        put(open(&place).unwrap().as_ref(), "a", "changed");
        let refused = refusal_message(import(&place, &file, &mut ignore_events()));
        assert!(refused.contains("is not empty"), "{refused}");
    }
    let server = open(&old).unwrap();
    let locked = refusal_message(import(&old, &file, &mut ignore_events()));
    assert!(locked.contains("is in use by another process"), "{locked}");
    drop(server);
}

#[test]
fn an_empty_store_can_be_moved() {
    let mut world = MigrationFixture::new();
    let old = world.directory("old");
    drop(open(&old).unwrap());
    let file = world.path("file");
    assert_eq!(export(&old, &file, &mut ignore_events()).unwrap().objects, 0);
    for place in world.both("new") {
        let imported = import(&place, &file, &mut ignore_events()).unwrap();
        let store = open(&place).unwrap();
        assert!(store.revision() >= imported.revision && imported.revision > RESTORE_JUMP);
        assert!(put(store.as_ref(), "k", "1") > imported.revision);
    }
}

#[test]
fn a_store_in_use_is_exported_as_it_is_at_one_moment() {
    let mut world = MigrationFixture::new();
    for place in world.both("served") {
        fill(&place, 1_500);
        let server = open(&place).unwrap();
        let at = server.revision();
        let expected = objects(server.as_ref());
        let file = world.path(if matches!(place, StoreLocation::Etcd(_)) { "etcd" } else { "embedded" });
        // Writes during the export are not included.
        let mut report = |_| {
            put(server.as_ref(), "many/000000", "changed");
            put(server.as_ref(), "zzz", "new");
        };
        let exported = export(&place, &file, &mut report).unwrap();
        assert_eq!((exported.revision, exported.objects), (at, expected.len() as u64));
        let mut digest = ObjectDigest::new();
        expected.iter().for_each(|(key, value)| digest.add(key, value));
        assert_eq!(exported.digest, digest.hex());
    }
}
