//! Fuzzes the three patch formats on a pod.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

use serde_json::{Value, json};
use windlass_api::patch;
use windlass_api::schema::Schema;
use windlass_fuzz::run_with_time_limit;

static POD: LazyLock<Value> = LazyLock::new(|| {
    json!({
        "metadata": {"name": "p", "labels": {"a": "b"}, "finalizers": ["example.com/f"]},
        "spec": {
            "containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}]}],
            "volumes": [{"name": "v", "emptyDir": {}}],
        },
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    })
});

fuzz_target!(|data: &[u8]| {
    let schema = Schema::get();
    let pod = schema.lookup("io.k8s.api.core.v1.Pod").expect("a known type");
    let target = &*POD;
    run_with_time_limit(data, || {
        let _ = patch::json(target, data);
        let Ok(read) = serde_json::from_slice::<Value>(data) else { return };
        let merged = patch::merge(target, read.clone());
        assert!(merged.is_object() || !read.is_object());
        let _ = patch::strategic(schema, pod, target, read);
    });
});
