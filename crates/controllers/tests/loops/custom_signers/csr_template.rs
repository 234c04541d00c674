//! Builds certificate signing requests as a client does.

use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use windlass_pki::{PrivateKey, pem};
use x509_cert::der::asn1::{Any, BitString, Ia5String, ObjectIdentifier, OctetString, SetOfVec};
use x509_cert::der::{Decode as _, Encode as _};
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::name::Name;
use x509_cert::request::{CertReq, CertReqInfo, ExtensionReq, Version};
use x509_cert::spki::{AlgorithmIdentifier, SubjectPublicKeyInfoOwned};

use crate::fixture::object;

/// Content of a request; its P-256 key is newly generated.
#[derive(Clone, Copy, Debug)]
pub struct CsrTemplate<'a> {
    pub signer: &'a str,
    /// Subject in RFC 4514 format; empty for none.
    pub subject: &'a str,
    /// Names with the prefix `DNS:`, `IP:`, `EMAIL:` or `URI:`.
    pub names: &'a [&'a str],
    pub usages: &'a [&'a str],
    pub seconds: Option<i32>,
}

impl CsrTemplate<'_> {
    pub async fn create(&self, api: &Api<CertificateSigningRequest>, name: &str) {
        let mut request: CertificateSigningRequest = object(json!({
            "metadata": {"name": name},
            "spec": {
                "request": "",
                "signerName": self.signer,
                "usages": self.usages,
                "expirationSeconds": self.seconds,
            },
        }));
        request.spec.request = ByteString(self.encode_pem().into_bytes());
        api.create(&PostParams::default(), &request).await.unwrap();
    }

    fn encode_pem(&self) -> String {
        let key = PrivateKey::generate().unwrap();
        let extension = Extension {
            extn_id: ObjectIdentifier::new_unwrap("2.5.29.17"),
            critical: false,
            extn_value: OctetString::new(parse_alt_names(self.names).to_der().unwrap()).unwrap(),
        };
        let mut attributes = SetOfVec::new();
        if !self.names.is_empty() {
            attributes.insert(ExtensionReq(vec![extension]).try_into().unwrap()).unwrap();
        }
        let info = CertReqInfo {
            version: Version::V1,
            subject: parse_subject(self.subject),
            public_key: SubjectPublicKeyInfoOwned::from_der(key.public_key().as_der()).unwrap(),
            attributes,
        };
        let signature = key.sign(&info.to_der().unwrap()).unwrap();
        let request = CertReq {
            info,
            algorithm: AlgorithmIdentifier::<Any> {
                oid: ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.2"),
                parameters: None,
            },
            signature: BitString::from_bytes(&signature).unwrap(),
        };
        pem::encode("CERTIFICATE REQUEST", &request.to_der().unwrap()).to_string()
    }
}

/// Parses a subject in RFC 4514 format, which may be empty.
fn parse_subject(text: &str) -> Name {
    if text.is_empty() { Name::default() } else { text.parse().unwrap() }
}

fn parse_alt_names(names: &[&str]) -> SubjectAltName {
    let name = |name: &&str| {
        let (kind, name) = name.split_once(':').unwrap();
        let text = || Ia5String::new(name).unwrap();
        match kind {
            "DNS" => GeneralName::DnsName(text()),
            "EMAIL" => GeneralName::Rfc822Name(text()),
            "URI" => GeneralName::UniformResourceIdentifier(text()),
            _ => GeneralName::from(name.parse::<std::net::IpAddr>().unwrap()),
        }
    };
    SubjectAltName(names.iter().map(name).collect())
}
