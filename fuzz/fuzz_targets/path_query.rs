//! Fuzzes the path and query of a URL. The first byte selects the method.
#![no_main]

use http::Method;
use libfuzzer_sys::fuzz_target;
use windlass_fuzz::run_with_time_limit;
use windlass_server::fuzzing::{DeleteOptions, ListOptions, QueryParameters, RequestInfo, WriteOptions};

const METHODS: &[Method] =
    &[Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::HEAD];

fuzz_target!(|data: &[u8]| {
    let Some((first, rest)) = data.split_first() else { return };
    let Ok(url) = std::str::from_utf8(rest) else { return };
    let method = &METHODS[usize::from(*first) % METHODS.len()];
    let (path, query) =
        url.split_once('?').map_or((url, None), |(path, query)| (path, Some(query)));
    run_with_time_limit(data, || {
        let query = QueryParameters::parse(query);
        let watch = query.flag("watch").unwrap_or_default();
        let selected = query.first("fieldSelector");
        if let Ok(info) = RequestInfo::parse(method, path, watch, selected) {
            assert!(info.path.starts_with('/'), "{info:?}");
        }
        let _ = ListOptions::parse(&query, watch);
        let _ = WriteOptions::parse(&query, "CreateOptions");
        let _ = DeleteOptions::from_query(&query);
    });
});
