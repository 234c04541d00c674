//! Fuzzes JSON bodies. Decoded bodies survive a round trip.
#![no_main]

use libfuzzer_sys::fuzz_target;
use windlass_api::decode;
use windlass_fuzz::run_with_time_limit;

fuzz_target!(|data: &[u8]| {
    run_with_time_limit(data, || {
        let _ = decode::summary(data);
        let Ok(read) = decode::json(data) else { return };
        assert!(read.value.is_object());
        let again = decode::json(read.value.to_string().as_bytes());
        assert_eq!(again.map(|read| read.value), Ok(read.value));
    });
});
