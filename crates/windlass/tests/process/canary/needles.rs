//! The canaries, in all the forms in which they would give a secret away.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use rand::Rng as _;

/// This much of a secret is too much.
const PART: usize = 12;

/// What to search for, each with what it is.
#[derive(Default)]
pub struct CanaryStrings(Vec<(String, String)>);

impl CanaryStrings {
    /// A new canary; `what` says where it is going to be.
    pub fn add_canary(&mut self, what: &str) -> String {
        // Of a length that base64 cannot have, so that it is never taken for it.
        self.add_canary_of_length(what, 41)
    }

    /// A canary of a certain length, for what has one.
    pub fn add_canary_of_length(&mut self, what: &str, length: usize) -> String {
        let alphabet = b"abcdefghijklmnopqrstuvwxyz0123456789";
        let mut random = rand::rng();
        let pick = |_| alphabet[random.random_range(0..alphabet.len())] as char;
        let canary: String = (0..length).map(pick).collect();
        self.add(what, &canary);
        canary
    }

    /// A secret that somebody else made up.
    pub fn add(&mut self, what: &str, secret: &str) {
        self.0.push((what.to_owned(), secret[..PART].to_owned()));
        let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
        self.0.push((format!("{what} in hexadecimal"), hex[..2 * PART].to_owned()));
        // In base64 a text looks different by where in its group of three it begins; what comes
        // before and after it decides the characters at its ends.
        for before in 0..3 {
            let shifted = [&vec![0; before], secret.as_bytes()].concat();
            for engine in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
                let encoded = engine.encode(&shifted);
                let inner = &encoded[if before == 0 { 0 } else { 4 }..];
                self.0.push((format!("{what} in base64"), inner[..PART].to_owned()));
            }
        }
    }

    /// The first canary in `text`, and the line it is in.
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
