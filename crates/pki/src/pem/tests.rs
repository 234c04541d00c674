use super::*;

fn labels(text: &str) -> Result<Vec<String>, PemError> {
    Ok(blocks(text.as_bytes())?.into_iter().map(|block| block.label).collect())
}

#[test]
fn reads_what_it_writes() {
    for length in [1, 2, 3, 47, 48, 49, 1000] {
        let contents = (0..=255_u8).cycle().take(length).collect::<Vec<_>>();
        let text = encode("SOMETHING", &contents);
        assert!(text.lines().all(|line| line.len() <= 64), "{}", *text);
        let read = blocks(text.as_bytes()).unwrap();
        let [block] = read.as_slice() else { panic!("{} blocks", read.len()) };
        assert_eq!(block.label, "SOMETHING");
        assert_eq!(*block.contents, contents);
    }
}

#[test]
fn accepts_the_layouts_in_use() {
    let table = [
        "-----BEGIN A-----\nAAAA\n-----END A-----",
        "-----BEGIN A-----\r\nAAAA\r\n-----END A-----\r\n",
        "# a comment: with a colon\n\n-----BEGIN A-----\nAAAA\n-----END A-----\ntext\n",
        "-----BEGIN A-----  \n  AA\n\nAA \n-----END A-----\t\n",
        "--------\n-----BEGIN A-----\nAAAA\n-----END A-----\n",
    ];
    for text in table {
        assert_eq!(labels(text).unwrap(), ["A"], "{text:?}");
    }
    assert_eq!(labels("no blocks\n").unwrap(), [""; 0]);
    assert_eq!(labels("").unwrap(), [""; 0]);
}

#[test]
fn refuses_rather_than_drops() {
    let table = [
        ("-----BEGIN A-----\nAAAA\n", PemError::Unterminated { line: 1 }),
        ("-----BEGIN A-----\nAAAA\n-----END B-----", PemError::Boundary { line: 3 }),
        ("text\n-----END A-----", PemError::Boundary { line: 2 }),
        (" -----BEGIN A-----\nAAAA\n-----END A-----", PemError::Boundary { line: 1 }),
        ("-----BEGIN A----\nAAAA\n-----END A-----", PemError::Boundary { line: 1 }),
        ("-----BEGIN -----\nAAAA\n-----END -----", PemError::Boundary { line: 1 }),
        ("-----BEGIN A\u{1b}-----\nAAAA\n-----END A\u{1b}-----", PemError::Boundary { line: 1 }),
        (
            "-----BEGIN A-----\nAAAA\n-----END A----------BEGIN A-----\nAAAA\n-----END A-----",
            PemError::Boundary { line: 3 },
        ),
        ("-----BEGIN A-----\nAAAA\n-----BEGIN A-----\nAAAA\n-----END A-----", PemError::Boundary { line: 3 }),
        ("-----BEGIN A-----\nProc-Type: 4\n\nAAAA\n-----END A-----", PemError::Headers { line: 2 }),
        ("-----BEGIN A-----\n-----END A-----", PemError::Base64 { line: 1 }),
        ("-----BEGIN A-----\nAAA\n-----END A-----", PemError::Base64 { line: 1 }),
        ("-----BEGIN A-----\nAA=A\n-----END A-----", PemError::Base64 { line: 1 }),
        ("-----BEGIN A-----\nAA A\n-----END A-----", PemError::Base64 { line: 1 }),
        ("-----BEGIN A-----\nAAA\u{fc}\n-----END A-----", PemError::Base64 { line: 1 }),
    ];
    for (text, error) in table {
        assert_eq!(labels(text).unwrap_err(), error, "{text:?}");
    }
}

#[test]
fn keeps_certificates_and_keys_apart() {
    let certificate = encode(CERTIFICATE, b"abc").to_string();
    let key = encode(PRIVATE_KEY, b"abc").to_string();
    let parameters = encode(EC_PARAMETERS, b"abc").to_string();

    let chain = format!("{certificate}{certificate}");
    assert_eq!(certificates(chain.as_bytes()).unwrap().len(), 2);
    let mixed = format!("{certificate}{key}");
    let unexpected = PemError::UnexpectedLabel { found: PRIVATE_KEY.into(), expected: CERTIFICATE };
    assert_eq!(certificates(mixed.as_bytes()).unwrap_err(), unexpected);
    assert_eq!(certificates(b"").unwrap_err(), PemError::Missing("certificate"));

    assert!(private_key(format!("{parameters}{key}").as_bytes()).is_ok());
    let error = |text: String| private_key(text.as_bytes()).map(|block| block.label).unwrap_err();
    assert_eq!(error(format!("{key}{key}")), PemError::Several("private key"));
    assert_eq!(error(String::new()), PemError::Missing("private key"));
    assert!(matches!(error(mixed), PemError::UnexpectedLabel { .. }));
}

#[test]
fn stops_at_its_limits() {
    let error = |text: String| labels(&text).unwrap_err();
    assert_eq!(error("x".repeat(MAX_PEM_BYTES + 1)), PemError::TextTooLarge);
    let many = "-----BEGIN A-----\nAAAA\n-----END A-----\n".repeat(MAX_PEM_BLOCKS + 1);
    assert_eq!(error(many), PemError::TooManyBlocks);
    let large = encode(CERTIFICATE, &vec![0; MAX_CERTIFICATE_BYTES + 3]).to_string();
    assert_eq!(error(large), PemError::BlockTooLarge { line: 1, limit: MAX_CERTIFICATE_BYTES });
    let fits = encode(CERTIFICATE, &vec![0; MAX_CERTIFICATE_BYTES]).to_string();
    assert!(labels(&fits).is_ok());
}

#[test]
fn survives_every_mutation_of_a_text() {
    let text =
        format!("comment\n{}{}", *encode(CERTIFICATE, &[7; 60]), *encode(PRIVATE_KEY, &[9; 20])).into_bytes();
    for position in 0..text.len() {
        for byte in [0, b'\n', b'-', b'=', b':', b' ', 0xff] {
            let mut mutant = text.clone();
            if let Some(place) = mutant.get_mut(position) {
                *place = byte;
            }
            let _ = blocks(&mutant);
        }
        let _ = blocks(text.get(..position).unwrap());
        let _ = blocks(text.get(position..).unwrap());
    }
}
