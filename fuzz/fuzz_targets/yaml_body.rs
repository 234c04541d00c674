//! Bodies in YAML. What was read and written again reads the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use windlass_api::decode;
use windlass_fuzz::timed;

fuzz_target!(|data: &[u8]| {
    let Ok(read) = timed(data, || decode::yaml(data)) else { return };
    assert!(read.value.is_object());
    let written = decode::to_yaml(&read.value);
    let again = timed(written.as_bytes(), || decode::yaml(written.as_bytes()));
    assert_eq!(again.map(|read| read.value), Ok(read.value), "{written}");
});
