//! What is told of the signers' CAs as metrics.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::CaSource;

/// Signers and what they sign with. A source that is gone is not told of.
static SIGNERS: Mutex<BTreeMap<String, Weak<CaSource>>> = Mutex::new(BTreeMap::new());

/// Tells of this source under the signer's name from now on.
pub fn report(signer: &str, source: &Arc<CaSource>) {
    let mut signers = SIGNERS.lock().unwrap_or_else(PoisonError::into_inner);
    signers.insert(signer.to_owned(), Arc::downgrade(source));
}

/// Writes the state of the signers' CAs as Prometheus text.
pub fn metrics(out: &mut String) {
    let signers = SIGNERS.lock().unwrap_or_else(PoisonError::into_inner);
    let signers: Vec<(&String, Arc<CaSource>)> =
        signers.iter().filter_map(|(name, source)| Some((name, source.upgrade()?))).collect();
    for CaMetricFamily { name, help, value } in FAMILIES {
        // Writing to a string does not fail.
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} gauge");
        for (signer, source) in &signers {
            if let Some(value) = value(source) {
                let _ = writeln!(out, "{name}{{signer=\"{signer}\"}} {value}");
            }
        }
    }
}

struct CaMetricFamily {
    name: &'static str,
    help: &'static str,
    value: fn(&CaSource) -> Option<i64>,
}

const FAMILIES: [CaMetricFamily; 2] = [
    CaMetricFamily {
        name: "windlass_signer_ca_expiration_seconds",
        help: "How long the signer's CA is still valid; negative once it has expired",
        value: CaSource::seconds_until_expiry,
    },
    CaMetricFamily {
        name: "windlass_signer_ca_degraded",
        help: "Whether the files of the signer's CA cannot be used as they are",
        value: |source| Some(i64::from(source.error().is_some())),
    },
];
