//! Tables of when a list is signed, and of what it contains.

use time::Duration as Span;
use windlass_pki::{CertificateAuthority, CrlTemplate, RevocationReason, Validity};
use windlass_testkit::ca_with_validity;

use super::*;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn start() -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap()
}

fn ca(name: &str) -> CertificateAuthority {
    ca_with_validity(name, Validity::lasting(start(), Span::weeks(50)).unwrap())
}

/// A certificate that was revoked at the start and expires this long after it.
fn entry(serial: u16, expires: Span) -> RevokedEntry {
    RevokedEntry {
        certificate: RevokedCertificate {
            serial: serial.to_be_bytes().to_vec(),
            revoked_at: start(),
            reason: RevocationReason::KeyCompromise,
        },
        not_after: start() + expires,
    }
}

fn serials(draft: &ListDraft) -> Vec<u16> {
    let number = |revoked: &RevokedCertificate| {
        revoked.serial.iter().fold(0_u16, |sum, octet| sum << 8 | u16::from(*octet))
    };
    draft.revoked.iter().map(number).collect()
}

fn published(ca: &CertificateAuthority, draft: &ListDraft) -> PublishedList {
    let template = CrlTemplate {
        number: draft.number,
        this_update: draft.this_update,
        next_update: draft.next_update,
        revoked: &draft.revoked,
    };
    PublishedList { number: draft.number, list: Some(ca.sign_crl(&template).unwrap()) }
}

fn signed(decision: ListDecision) -> ListDraft {
    match decision {
        ListDecision::Sign(draft) => draft,
        ListDecision::Keep(times) => panic!("nothing was signed: {times:?}"),
    }
}

fn kept(decision: ListDecision) -> OffsetDateTime {
    match decision {
        ListDecision::Keep(times) => times.check_at,
        ListDecision::Sign(draft) => panic!("it was signed: {draft:?}"),
    }
}

#[test]
fn the_first_list_is_signed_at_once() {
    let all = || vec![entry(9, Span::HOUR), entry(3, Span::HOUR), entry(5, -Span::HOUR)];
    let draft = signed(decide(None, all(), DAY, start() + Span::milliseconds(1500)));
    assert_eq!(draft.number, 1_800_000_001, "the time, so that it grows after a deletion");
    assert_eq!(
        (draft.this_update, draft.next_update),
        (start() + Span::SECOND, start() + Span::seconds(86_401))
    );
    assert_eq!((serials(&draft), draft.omitted), (vec![3, 9], 0), "without the one that has expired");
    let damaged = PublishedList { number: 1_900_000_000, list: None };
    let draft = signed(decide(Some(&damaged), all(), DAY, start()));
    assert_eq!(draft.number, 1_900_000_001);
    let last = PublishedList { number: u64::MAX, list: None };
    let draft = signed(decide(Some(&last), all(), DAY, start()));
    assert_eq!(draft.number, i64::MAX.unsigned_abs(), "the API has no larger numbers");
}

#[test]
fn a_list_is_signed_again_after_half_of_its_duration() {
    let ca = ca("ca");
    let all = || vec![entry(1, Span::weeks(9))];
    let first = published(&ca, &signed(decide(None, all(), DAY, start())));
    let at = |after: Span, duration: Duration| decide(Some(&first), all(), duration, start() + after);
    assert_eq!(kept(at(Span::ZERO, DAY)), start() + Span::hours(12));
    assert_eq!(kept(at(Span::hours(12) - Span::SECOND, DAY)), start() + Span::hours(12));
    assert_eq!(signed(at(Span::hours(12), DAY)).number, first.number + 12 * 3600);
    assert_eq!(signed(at(Span::days(3), DAY)).this_update, start() + Span::days(3));
    // A shorter duration counts at once, a longer one from the next list on.
    assert_eq!(kept(at(Span::MINUTE, DAY / 24)), start() + Span::minutes(30));
    assert_eq!(signed(at(Span::minutes(30), DAY / 24)).next_update, start() + Span::minutes(90));
    assert_eq!(kept(at(Span::MINUTE, 2 * DAY)), start() + Span::hours(12));
}

