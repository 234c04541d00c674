//! Fuzzes protobuf bodies. The first byte selects the type; the rest follows the envelope's magic,
//! so that no input is wasted on it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use windlass_api::decode;
use windlass_api::schema::Schema;
use windlass_fuzz::run_with_time_limit;

const TYPES: &[&str] = &[
    "io.k8s.api.certificates.v1.CertificateSigningRequest",
    "io.k8s.api.certificates.v1.ClusterTrustBundle",
    "io.k8s.api.certificates.v1.PodCertificateRequest",
    "io.k8s.api.certificates.v1alpha1.PodCertificateRequest",
    "io.k8s.api.core.v1.Pod",
    "io.k8s.api.core.v1.Secret",
    "io.k8s.api.coordination.v1.Lease",
    "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions",
];

fuzz_target!(|data: &[u8]| {
    let Some((first, rest)) = data.split_first() else { return };
    let schema = Schema::get();
    let of = schema.lookup(TYPES[usize::from(*first) % TYPES.len()]).expect("a known type");
    let body = [b"k8s\0", rest].concat();
    run_with_time_limit(data, || {
        let Ok(value) = decode::protobuf(schema, &body, |_, _| Some(of)) else { return };
        assert!(value.is_object());
    });
});
