//! What is to become of a signer's trust bundle: no I/O, so that everything can be tried in a table.

use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use time::OffsetDateTime;
use windlass_pki::limits::MAX_TRUST_BUNDLE_BYTES;
use windlass_pki::{Certificate, pem};

/// A trust anchor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anchor {
    der: Vec<u8>,
}

impl Anchor {
    /// A certificate as an anchor.
    pub fn of(certificate: &Certificate) -> Anchor {
        Anchor { der: certificate.der().to_vec() }
    }

    fn text(&self) -> String {
        pem::encode_certificates([self.der.as_slice()])
    }

    fn fingerprint(&self) -> String {
        let hash = digest(&SHA256, &self.der);
        hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// A bundle that is there.
#[derive(Clone, Debug)]
pub struct Found {
    /// Whether we made it.
    pub ours: bool,
    /// Whether it has the labels it should have.
    pub labelled: bool,
    /// What is in it.
    pub text: String,
    /// The anchor that was current when it was written.
    pub current: Option<String>,
    /// Since when the other anchors are not current.
    pub retired: Option<OffsetDateTime>,
}

/// What should be in a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// The current one first; never none.
    pub anchors: Vec<Anchor>,
    /// Since when the others are not current, if there are others.
    pub retired: Option<OffsetDateTime>,
}

impl Contents {
    /// As PEM.
    pub fn text(&self) -> String {
        self.anchors.iter().map(Anchor::text).collect()
    }

    /// Which one is current.
    pub fn current(&self) -> String {
        self.anchors.first().map(Anchor::fingerprint).unwrap_or_default()
    }
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// It is somebody else's.
    LeaveAlone,
    /// Nothing, until so long from now.
    Keep {
        /// When to look again.
        again: Option<Duration>,
    },
    /// Write this.
    Write {
        /// What should be in it.
        contents: Contents,
        /// When to look again.
        again: Option<Duration>,
    },
}

/// What to do about the bundle of a signer with this anchor.
pub fn decide(
    found: Option<&Found>,
    current: Anchor,
    now: OffsetDateTime,
    overlap: Duration,
) -> Action {
    let Some(found) = found else {
        let contents = Contents { anchors: vec![current], retired: None };
        return Action::Write { contents, again: None };
    };
    if !found.ours {
        return Action::LeaveAlone;
    }
    let replaced = found.current.as_ref() != Some(&current.fingerprint());
    // A time to come was written by a clock that was wrong.
    let age = found.retired.and_then(|since| Duration::try_from(now - since).ok());
    let since = match (replaced, found.retired, age) {
        (true, ..) => Some((now, overlap)),
        // What is there beside the anchor is not from us.
        (false, None, _) => None,
        (false, Some(_), None) => Some((now, overlap)),
        (false, Some(since), Some(age)) => {
            overlap.checked_sub(age).filter(|left| !left.is_zero()).map(|left| (since, left))
        }
    };
    let contents = match since {
        Some((since, _)) => with_old(current, &found.text, since),
        None => Contents { anchors: vec![current], retired: None },
    };
    let again = since.filter(|_| contents.retired.is_some()).map(|(_, left)| left);
    let right = found.labelled
        && !replaced
        && contents.retired == found.retired
        && contents.text() == found.text;
    if right { Action::Keep { again } } else { Action::Write { contents, again } }
}

/// An anchor, and behind it those of a bundle that fit: the newest are first.
fn with_old(current: Anchor, text: &str, since: OffsetDateTime) -> Contents {
    let old = pem::certificates(text.as_bytes()).unwrap_or_default();
    let mut size = current.text().len();
    let mut anchors = vec![current];
    for der in old {
        let anchor = Anchor { der: der.to_vec() };
        size += anchor.text().len();
        if size > MAX_TRUST_BUNDLE_BYTES {
            break;
        }
        if !anchors.contains(&anchor) {
            anchors.push(anchor);
        }
    }
    let retired = (anchors.len() > 1).then_some(since);
    Contents { anchors, retired }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: OffsetDateTime = time::macros::datetime!(2026-11-15 12:00 UTC);
    const HOUR: Duration = Duration::from_secs(3600);

    fn anchor(name: &str) -> Anchor {
        Anchor { der: name.as_bytes().to_vec() }
    }

    fn text(names: &[&str]) -> String {
        names.iter().map(|name| anchor(name).text()).collect()
    }

    /// A bundle of ours with these anchors, written when the first of them was current.
    fn found(names: &[&str], minutes: Option<i64>) -> Found {
        Found {
            ours: true,
            labelled: true,
            text: text(names),
            current: names.first().map(|name| anchor(name).fingerprint()),
            retired: minutes.map(|minutes| NOW - time::Duration::minutes(minutes)),
        }
    }

    /// What is written, since how many minutes the old ones are old, and when it is looked at again.
    type Written = (&'static [&'static str], Option<i64>, Option<u64>);

