//! Canaries in all encodings that would leak a secret.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use rand::Rng as _;

/// Length of a substring of a secret that counts as a leak.
const PART: usize = 12;

/// Strings to search for, each with a description.
#[derive(Default)]
pub struct CanaryStrings(Vec<(String, String)>);

impl CanaryStrings {
    /// Creates a canary; `what` describes where it is sent.
    pub fn add_canary(&mut self, what: &str) -> String {
        // No base64 text has this length, so it is never decoded as such.
        self.add_canary_of_length(what, 41)
    }

    /// Creates a canary of a fixed length.
    pub fn add_canary_of_length(&mut self, what: &str, length: usize) -> String {
        let alphabet = b"abcdefghijklmnopqrstuvwxyz0123456789";
        let mut random = rand::rng();
        let pick = |_| alphabet[random.random_range(0..alphabet.len())] as char;
        let canary: String = (0..length).map(pick).collect();
        self.add(what, &canary);
        canary
    }

    /// Adds a secret that was generated elsewhere.
    pub fn add(&mut self, what: &str, secret: &str) {
        self.0.push((what.to_owned(), secret[..PART].to_owned()));
        let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
        self.0.push((format!("{what} in hexadecimal"), hex[..2 * PART].to_owned()));
        // The base64 form of a text depends on its offset modulo three; its neighbors affect the
        // first and last characters.
        for before in 0..3 {
            let shifted = [&vec![0; before], secret.as_bytes()].concat();
            for engine in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
                let encoded = engine.encode(&shifted);
                let inner = &encoded[if before == 0 { 0 } else { 4 }..];
                self.0.push((format!("{what} in base64"), inner[..PART].to_owned()));
            }
        }
    }

    /// Returns the first canary in `text`, with its line.
    pub fn find_leak(&self, place: &str, text: &str) -> Option<String> {
        self.0.iter().find_map(|(what, needle)| {
            let at = text.find(needle)?;
            let line = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
            let end = text[at..].find('\n').map_or(text.len(), |end| at + end);
            let shown: String = text[line..end].chars().take(600).collect();
            Some(format!("the {what} is in {place}: {shown}"))
        })
    }
}

#[test]
fn canaries_are_found_in_every_form() {
    let mut needles = CanaryStrings::default();
    let canary = needles.add_canary("canary");
    let found = |text: &str| needles.find_leak("a text", text).is_some();
    for before in ["", "a", "ab", "abc"] {
        let whole = format!("{before}{canary}:after");
        assert!(found(&whole), "{whole}");
        assert!(found(&STANDARD_NO_PAD.encode(&whole)), "{whole}");
        assert!(found(&format!("data: {}", URL_SAFE_NO_PAD.encode(&whole))), "{whole}");
    }
    assert!(found(&canary.bytes().map(|byte| format!("{byte:02x}")).collect::<String>()));
    assert!(found(&canary[..PART]));
    assert!(!found(&canary[1..PART]));
    assert!(!found("nothing to see"));
}
