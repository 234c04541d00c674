//! Signature paths from a chain to a trust anchor.

use super::certificate::ForeignCertificate;

/// Returns true if signatures lead from the first certificate of the chain to one of the anchors,
/// through other certificates of the chain where needed. Ignores validity and CA constraints: the
/// result says which anchor a certificate was issued under, not whether to trust it.
pub fn leads_to_anchor(chain: &[ForeignCertificate], anchors: &[ForeignCertificate]) -> bool {
    let Some((mut current, mut rest)) =
        chain.split_first().map(|(leaf, rest)| (leaf, rest.iter().collect::<Vec<_>>()))
    else {
        return false;
    };
    loop {
        let is_anchor = |anchor: &ForeignCertificate| anchor.der() == current.der();
        if anchors.iter().any(|anchor| is_anchor(anchor) || current.is_issued_by(anchor)) {
            return true;
        }
        // Each certificate is visited once, so the loop terminates.
        let Some(next) = rest.iter().position(|issuer| current.is_issued_by(issuer)) else {
            return false;
        };
        current = rest.swap_remove(next);
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;
    use crate::{CertificateAuthority, PrivateKey, Serial, Subject, SystemRandom, Validity};

    fn validity() -> Validity {
        Validity::new(datetime!(2026-01-01 0:00 UTC), datetime!(2027-01-01 0:00 UTC)).unwrap()
    }

    fn serial() -> Serial {
        Serial::random(&SystemRandom::new()).unwrap()
    }

    fn root(name: &str) -> CertificateAuthority {
        let (subject, key) = (Subject::new(name, &[]).unwrap(), PrivateKey::generate().unwrap());
        CertificateAuthority::self_signed(&subject, validity(), key, serial()).unwrap()
    }

    fn below(above: &CertificateAuthority, name: &str) -> CertificateAuthority {
        let (subject, key) = (Subject::new(name, &[]).unwrap(), PrivateKey::generate().unwrap());
        above.intermediate(&subject, validity(), key, serial()).unwrap()
    }

    fn read(authorities: &[&CertificateAuthority]) -> Vec<ForeignCertificate> {
        let read = |each: &&CertificateAuthority| ForeignCertificate::from_der(each.certificate().der());
        authorities.iter().map(read).collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn signatures_lead_to_an_anchor_or_they_do_not() {
        let (top, namesake, other) = (root("top"), root("top"), root("other"));
        let middle = below(&top, "middle");
        let leaf = below(&middle, "leaf");
        let table: [(&[&CertificateAuthority], &[&CertificateAuthority], bool); 11] = [
            (&[&leaf, &middle], &[&top], true),
            (&[&leaf, &middle, &top], &[&top], true),
            (&[&leaf, &other, &middle], &[&other, &top], true),
            (&[&leaf], &[&middle], true),
            (&[&leaf], &[&leaf], true),
            (&[&top], &[&top], true),
            // The same name with another key.
            (&[&leaf, &middle], &[&namesake], false),
            (&[&leaf], &[&top], false),
            (&[&leaf, &middle, &top], &[&other], false),
            (&[&leaf, &middle], &[], false),
            (&[], &[&top], false),
        ];
        for (index, (chain, anchors, leads)) in table.into_iter().enumerate() {
            assert_eq!(leads_to_anchor(&read(chain), &read(anchors)), leads, "{index}");
        }
    }
}