    #[test]
    fn old_anchors_stay_for_a_while() {
        let ours = |names, minutes| Some(found(names, minutes));
        let tampered = |names, said: &str| {
            Some(Found { current: Some(anchor(said).fingerprint()), ..found(names, None) })
        };
        let keep = |again: Option<u64>| Err(Some(again));
        let table: Vec<(Option<Found>, Result<Written, Option<Option<u64>>>)> = vec![
            (None, Ok((&["new"], None, None))),
            (ours(&["new"], None), keep(None)),
            (ours(&["old"], None), Ok((&["new", "old"], Some(0), Some(60)))),
            (ours(&["new", "old"], Some(0)), keep(Some(60))),
            (ours(&["new", "old"], Some(59)), keep(Some(1))),
            (ours(&["new", "old"], Some(60)), Ok((&["new"], None, None))),
            (ours(&["new", "old"], Some(600)), Ok((&["new"], None, None))),
            // The clock was set back.
            (ours(&["new", "old"], Some(-5)), Ok((&["new", "old"], Some(0), Some(60)))),
            // Replaced twice, and back again.
            (ours(&["mid", "old"], Some(30)), Ok((&["new", "mid", "old"], Some(0), Some(60)))),
            (ours(&["mid", "new"], Some(30)), Ok((&["new", "mid"], Some(0), Some(60)))),
            // Somebody changed what is in it.
            (tampered(&["new", "evil"], "new"), Ok((&["new"], None, None))),
            (tampered(&["evil"], "new"), Ok((&["new"], None, None))),
            (tampered(&[], "new"), Ok((&["new"], None, None))),
            (ours(&[], None), Ok((&["new"], None, None))),
            (Some(Found { labelled: false, ..found(&["new"], None) }), Ok((&["new"], None, None))),
            (
                Some(Found { labelled: false, ..found(&["new", "old"], Some(15)) }),
                Ok((&["new", "old"], Some(15), Some(45))),
            ),
            (Some(Found { ours: false, ..found(&["old"], None) }), Err(None)),
        ];
        for (found, wanted) in table {
            let minutes =
                |minutes: Option<u64>| minutes.map(|minutes| Duration::from_secs(60 * minutes));
            let wanted = match wanted {
                Ok((names, retired, again)) => Action::Write {
                    contents: Contents {
                        anchors: names.iter().map(|name| anchor(name)).collect(),
                        retired: retired.map(|minutes| NOW - time::Duration::minutes(minutes)),
                    },
                    again: minutes(again),
                },
                Err(Some(again)) => Action::Keep { again: minutes(again) },
                Err(None) => Action::LeaveAlone,
            };
            let action = decide(found.as_ref(), anchor("new"), NOW, HOUR);
            assert_eq!(action, wanted, "{found:?}");
        }
    }

    #[test]
    fn a_bundle_never_gets_too_long() {
        let names: Vec<String> = (0..30).map(|i| format!("{i:02}").repeat(20_000)).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let old = found(&names, None);
        let Action::Write { contents, .. } = decide(Some(&old), anchor("new"), NOW, HOUR) else {
            panic!("nothing is written")
        };
        let newest: Vec<Anchor> = ["new"].iter().chain(&names).map(|name| anchor(name)).collect();
        assert!(contents.anchors.len() > 10 && newest.starts_with(&contents.anchors));
        assert!(contents.text().len() <= MAX_TRUST_BUNDLE_BYTES);
    }
}
