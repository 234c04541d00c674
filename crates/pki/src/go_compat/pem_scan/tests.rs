use super::*;

/// Returns label, header flag and contents of each block.
fn scanned(text: &str) -> Vec<(String, bool, Vec<u8>)> {
    let label = |label: &[u8]| String::from_utf8(label.to_vec()).unwrap();
    let blocks = blocks(text.as_bytes());
    blocks.map(|block| (label(block.label), block.has_headers, block.contents)).collect()
}

/// Returns the number of blocks; each must contain "ab".
fn count_blocks(text: &str) -> usize {
    let blocks = scanned(text);
    assert!(blocks.iter().all(|block| block.2 == b"ab"), "{text:?}: {blocks:?}");
    blocks.len()
}

const BLOCK: &str = "-----BEGIN X-----\nYWI=\n-----END X-----\n";

#[test]
fn reads_every_shape_that_go_reads() {
    let table = [
        (BLOCK.to_owned(), 1),
        (BLOCK.trim_end().to_owned(), 1),
        (BLOCK.replace('\n', "\r\n"), 1),
        (BLOCK.replace("-\n", "- \t\n"), 1),
        (format!("text\n{BLOCK}more\n{BLOCK}end"), 2),
        (BLOCK.repeat(3), 3),
        (BLOCK.replace("YWI=", "Y W\tI\r\n="), 1),
        (BLOCK.replace("YWI=", "YWJ="), 1),
        (BLOCK.replace("YWI=", "\nYWI=\n\n"), 1),
        // An unterminated block does not hide the blocks after it.
        (format!("-----BEGIN X-----\nYWI=\n{BLOCK}"), 1),
        (format!("-----BEGIN X-----\n-----BEGIN Y-----\n{BLOCK}"), 1),
        // Unparsable blocks are skipped.
        (BLOCK.replace("END X", "END Y"), 0),
        (format!("{}{BLOCK}", BLOCK.replace("END X", "END Y")), 1),
        (format!("{}{BLOCK}", BLOCK.replace("YWI=", "YWI")), 1),
        (format!("{}{BLOCK}", BLOCK.replace("YWI=", "YWI=YWI=")), 1),
        (format!("{}{BLOCK}", BLOCK.replace("YWI=", "Y=I=")), 1),
        (format!("{}{BLOCK}", BLOCK.replace("YWI=", "*")), 1),
        (format!("text {BLOCK}"), 0),
        (format!("\u{feff}{BLOCK}"), 0),
        (BLOCK.replace("\n-----END", " -----END"), 0),
        (BLOCK.replace("END X-----", "END X----- x"), 0),
        (BLOCK.replace("END X-----", "END X----"), 0),
        (BLOCK.replace("BEGIN X-----", "BEGIN X----"), 0),
        (String::new(), 0),
        ("-----BEGIN ".to_owned(), 0),
        ("-----BEGIN X-----".to_owned(), 0),
        ("\n-----END X-----".to_owned(), 0),
        ("-----BEGIN X-----\n-----END ".to_owned(), 0),
    ];
    for (text, count) in table {
        assert_eq!(count_blocks(&text), count, "{text:?}");
    }
}

#[test]
fn sees_labels_headers_and_empty_blocks() {
    let block = |label: &str, headers, contents: &[u8]| (label.to_owned(), headers, contents.to_vec());
    let table = [
        ("-----BEGIN A B-----\n-----END A B-----\n", vec![block("A B", false, b"")]),
        ("-----BEGIN -----\nYWI=\n-----END -----\n", vec![block("", false, b"ab")]),
        ("-----BEGIN X-----\na: b\n\nYWI=\n-----END X-----", vec![block("X", true, b"ab")]),
        ("-----BEGIN X-----\na: b\nYWI=\n-----END X-----", vec![block("X", true, b"ab")]),
        ("-----BEGIN X-----\n:\n\n-----END X-----", vec![block("X", true, b"")]),
        // A line is required between the headers and END.
        ("-----BEGIN X-----\na: b\n-----END X-----\n", vec![]),
        ("-----BEGIN X:-----\nYWI=\n-----END X:-----\n", vec![block("X:", false, b"ab")]),
        ("-----BEGIN X:-----\n-----END X:-----\n", vec![]),
    ];
    for (text, blocks) in table {
        assert_eq!(scanned(text), blocks, "{text:?}");
    }
}
