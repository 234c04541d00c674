//! Fuzzes certificate signing requests in DER and PEM, and their signatures.
#![no_main]

use libfuzzer_sys::fuzz_target;
use windlass_fuzz::run_with_time_limit;
use windlass_pki::CertificateRequest;

fuzz_target!(|data: &[u8]| {
    run_with_time_limit(data, || {
        for request in [CertificateRequest::from_der(data), CertificateRequest::from_pem(data)] {
            let Ok(request) = request else { continue };
            let _ = request.verify_signature();
            let _ = (request.subject().common_name(), request.subject().organizations());
            let _ = request.public_key().pod_key_type();
            for extension in request.extensions() {
                let _ = (extension.oid(), extension.value());
            }
        }
    });
});
