//! Handcrafted requests, valid and odd, and properties of random ones.

use der::Encode;

use super::*;
use crate::der_syntax::encode_tlv;
use crate::policy::{
    RequestedAttributes, validate_api_client, validate_kubelet_client, validate_kubelet_serving,
};

const EXTENSION_REQUEST: [u8; 9] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 14];

/// Builder of a handcrafted certificate request.
#[derive(Default)]
pub(super) struct CraftedRequest {
    attributes: Vec<u8>,
    extensions: Vec<u8>,
}

impl CraftedRequest {
    pub(super) fn named(common_name: &str, organizations: &[&str]) -> Self {
        let mut crafted = Self::default();
        crafted.attribute(&[0x55, 4, 3], 0x0c, common_name.as_bytes());
        for organization in organizations {
            crafted.attribute(&[0x55, 4, 10], 0x0c, organization.as_bytes());
        }
        crafted
    }

    pub(super) fn attribute(&mut self, oid: &[u8], kind: u8, value: &[u8]) {
        let attribute = encode_tlv(0x30, &[encode_tlv(6, oid), encode_tlv(kind, value)].concat());
        self.attributes.extend(encode_tlv(0x31, &attribute));
    }

    pub(super) fn extension(&mut self, oid: &[u8], critical: bool, value: &[u8]) {
        let critical = if critical { vec![1, 1, 0xff] } else { Vec::new() };
        let parts = [encode_tlv(6, oid), critical, encode_tlv(4, value)];
        self.extensions.extend(encode_tlv(0x30, &parts.concat()));
    }

    pub(super) fn der(&self, key: &PrivateKey) -> Vec<u8> {
        let mut attributes = Vec::new();
        if !self.extensions.is_empty() {
            let values = encode_tlv(0x31, &encode_tlv(0x30, &self.extensions));
            attributes = encode_tlv(0x30, &[encode_tlv(6, &EXTENSION_REQUEST), values].concat());
        }
        let parts = [
            vec![2, 1, 0],
            encode_tlv(0x30, &self.attributes),
            key.public_key().as_der().to_vec(),
            encode_tlv(0xa0, &attributes),
        ];
        let body = encode_tlv(0x30, &parts.concat());
        let signature = [vec![0], key.sign(&body).unwrap()].concat();
        let algorithm = key.signature_scheme().identifier().to_der().unwrap();
        encode_tlv(0x30, &[body, algorithm, encode_tlv(3, &signature)].concat())
    }

    pub(super) fn signed(&self, key: &PrivateKey) -> CertificateRequest {
        CertificateRequest::from_der(&self.der(key)).unwrap()
    }
}

/// SplitMix64: sufficiently random, and identical in every run.
struct RequestGenerator(u64);

impl RequestGenerator {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn pick<'a, Item: ?Sized>(&mut self, items: &[&'a Item]) -> &'a Item {
        items[usize::try_from(self.below(items.len().try_into().unwrap())).unwrap()]
    }

    fn attribute(&mut self, crafted: &mut CraftedRequest) {
        let oid = match self.below(4) {
            0 => vec![0x55, 4, 3],
            1 => vec![0x55, 4, 10],
            2 => vec![0x55, 4, u8::try_from(self.below(20)).unwrap()],
            _ => self.pick(&[&[0x2a, 3][..], &[0x55, 4, 0x81, 3], &[0x09, 0x92, 0x26, 1]]).to_vec(),
        };
        let kind = *self.pick(&[&0x0c, &0x0c, &0x13, &0x16, &0x14, &0x1e, &0x02]);
        let value = self.pick(&[
            "system:nodes",
            "system:node:n1",
            "system:masters",
            "",
            "a",
            "a*b&c",
            "ä✓",
            "x\0y",
            "1 2",
        ]);
        crafted.attribute(&oid, kind, value.as_bytes());
    }

    fn names(&mut self) -> Vec<u8> {
        let mut names = Vec::new();
        for _ in 0..self.below(5) {
            let tag = *self.pick(&[&0x81, &0x82, &0x82, &0x86, &0x87, &0x87, &0x88, &0xa0, &0xa4]);
            let value: &[u8] = self.pick(&[
                b"a.example",
                b"*.b",
                b"a@b",
                b"SPIFFE://x/a b",
                b"http://u:p!@h:1/%41?q#f g",
                b"urn:x",
                &[10, 0, 0, 1],
                &[0; 16],
                &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 1, 2, 3, 4],
                b"",
                b"a\0b",
            ]);
            names.extend(encode_tlv(tag, value));
        }
        encode_tlv(0x30, &names)
    }

    fn request(&mut self) -> CraftedRequest {
        let mut crafted = match self.below(3) {
            0 => CraftedRequest::default(),
            1 => CraftedRequest::named("system:node:n1", &["system:nodes"]),
            _ => CraftedRequest::named("alice", &["b", "a"]),
        };
        for _ in 0..self.below(4) {
            self.attribute(&mut crafted);
        }
        for number in [14, 15, 17, 19, 37, 99] {
            if self.below(3) == 0 {
                let value = if number == 17 { self.names() } else { vec![0x30, 3, 1, 1, 0xff] };
                crafted.extension(&[0x55, 0x1d, number], self.below(2) == 0, &value);
            }
        }
        crafted
    }

    fn usages(&mut self) -> Vec<&'static str> {
        let all = ["client auth", "server auth", "digital signature", "key encipherment", "cert sign", "any"];
        all.into_iter().filter(|_| self.below(2) == 0).collect()
    }
}

