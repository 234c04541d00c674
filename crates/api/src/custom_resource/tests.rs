//! The structs of custom resources have the fields of their types in the schema.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::{Serialize, forward_to_deserialize_any};
use serde_json::{Value, json};

use super::*;
use crate::ca_rotation::{self, *};
use crate::conditions::ObjectCondition;
use crate::ledger_segment::{self, LedgerSegmentSpec};
use crate::node_trust::{self, NodeTrustBundle, NodeTrustSource, NodeTrustStatus};
use crate::revocation::{
    self, CertificateRevocationListSpec, CertificateRevocationSpec, CertificateRevocationStatus,
};
use crate::signer::{self, *};
use crate::trust_bundle::{self, *};

/// Ends the derived deserialization of a struct with the names of its fields.
struct FieldNames;

#[derive(Debug)]
struct FoundNames(Vec<&'static str>);

impl fmt::Display for FoundNames {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}", self.0)
    }
}

impl std::error::Error for FoundNames {}

impl de::Error for FoundNames {
    fn custom<T: fmt::Display>(message: T) -> Self {
        panic!("{message}")
    }
}

impl<'de> Deserializer<'de> for FieldNames {
    type Error = FoundNames;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, FoundNames> {
        panic!("not a struct")
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, FoundNames> {
        Err(FoundNames(fields.to_vec()))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// A value with every field of its shape.
fn sample(shape: &ValueShape) -> Value {
    match shape {
        ValueShape::Bool => json!(true),
        ValueShape::Int32 | ValueShape::Int64 => json!(7),
        ValueShape::Float => json!(0.5),
        ValueShape::List(of) => json!([sample(of)]),
        ValueShape::Map(of) => json!({"key": sample(of)}),
        ValueShape::Object(id) => {
            let fields = Schema::get().get_type(*id).fields.iter();
            let value = |field: &SchemaField| match (&field.shape, field.one_of.first()) {
                (ValueShape::String, Some(first)) => json!(first),
                (shape, _) => sample(shape),
            };
            fields.map(|field| (field.name.to_owned(), value(field))).collect()
        }
        _ => json!("text"),
    }
}

/// Compares a struct with its type: the names of fields, and what they can hold.
fn check<T: for<'de> Deserialize<'de>>(package: &str, name: &str) -> T {
    let schema = Schema::get();
    let id = schema.lookup(&format!("{package}.{name}")).unwrap();
    let mut found = T::deserialize(FieldNames).err().unwrap().0;
    found.sort_unstable();
    let fields = schema.get_type(id).fields.iter().map(|field| field.name);
    // The head of an object is not part of its struct.
    let is_head = schema.get_type(id).field("apiVersion").is_some();
    let wanted = fields.filter(|name| !is_head || !["apiVersion", "kind"].contains(name));
    assert_eq!(found, wanted.collect::<Vec<_>>(), "{name}");
    serde_json::from_value(sample(&ValueShape::Object(id))).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Compares a struct that is written, too.
fn check_written<T: for<'de> Deserialize<'de> + Serialize>(package: &str, name: &str) {
    let object: T = check(package, name);
    let id = Schema::get().lookup(&format!("{package}.{name}")).unwrap();
    assert_eq!(serde_json::to_value(object).unwrap(), sample(&ValueShape::Object(id)), "{name}");
}

#[test]
fn node_trust_has_the_fields_of_the_schema() {
    let package = "dev.windlass.v1alpha1";
    check_written::<NodeTrustStatus>(package, "NodeTrustStatus");
    check_written::<NodeTrustSource>(package, "NodeTrustSource");
    check_written::<NodeTrustBundle>(package, "NodeTrustBundle");
    let limits = node_trust::limits();
    let all = [limits.sources, limits.bundles, limits.volumes, limits.message_bytes];
    assert!(all.iter().all(|limit| (256..=1024).contains(limit)), "{limits:?}");
}

#[test]
fn signer_has_the_fields_of_the_schema() {
    let package = "dev.windlass.v1alpha1";
    check_written::<SignerSpec>(package, "SignerSpec");
    check_written::<SignerStatus>(package, "SignerStatus");
    check_written::<ObjectCondition>(package, "SignerCondition");
    check_written::<SignerAuthority>(package, "SignerAuthority");
    let schema = Schema::get();
    let status = schema.get_type(schema.lookup("dev.windlass.v1alpha1.SignerStatus").unwrap());
    let most = status.field("authorities").unwrap().limits.max;
    assert_eq!(most, Some(signer::MAX_AUTHORITIES));
}

#[test]
fn ca_rotation_has_the_fields_of_the_schema() {
    let package = "dev.windlass.v1alpha1";
    check_written::<CaRotationSpec>(package, "CARotationSpec");
    check_written::<CaRotationCanary>(package, "CARotationCanary");
    check_written::<CaRotationRetirement>(package, "CARotationRetirement");
    check_written::<CaRotationStatus>(package, "CARotationStatus");
    check_written::<ObjectCondition>(package, "CARotationCondition");
    check_written::<CaRotationAuthority>(package, "CARotationAuthority");
    check_written::<CaRotationConsumers>(package, "CARotationConsumers");
    check_written::<CaRotationLeaves>(package, "CARotationLeaves");
    check_written::<CaRotationLaggard>(package, "CARotationLaggard");
    check_written::<CaRotationStep>(package, "CARotationStep");
}

#[test]
fn ledger_and_revocations_have_the_fields_of_the_schema() {
    let package = "dev.windlass.v1alpha1";
    check_written::<LedgerSegmentSpec>(package, "LedgerSegmentSpec");
    check_written::<CertificateRevocationSpec>(package, "CertificateRevocationSpec");
    check_written::<CertificateRevocationStatus>(package, "CertificateRevocationStatus");
    check_written::<CertificateRevocationListSpec>(package, "CertificateRevocationListSpec");
}

#[test]
fn no_two_resources_share_a_list_kind() {
    let revocations = revocation::RESOURCE;
    assert_eq!(revocations.list_kind(), "CertificateRevocationItemList");
    assert_ne!(revocations.list_kind(), revocation::LIST_RESOURCE.kind);
    assert_eq!(revocation::LIST_RESOURCE.list_kind(), "CertificateRevocationListList");
}

#[test]
fn bundle_has_the_fields_of_the_schema() {
    let package = "io.cert-manager.trust.v1alpha1";
    check::<Bundle>(package, "Bundle");
    check::<BundleSpec>(package, "BundleSpec");
    check::<BundleSource>(package, "BundleSource");
    check::<ObjectSource>(package, "SourceObject");
    check::<TrustBundleSource>(package, "SourceTrustBundle");
    check::<BundleTarget>(package, "BundleTarget");
    check::<TargetTemplate>(package, "TargetTemplate");
    check::<TrustBundleTemplate>(package, "TargetTrustBundle");
    check::<TargetMetadata>(package, "TargetMetadata");
    check::<AdditionalFormats>(package, "AdditionalFormats");
    check::<JksKeystore>(package, "JKS");
    check::<Pkcs12Keystore>(package, "PKCS12");
    check_written::<BundleStatus>(package, "BundleStatus");
    check_written::<BundleCondition>(package, "Condition");
    check_written::<SourceStatus>(package, "SourceStatus");
    check_written::<SourceStatusBundle>(package, "SourceStatusBundle");
}

#[test]
fn custom_resources_have_a_type() {
    for resource in [
        node_trust::RESOURCE,
        trust_bundle::RESOURCE,
        signer::RESOURCE,
        ca_rotation::RESOURCE,
        ledger_segment::RESOURCE,
        revocation::RESOURCE,
        revocation::LIST_RESOURCE,
    ] {
        let ty = Schema::get().get_type(resource.type_id());
        assert!(!ty.columns.is_empty());
        assert_eq!(resource.api_version, format!("{}/{}", resource.group, resource.version));
    }
}
