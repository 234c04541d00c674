//! Fuzzes DER certificates, both foreign and our own, and CRLs.
#![no_main]

use libfuzzer_sys::fuzz_target;
use windlass_fuzz::run_with_time_limit;
use windlass_pki::{Certificate, CertificateRevocationList, ForeignCertificate};

fuzz_target!(|data: &[u8]| {
    run_with_time_limit(data, || {
        if let Ok(certificate) = ForeignCertificate::from_der(data) {
            assert_eq!(certificate.der(), data);
            let _ = (certificate.subject().common_name(), certificate.subject().organizations());
            let _ = certificate.public_key().pod_key_type();
            let _ = certificate.public_key().to_public_key();
        }
        let _ = ForeignCertificate::several_from_der(data);
        if let Ok(certificate) = Certificate::from_der(data) {
            let _ = (certificate.to_pem(), certificate.authority_id());
        }
        if let Ok(list) = CertificateRevocationList::from_der(data) {
            assert_eq!(list.entries().count(), list.len());
            let _ = list.to_pem();
        }
    });
});
