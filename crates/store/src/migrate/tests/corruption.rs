//! Export files that were changed.

use super::*;

/// Creates a small export; returns the fixture, the file and its text.
fn small_export() -> (MigrationFixture, PathBuf, String) {
    let world = MigrationFixture::new();
    let old = world.directory("old");
    let store = open(&old).unwrap();
    for (key, value) in [("a/1", "{}"), ("a/2", "{\"x\":\"y\"}"), ("b", "1")] {
        put(store.as_ref(), key, value);
    }
    put(store.as_ref(), "bytes", vec![255, 0]);
    drop(store);
    let file = world.path("file");
    export(&old, &file, &mut ignore_events()).unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    (world, file, text)
}

/// Imports a changed file; nothing may have been written.
fn import_error(world: &MigrationFixture, file: &Path, bytes: &[u8]) -> String {
    std::fs::write(file, bytes).unwrap();
    let new = world.path("new");
    let error = refusal_message(import(&StoreLocation::Directory(new.clone()), file, &mut ignore_events()));
    assert!(!new.exists(), "{error}");
    error
}

#[test]
fn no_bit_can_be_flipped() {
    let (world, file, text) = small_export();
    for at in 0..text.len() {
        for bit in 0..8 {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1 << bit;
            import_error(&world, &file, &bytes);
        }
    }
}

#[test]
fn corrupt_files_report_the_cause() {
    let (world, file, text) = small_export();
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let without = |n: usize| [&lines[..n], &lines[n + 1..]].concat().concat();
    let mut swapped = lines.clone();
    swapped.swap(1, 2);
    let twice = [&lines[..2], &lines[1..]].concat().concat();
    let cut = &text[..text.len() - 1];
    let half = &text[..lines[0].len() + 10];
    for (bytes, words) in [
        ("", "is corrupt: it is empty"),
        ("hello\n", "it is not an export of a store"),
        (
            &text.replace("\"version\":1", "\"version\":2"),
            "has data format 2, but this program supports format 1",
        ),
        (&without(0), "it is not an export of a store"),
        (&without(2), "it has 3 objects and should have 4"),
        (&without(lines.len() - 1), "it is truncated after 4 objects"),
        (lines[0], "it is truncated after 0 objects"),
        (cut, "it is truncated or too long"),
        (half, "line 2: it is truncated or too long"),
        (&swapped.concat(), "line 3: its key is out of order"),
        (&twice, "line 3: its key is out of order"),
        (&format!("{text}{}", lines[1]), "it follows the end record"),
        (&text.replace("{\\\"x\\\"", "{\\\"z\\\""), "its digest does not match"),
        (&text.replace("\"modified\":2", "\"modified\":9"), "its digest does not match"),
        (&text.replace("\"key\":\"b\"", "\"key\":\"\""), "line 4: it has no key"),
        (&text.replace("\"value\":\"1\"", "\"what\":\"1\""), "line 4: it is not a valid object"),
        (&text.replace(",\"value\":\"1\"", ""), "line 4: it must have exactly one value"),
    ] {
        let error = import_error(&world, &file, bytes.as_bytes());
        assert!(error.contains(words), "{words}: {error}");
        assert!(error.contains(file.to_str().unwrap()), "{error}");
    }
    std::fs::write(&file, &text).unwrap();
    assert_eq!(import(&world.directory("new"), &file, &mut ignore_events()).unwrap().objects, 4);
}
