//! Label and field selectors.
#![no_main]

use libfuzzer_sys::fuzz_target;
use windlass_api::selector::{fields, labels};
use windlass_fuzz::timed;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    timed(data, || {
        if let Ok(selector) = labels::Selector::parse(text) {
            let _ = selector.matches(|_| Some("a"));
            let _ = selector.matches(|_| None);
        }
        if let Ok(selector) = fields::Selector::parse(text) {
            let _ = selector.matches(|_| Some("default"));
            let _ = selector.check_supported(&["metadata.name"]);
        }
    });
});
