//! Files that another user has prepared under a name that an export or backup uses.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, lchown, symlink};
use std::path::Path;

use super::*;
use crate::backup;

const OTHER: u32 = 65534;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Creates a store that contains a secret.
fn setup() -> (MigrationFixture, StoreLocation) {
    let world = MigrationFixture::new();
    let place = world.directory("store");
    let store = open(&place).unwrap();
    put(store.as_ref(), "core/secrets/default/s", "{\"secret\":1}");
    drop(store);
    (world, place)
}

type Prepare = fn(&Path, &Path);

/// What another user can put under the name of an incomplete file. The second path is that of a
/// file they do not own.
const PREPARED: [(&str, Prepare); 5] = [
    ("a file that others can read", |path, _| {
        fs::write(path, "").unwrap();
        set_mode(path, 0o666);
    }),
    ("a symlink", |path, victim| symlink(victim, path).unwrap()),
    ("a symlink that leads nowhere", |path, victim| {
        symlink(victim.with_extension("new"), path).unwrap();
    }),
    ("a hard link", |path, victim| fs::hard_link(victim, path).unwrap()),
    ("a file of another user", |path, victim| {
        fs::write(path, "").unwrap();
        set_mode(path, 0o600);
        if lchown(path, Some(OTHER), Some(OTHER)).is_err() {
            // Only root can prepare this; otherwise another case is repeated.
            fs::remove_file(path).unwrap();
            symlink(victim, path).unwrap();
        }
    }),
];

#[test]
fn an_export_does_not_write_into_files_of_another_user() {
    for (what, prepare) in PREPARED {
        let (world, place) = setup();
        let (file, victim) = (world.path("file"), world.path("victim"));
        fs::write(&victim, "untouched").unwrap();
        set_mode(&victim, 0o600);
        prepare(&world.path("file.partial"), &victim);
        let error = export(&place, &file, &mut |_| {}).unwrap_err().to_string();
        assert!(error.contains("file.partial"), "{what}: {error}");
        assert_eq!(fs::read_to_string(&victim).unwrap(), "untouched", "{what}");
        assert!(!victim.with_extension("new").exists(), "{what}");
        assert!(!file.exists(), "{what}");
        fs::remove_file(world.path("file.partial")).unwrap();
        export(&place, &file, &mut |_| {}).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600, "{what}");
    }
}

#[test]
fn exports_and_backups_are_not_written_where_others_can_replace_them() {
    let (world, place) = setup();
    let StoreLocation::Directory(store) = &place else { unreachable!() };
    let (open, below) = (world.path("open"), world.path("open/below"));
    fs::create_dir_all(&below).unwrap();
    for (number, directory) in [&open, &below].into_iter().enumerate() {
        set_mode(&open, 0o777);
        let file = directory.join("file");
        let exported = export(&place, &file, &mut |_| {}).unwrap_err().to_string();
        let saved = backup(store, &file).unwrap_err().to_string();
        for error in [exported, saved] {
            assert!(error.contains("is writable by all users"), "{error}");
        }
        assert_eq!(fs::read_dir(&below).unwrap().count(), 0);
        // As in /tmp: users cannot replace the files of others there.
        set_mode(&open, 0o1777);
        export(&place, &file.with_extension(format!("{number}")), &mut |_| {}).unwrap();
        backup(store, &file).unwrap();
        fs::remove_file(file.with_extension(format!("{number}"))).unwrap();
        fs::remove_file(file).unwrap();
    }
    if is_root() {
        lchown(&open, Some(OTHER), Some(OTHER)).unwrap();
        set_mode(&open, 0o755);
        let error = backup(store, &below.join("file")).unwrap_err().to_string();
        assert!(error.contains("is owned by user 65534"), "{error}");
    }
}

#[test]
fn a_backup_ignores_journals_of_another_user() {
    let (world, place) = setup();
    let StoreLocation::Directory(store) = &place else { unreachable!() };
    let (file, victim) = (world.path("file"), world.path("victim"));
    fs::write(&victim, "untouched").unwrap();
    for name in ["file.partial-journal", "file.partial-wal"] {
        symlink(&victim, world.path(name)).unwrap();
    }
    symlink(&victim, world.path("file.partial")).unwrap();
    let error = backup(store, &file).unwrap_err().to_string();
    assert!(error.contains("file.partial"), "{error}");
    fs::remove_file(world.path("file.partial")).unwrap();
    backup(store, &file).unwrap();
    // They were neither used nor removed.
    assert!(world.path("file.partial-journal").is_symlink());
    assert_eq!(fs::read_to_string(&victim).unwrap(), "untouched");
    crate::check_file(&file).unwrap();
    assert!(fs::symlink_metadata(world.path("file.partial")).is_err());
    // The remains of a killed backup are replaced.
    fs::remove_file(&file).unwrap();
    fs::create_dir(world.path("file.partial")).unwrap();
    set_mode(&world.path("file.partial"), 0o700);
    fs::write(world.path("file.partial/data"), "half").unwrap();
    fs::write(world.path("file.partial/data-journal"), "half").unwrap();
    backup(store, &file).unwrap();
}

#[test]
fn a_restored_directory_is_for_its_owner_only() {
    let (world, place) = setup();
    let StoreLocation::Directory(store) = &place else { unreachable!() };
    backup(store, &world.path("file")).unwrap();
    crate::restore(&world.path("file"), &world.path("new/store")).unwrap();
    for name in ["new", "new/store"] {
        let found = fs::metadata(world.path(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(found, 0o700, "{name}");
    }
}

#[test]
fn a_lock_does_not_truncate_what_a_link_leads_to() {
    let (world, place) = setup();
    let victim = world.path("victim");
    fs::write(&victim, "untouched").unwrap();
    for name in ["lock", "revision"] {
        let path = world.path("store").join(name);
        fs::rename(&path, world.path("aside")).unwrap();
        symlink(&victim, &path).unwrap();
        assert!(open(&place).is_err(), "{name}");
        assert_eq!(fs::read_to_string(&victim).unwrap(), "untouched", "{name}");
        fs::rename(world.path("aside"), &path).unwrap();
        drop(open(&place).unwrap());
    }
}
