//! The PKCS#10 request in `spec.request`, parsed once for all stages of a write.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use windlass_pki::{CertificateRequest, RequestError};

use super::REQUEST;
use crate::registry::object_fields::{bytes, text};

/// Result of parsing `spec.request`; the signature is not verified.
pub(crate) type ParsedCsr = Arc<Result<CertificateRequest, RequestError>>;

/// Parses `spec.request` for the first stage that needs it and gives the same result to those that follow: node restriction,
/// validation and subject restriction all judge one parsed value. Each HTTP request has its own parser.
#[derive(Default)]
pub(crate) struct CsrParser {
    /// The base64 text that was parsed last. A stage that would change it gets its change parsed, not the old value.
    last: Mutex<Option<(String, ParsedCsr)>>,
}

impl CsrParser {
    /// Returns the parsed `spec.request` of a CertificateSigningRequest.
    pub(crate) fn parse(&self, object: &Value) -> ParsedCsr {
        let source = text(object, REQUEST);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((parsed, csr)) if parsed == source => csr.clone(),
            _ => {
                let csr: ParsedCsr = Arc::new(CertificateRequest::from_pem(&bytes(object, REQUEST)));
                *last = Some((source.to_owned(), csr.clone()));
                csr
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_request_is_parsed_once_until_it_changes() {
        let parser = CsrParser::default();
        let object = json!({"spec": {"request": "bm8gcmVxdWVzdA==", "username": "a"}});
        let first = parser.parse(&object);
        assert!(first.is_err());
        let prepared = json!({"spec": {"request": "bm8gcmVxdWVzdA==", "username": "b"}});
        assert!(Arc::ptr_eq(&first, &parser.parse(&prepared)));
        let other = json!({"spec": {"request": "b3RoZXI="}});
        assert!(!Arc::ptr_eq(&first, &parser.parse(&other)));
    }
}