#[test]
fn changes_are_signed_within_a_limit() {
    let ca = ca("ca");
    let one = entry(1, Span::weeks(9));
    let mut other_reason = one.clone();
    other_reason.certificate.reason = RevocationReason::Superseded;
    let first = published(&ca, &signed(decide(None, vec![one.clone()], DAY, start())));
    let at =
        |revoked: &[RevokedEntry], after: Span| decide(Some(&first), revoked.to_vec(), DAY, start() + after);
    let soon = start() + Span::seconds(2);
    for (revoked, expected) in [
        (vec![one.clone(), entry(2, Span::HOUR)], vec![1, 2]),
        (vec![other_reason], vec![1]),
        (vec![], vec![]),
    ] {
        assert_eq!(kept(at(&revoked, Span::SECOND)), soon, "{expected:?}");
        assert_eq!(serials(&signed(at(&revoked, Span::seconds(2)))), expected);
        let early = signed(at(&revoked, -Span::days(1)));
        assert!(early.number > first.number, "a clock that was set back delays nothing");
    }
    let many: Vec<RevokedEntry> = (1..=5000).map(|serial| entry(serial, Span::HOUR)).collect();
    let long = published(&ca, &signed(decide(None, many, DAY, start())));
    let changed = decide(Some(&long), vec![], DAY, start() + Span::seconds(3));
    assert_eq!(kept(changed), start() + Span::seconds(7), "a long list is signed less often");
}

#[test]
fn an_expired_certificate_is_in_one_list_after_its_expiry() {
    let ca = ca("ca");
    let all = || vec![entry(1, Span::HOUR), entry(2, Span::weeks(9))];
    let first = signed(decide(None, all(), DAY, start()));
    assert_eq!(serials(&first), [1, 2]);
    let first = published(&ca, &first);
    assert_eq!(kept(decide(Some(&first), all(), DAY, start() + Span::hours(2))), start() + Span::hours(12));
    let second = signed(decide(Some(&first), all(), DAY, start() + Span::hours(12)));
    assert_eq!(serials(&second), [1, 2], "RFC 5280, section 3.3");
    let second = published(&ca, &second);
    let is_kept = decide(Some(&second), all(), DAY, start() + Span::hours(13));
    assert_eq!(kept(is_kept), start() + Span::hours(24), "no reason to sign");
    let third = signed(decide(Some(&second), all(), DAY, start() + Span::hours(24)));
    assert_eq!(serials(&third), [2]);
    let third = published(&ca, &third);
    assert_eq!(kept(decide(Some(&third), all(), DAY, start() + Span::hours(25))), start() + Span::hours(36));
}

#[test]
fn a_full_list_leaves_out_what_expires_first() {
    let ca = ca("ca");
    let all = || (1..=20_000).map(|serial| entry(serial, Span::DAY + Span::SECOND * f64::from(serial)));
    let draft = signed(decide(None, all().collect(), DAY, start()));
    let room = MAX_CRL_ENTRIES_BYTES / (ENTRY_OVERHEAD + 2);
    assert_eq!((draft.revoked.len(), draft.omitted), (room, 20_000 - room));
    assert_eq!(serials(&draft).last(), Some(&20_000), "the last to expire is there");
    let full = published(&ca, &draft);
    let der = full.list.as_ref().unwrap().der().len();
    assert!(der.div_ceil(3) * 4 < 1_048_576, "the API accepts {der} bytes");
    assert!(matches!(decide(Some(&full), all().collect(), DAY, start() + Span::HOUR), ListDecision::Keep(_)));
    let fewer = || all().skip(15_000).collect::<Vec<_>>();
    let changed = signed(decide(Some(&full), fewer(), DAY, start() + Span::HOUR));
    assert_eq!((changed.revoked.len(), changed.omitted), (5000, 0));
}