/// The names that a signer checks in the request must be those in the certificate.
#[test]
fn names_of_random_requests_are_those_the_policy_saw() {
    let (authority, key) = (authority(), PrivateKey::generate().unwrap());
    let mut random = RequestGenerator(7);
    let (mut accepted, mut passed) = (0, 0);
    for _ in 0..3000 {
        let crafted = random.request();
        let Ok(request) = CertificateRequest::from_der(&crafted.der(&key)) else { continue };
        accepted += 1;
        let usages = random.usages();
        let issued = issue_certificate(&authority, &template(&request, &usages)).unwrap();
        let certificate = read(&issued);
        let seen = RequestedAttributes::new(&request, &usages);
        let mut organizations = certificate.subject().organizations();
        let mut asked_for = seen.organizations.clone();
        organizations.sort_unstable();
        asked_for.sort_unstable();
        assert_eq!(organizations, asked_for);
        assert_eq!(certificate.subject().common_name(), seen.common_name);
        assert_eq!(certificate.alt_names(), seen.alt_names);
        assert!(!certificate.is_authority());
        for attribute in certificate.subject().attributes() {
            let known = [3, 5, 6, 7, 8, 9, 10, 11, 17].map(|number| format!("2.5.4.{number}"));
            assert!(known.contains(&attribute.oid()), "{}", attribute.oid());
        }
        let again = RequestedAttributes {
            common_name: certificate.subject().common_name(),
            organizations: certificate.subject().organizations(),
            alt_names: certificate.alt_names(),
            usages: usages.clone(),
        };
        for policy in [validate_kubelet_serving, validate_kubelet_client, validate_api_client] {
            assert_eq!(policy(&again), policy(&seen));
            passed += u32::from(policy(&seen).is_ok());
        }
    }
    assert!(accepted > 1000 && passed > 100, "{accepted} accepted, {passed} passed a policy");
}

/// Any parsable request is issued or rejected: never with a panic, never with other names.
#[test]
fn broken_requests_do_no_harm() {
    let (authority, key) = (authority(), PrivateKey::generate().unwrap());
    let mut random = RequestGenerator(11);
    let mut read_anyway = 0;
    for _ in 0..20_000 {
        let mut der = random.request().der(&key);
        for _ in 0..=random.below(2) {
            let at = usize::try_from(random.below(der.len().try_into().unwrap())).unwrap();
            der[at] = random.next().to_le_bytes()[0];
        }
        let Ok(request) = CertificateRequest::from_der(&der) else { continue };
        read_anyway += 1;
        let wanted = CertificateTemplate {
            subject: IssuedSubject::from_name(request.subject()),
            alt_names: request.alt_names().clone(),
            usages: CertificateUsages::default(),
            validity: days(1),
            public_key: request.public_key(),
            serial: Serial::from_bytes([3; 16]),
            crl_distribution_points: Vec::new(),
        };
        match issue_certificate(&authority, &wanted) {
            Ok(issued) => assert_eq!(read(&issued).alt_names(), request.alt_names()),
            Err(Error::Lint { lint: IssuanceLint::KeyStrength, .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    assert!(read_anyway > 1000, "{read_anyway}");
}

/// Ten thousand names are many, but Kubernetes issues them.
#[test]
fn many_names_are_issued() {
    let names = (0..10_000_u32).map(|number| encode_tlv(0x82, format!("n{number}.example").as_bytes()));
    let mut crafted = CraftedRequest::named("alice", &[]);
    crafted.extension(&[0x55, 0x1d, 17], false, &encode_tlv(0x30, &names.collect::<Vec<_>>().concat()));
    let request = crafted.signed(&PrivateKey::generate().unwrap());
    let issued = issue_certificate(&authority(), &template(&request, &["client auth"])).unwrap();
    assert_eq!(read(&issued).alt_names().dns_names.len(), 10_000);
    assert_eq!(issued.warnings(), []);
}
