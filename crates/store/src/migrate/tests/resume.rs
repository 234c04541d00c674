//! Resumption of interrupted exports and imports.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;

/// Imports until the nth event, then aborts.
fn import_until(place: &StoreLocation, file: &Path, mut steps: usize) {
    let mut report = |news: MigrationEvent| {
        if matches!(
            news,
            MigrationEvent::Progress { step: MigrationStep::Importing | MigrationStep::CheckingStore, .. }
        ) {
            steps -= 1;
            assert!(steps > 0, "interrupted");
        }
    };
    let interrupted = catch_unwind(AssertUnwindSafe(|| import(place, file, &mut report)));
    assert!(interrupted.is_err(), "it was not interrupted");
}

/// Enough objects for several transactions, on both engines.
fn large(world: &MigrationFixture) -> (PathBuf, Objects) {
    let old = world.directory("large");
    let store = open(&old).unwrap();
    let object = |n| (format!("k/{n:05}"), Bytes::from(format!("{n}").repeat(2_000)));
    put_all(store.as_ref(), (0..4_000).map(object));
    let expected = objects(store.as_ref());
    drop(store);
    let file = world.path("large.file");
    export(&old, &file, &mut ignore_events()).unwrap();
    (file, expected)
}

#[test]
fn an_interrupted_import_is_not_opened_and_can_be_resumed() {
    let mut world = MigrationFixture::new();
    let (file, expected) = large(&world);
    let small = world.directory("small");
    fill(&small, 3);
    let other = world.path("other.file");
    export(&small, &other, &mut ignore_events()).unwrap();
    for place in world.both("new") {
        for steps in [1, 3, 4, 5, 7] {
            import_until(&place, &file, steps);
            let refused = open(&place).err().unwrap().to_string();
            assert!(refused.contains("import` and the same file"), "{refused}");
            let refused = refusal_message(import(&place, &other, &mut ignore_events()));
            assert!(refused.contains("a part of another import"), "{refused}");
        }
        if let StoreLocation::Etcd(_) = place {
            let refused = refusal_message(export(&place, &world.path("half"), &mut ignore_events()));
            assert!(refused.contains("not finished"), "{refused}");
        }
        let imported = import(&place, &file, &mut ignore_events()).unwrap();
        assert_eq!((imported.objects, imported.earlier), (4_000, 4_000));
        assert_eq!(objects(open(&place).unwrap().as_ref()), expected);
    }
}

#[test]
fn an_interrupted_import_can_be_taken_back() {
    let mut world = MigrationFixture::new();
    let (file, _) = large(&world);
    for place in world.both("new") {
        import_until(&place, &file, 3);
        undo_import(&place).unwrap();
        let store = open(&place).unwrap();
        assert_eq!(objects(store.as_ref()), Objects::new());
        drop(store);
        assert!(refusal_message(undo_import(&place)).contains("has no unfinished import"));
    }
    // After an undo, an etcd accepts another import.
    let etcd = world.etcd("/new");
    assert_eq!(import(&etcd, &file, &mut ignore_events()).unwrap().earlier, 0);
}

/// An imported object was changed by another writer.
#[test]
fn foreign_objects_are_named() {
    let mut world = MigrationFixture::new();
    let (file, _) = large(&world);
    let etcd = world.etcd("/new");
    import_until(&etcd, &file, 3);
    // A store that contains all keys of the cluster.
    let everything = open(&world.etcd("/")).unwrap();
    for (key, words) in [
        ("k/00007", "holds k/00007 with a value that differs from the file"),
        ("k/00003a", "holds k/00003a, which the file does not"),
        ("z", "holds other objects than the file after the import: 4001"),
    ] {
        put(everything.as_ref(), &format!("new/{key}"), "x");
        let error = refusal_message(import(&etcd, &file, &mut ignore_events()));
        assert!(error.contains(words), "{error}");
        assert!(open(&etcd).is_err());
        write(everything.as_ref(), &format!("new/{key}"), KeyChange::Delete);
    }
    assert_eq!(import(&etcd, &file, &mut ignore_events()).unwrap().objects, 4_000);
}

/// An export truncated anywhere resumes, and ends with the same bytes.
#[test]
fn an_interrupted_export_is_resumed() {
    let mut world = MigrationFixture::new();
    for place in world.both("old") {
        fill(&place, 1_200);
        let (file, partial) = (world.path("file"), world.path("file.partial"));
        let first = export(&place, &file, &mut ignore_events()).unwrap();
        let whole = std::fs::read(&file).unwrap();
        // The store changes in the meantime.
        put(open(&place).unwrap().as_ref(), "a", "later");
        let header = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        for cut in [header, header + 5, whole.len() / 2, whole.len() - 3, whole.len()] {
            std::fs::remove_file(&file).unwrap();
            write_leftover(&partial, &whole[..cut]);
            let mut report = |news| assert!(!matches!(news, MigrationEvent::Note(_)), "{news:?}");
            let again = export(&place, &file, &mut report).unwrap();
            assert_eq!(again.digest, first.digest, "cut at {cut}");
            assert_eq!(again.earlier > 0, cut > header + 5);
            assert!(std::fs::read(&file).unwrap() == whole, "cut at {cut}");
            assert!(!partial.exists());
        }
        // What a power loss may leave of the last blocks.
        std::fs::remove_file(&file).unwrap();
        let zeroes = [&whole[..whole.len() / 2], &[0; 4096]].concat();
        write_leftover(&partial, &zeroes);
        assert_eq!(export(&place, &file, &mut ignore_events()).unwrap().digest, first.digest);

        let store = open(&place).unwrap();
        wait(store.compact(store.revision())).unwrap();
        for (rest, why) in
            [(&whole[..whole.len() / 2], "was compacted"), (&whole[..header - 2], "its header is unreadable")]
        {
            std::fs::remove_file(&file).unwrap();
            write_leftover(&partial, rest);
            let mut notes = Vec::new();
            let mut report = |news| {
                if let MigrationEvent::Note(note) = news {
                    notes.push(note)
                }
            };
            let again = export(&place, &file, &mut report).unwrap();
            assert!(again.revision > first.revision && again.earlier == 0);
            assert!(notes.len() == 1 && notes[0].contains(why), "{notes:?}");
        }
        std::fs::remove_file(&file).unwrap();
    }
}

#[test]
fn an_export_does_not_continue_one_of_another_store() {
    let world = MigrationFixture::new();
    let file = world.path("file");
    for (name, again) in [("one", false), ("two", true)] {
        let place = world.directory(name);
        fill(&place, 3);
        let mut notes = Vec::new();
        let mut report = |news| {
            if let MigrationEvent::Note(note) = news {
                notes.push(note)
            }
        };
        export(&place, &file, &mut report).unwrap();
        assert_eq!(notes.iter().any(|note| note.contains("it belongs to another store")), again);
        std::fs::rename(&file, world.path("file.partial")).unwrap();
    }
}

/// Leaves a file as a killed export does.
fn write_leftover(path: &std::path::Path, contents: &[u8]) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::write(path, contents).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}
