//! The ConfigMap with the revocation lists of a signer, which pods mount. Pure.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::ObjectMeta;
use windlass_pki::CertificateRevocationList;

use crate::limits::MAX_CRL_CONFIG_MAP_BYTES;
use crate::signers::config::MANAGED_BY;

/// Label of ConfigMaps with revocation lists, by which they are watched.
pub const CONTENT_LABEL: (&str, &str) = ("windlass.dev/content", "crl");
/// Annotation with the signer whose lists a ConfigMap has.
pub const SIGNER_ANNOTATION: &str = "windlass.dev/signer-name";
/// Key with all lists, one after the other.
const ALL_KEY: &str = "crl.pem";

/// Lists of a signer as the content of a ConfigMap.
#[derive(Clone, Debug, PartialEq)]
pub struct ListContent {
    signer: String,
    /// PEM of each list as `AUTHORITY.pem`, and of all as `crl.pem`.
    data: BTreeMap<String, String>,
    /// DER of each list as `AUTHORITY.crl`.
    binary_data: BTreeMap<String, ByteString>,
}

/// What is done about a ConfigMap.
#[derive(Clone, Debug, PartialEq)]
pub enum ListMapAction {
    Nothing,
    Create(Box<ConfigMap>),
    Replace(Box<ConfigMap>),
    /// It stays as it is, for this reason.
    Conflict(&'static str),
}

impl ListContent {
    /// Builds the content from lists by authority id; `None` if it exceeds the size of a ConfigMap.
    pub fn new(signer: &str, lists: &BTreeMap<String, CertificateRevocationList>) -> Option<ListContent> {
        let mut content =
            ListContent { signer: signer.to_owned(), data: BTreeMap::new(), binary_data: BTreeMap::new() };
        let mut all = String::new();
        for (authority, list) in lists {
            let pem = list.to_pem();
            all.push_str(&pem);
            content.data.insert(format!("{authority}.pem"), pem);
            content.binary_data.insert(format!("{authority}.crl"), ByteString(list.der().to_vec()));
        }
        content.data.insert(ALL_KEY.to_owned(), all);
        let texts: usize = content.data.iter().map(|(key, text)| key.len() + text.len()).sum();
        let bytes: usize = content.binary_data.iter().map(|(key, bytes)| key.len() + bytes.0.len()).sum();
        (texts + bytes <= MAX_CRL_CONFIG_MAP_BYTES).then_some(content)
    }

    /// Decides what is done about the ConfigMap of a namespace.
    pub fn decide(&self, found: Option<&ConfigMap>, name: &str) -> ListMapAction {
        let Some(found) = found else {
            let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
            let map = ConfigMap { metadata, ..ConfigMap::default() };
            return ListMapAction::Create(Box::new(self.apply(map)));
        };
        if found.labels().get(MANAGED_BY.0).map(String::as_str) != Some(MANAGED_BY.1) {
            return ListMapAction::Conflict("it is not managed by Windlass");
        }
        if found.annotations().get(SIGNER_ANNOTATION) != Some(&self.signer) {
            return ListMapAction::Conflict("it belongs to another signer");
        }
        let wanted = self.apply(found.clone());
        if wanted == *found {
            ListMapAction::Nothing
        } else if found.immutable == Some(true) {
            ListMapAction::Conflict("it is immutable")
        } else {
            ListMapAction::Replace(Box::new(wanted))
        }
    }

    fn apply(&self, mut map: ConfigMap) -> ConfigMap {
        for (label, value) in [MANAGED_BY, CONTENT_LABEL] {
            map.labels_mut().insert(label.to_owned(), value.to_owned());
        }
        map.annotations_mut().insert(SIGNER_ANNOTATION.to_owned(), self.signer.clone());
        map.data = Some(self.data.clone());
        map.binary_data = Some(self.binary_data.clone()).filter(|data| !data.is_empty());
        map
    }
}

#[cfg(test)]
mod tests {
    use time::{Duration, OffsetDateTime};
    use windlass_pki::{CrlTemplate, Validity};
    use windlass_testkit::ca_with_validity;

    use super::*;

    fn lists() -> BTreeMap<String, CertificateRevocationList> {
        let now = OffsetDateTime::now_utc();
        let sign = |name: &str| {
            let (this_update, next_update) = (now, now + Duration::HOUR);
            let template = CrlTemplate { number: 1, this_update, next_update, revoked: &[] };
            let validity = Validity::lasting(now, Duration::DAY).unwrap();
            ca_with_validity(name, validity).sign_crl(&template).unwrap()
        };
        BTreeMap::from([("0a".to_owned(), sign("a")), ("0b".to_owned(), sign("b"))])
    }

    #[test]
    fn each_list_is_there_in_both_formats_and_all_together() {
        let lists = lists();
        let content = ListContent::new("a.b/c", &lists).unwrap();
        assert_eq!(content.data.keys().collect::<Vec<_>>(), ["0a.pem", "0b.pem", "crl.pem"]);
        assert_eq!(content.data["crl.pem"], lists["0a"].to_pem() + &lists["0b"].to_pem());
        assert_eq!(content.binary_data["0b.crl"].0, lists["0b"].der());
        let empty = ListContent::new("a.b/c", &BTreeMap::new()).unwrap();
        assert_eq!((empty.data["crl.pem"].as_str(), empty.binary_data.len()), ("", 0));
    }

    #[test]
    fn other_owners_are_left_alone() {
        let content = ListContent::new("a.b/c", &lists()).unwrap();
        let ListMapAction::Create(created) = content.decide(None, "crl") else { panic!() };
        assert_eq!(
            (created.name_any().as_str(), content.decide(Some(&created), "crl")),
            ("crl", ListMapAction::Nothing)
        );
        let changed = |change: fn(&mut ConfigMap)| {
            let mut map = (*created).clone();
            change(&mut map);
            content.decide(Some(&map), "crl")
        };
        let repaired = changed(|map| drop(map.data.as_mut().unwrap().remove("crl.pem")));
        assert_eq!(repaired, ListMapAction::Replace(created.clone()));
        for (change, reason) in [
            ((|map| map.labels_mut().clear()) as fn(&mut ConfigMap), "it is not managed by Windlass"),
            (|map| map.annotations_mut().clear(), "it belongs to another signer"),
            (|map| (map.data, map.immutable) = (None, Some(true)), "it is immutable"),
        ] {
            assert_eq!(changed(change), ListMapAction::Conflict(reason));
        }
        // Labels and annotations of others stay.
        let noted = |map: &mut ConfigMap| drop(map.labels_mut().insert("team".into(), "web".into()));
        assert_eq!(changed(noted), ListMapAction::Nothing);
    }
}
