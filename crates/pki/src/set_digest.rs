//! Order-independent digests of certificate sets.

use std::collections::BTreeSet;

use aws_lc_rs::digest::{SHA256, digest};

/// Returns the SHA-256 of a certificate's DER.
pub type Fingerprint = [u8; 32];

/// The SHA-256 of a certificate's DER.
pub fn fingerprint(der: &[u8]) -> Fingerprint {
    let mut fingerprint = Fingerprint::default();
    fingerprint.iter_mut().zip(digest(&SHA256, der).as_ref()).for_each(|(to, from)| *to = *from);
    fingerprint
}

/// Returns the digest of a certificate set: the SHA-256 of the distinct fingerprints in ascending
/// order. Node agents report it, and controllers compare it with the published set.
pub fn certificate_set_digest<'a>(fingerprints: impl IntoIterator<Item = &'a Fingerprint>) -> Fingerprint {
    let sorted: BTreeSet<&Fingerprint> = fingerprints.into_iter().collect();
    fingerprint(&sorted.into_iter().flatten().copied().collect::<Vec<u8>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_repetition_do_not_matter() {
        let [a, b] = [fingerprint(b"a"), fingerprint(b"b")];
        let digest = certificate_set_digest([&a, &b]);
        assert_eq!(certificate_set_digest([&b, &a, &b]), digest);
        assert_ne!(certificate_set_digest([&a]), digest);
        assert_ne!(certificate_set_digest([&a]), a);
    }
}
