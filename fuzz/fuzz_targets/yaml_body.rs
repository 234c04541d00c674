//! Fuzzes YAML bodies. Decoded bodies survive a round trip.
#![no_main]

use libfuzzer_sys::fuzz_target;
use windlass_api::decode;
use windlass_fuzz::run_with_time_limit;

fuzz_target!(|data: &[u8]| {
    let Ok(read) = run_with_time_limit(data, || decode::yaml(data)) else { return };
    assert!(read.value.is_object());
    let written = decode::to_yaml(&read.value);
    let again = run_with_time_limit(written.as_bytes(), || decode::yaml(written.as_bytes()));
    assert_eq!(again.map(|read| read.value), Ok(read.value), "{written}");
});
