//! Fuzzes label and field selectors.
#![no_main]

use libfuzzer_sys::fuzz_target;
use windlass_api::selector::{fields, labels};
use windlass_fuzz::run_with_time_limit;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    run_with_time_limit(data, || {
        if let Ok(selector) = labels::LabelSelector::parse(text) {
            let _ = selector.matches(|_| Some("a"));
            let _ = selector.matches(|_| None);
        }
        if let Ok(selector) = fields::FieldSelector::parse(text) {
            let _ = selector.matches(|_| Some("default"));
        }
    });
});
