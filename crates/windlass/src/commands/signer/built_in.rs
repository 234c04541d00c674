//! Descriptions of the built-in Kubernetes signers, according to the rules that Windlass applies.

use windlass_controllers::csr_signer::KubernetesSigner;

use super::signing_policy::{ANY_KEY, NO_CA, NOTHING_SIGNED, SignerDescription, SignerKind, SigningPolicy};

/// A signer that signs no requests; its name is used for trust in API servers.
pub const API_SERVING: &str = "kubernetes.io/kube-apiserver-serving";

/// Names of all built-in signers, in the order of lists.
pub const NAMES: [&str; 5] = [
    KubernetesSigner::Client.name(),
    KubernetesSigner::KubeletClient.name(),
    KubernetesSigner::KubeletServing.name(),
    KubernetesSigner::LegacyUnknown.name(),
    API_SERVING,
];

/// Describes the built-in signer of this name; `None` if it is not built in.
pub fn document(name: &str) -> Option<SignerDescription> {
    match KubernetesSigner::from_name(name) {
        Some(signer) => Some(signing(signer)),
        None if name == API_SERVING => Some(api_serving()),
        None => None,
    }
}

fn signing(signer: KubernetesSigner) -> SignerDescription {
    let login = "its certificates are client credentials: the API server verifies clients with its CA \
                 (kube-apiserver: --client-ca-file)";
    let logins = [login, "windlass up signs with pki/client-ca.crt", "not published as a bundle"];
    let serving = [
        "for the API server as a client of nodes (kube-apiserver: --kubelet-certificate-authority)",
        "windlass up signs with pki/kubelet-serving-ca.crt",
        "windlass up publishes it as ClusterTrustBundle kubernetes.io:kubelet-serving:anchors",
    ];
    let unknown = [
        "none: nothing may rely on its certificates",
        "windlass up signs with pki/kubelet-serving-ca.crt",
        "not published as a bundle",
    ];
    let trust = match signer {
        KubernetesSigner::Client | KubernetesSigner::KubeletClient => logins,
        KubernetesSigner::KubeletServing => serving,
        KubernetesSigner::LegacyUnknown => unknown,
    };
    SignerDescription {
        name: signer.name().to_owned(),
        kind: SignerKind::BuiltIn,
        trust_distribution: lines(&trust),
        requests: Some(terms(signer)),
        pod_requests: None,
        ca_bit: NO_CA,
    }
}

/// Describes the policy of a signer. Where it sets no limit, the rules of Kubernetes in
/// `windlass_pki` apply.
fn terms(signer: KubernetesSigner) -> SigningPolicy {
    SigningPolicy {
        permitted_subjects: lines(subjects(signer)),
        permitted_extensions: lines(&[
            alt_names(signer),
            "key usage and extended key usage come from the usages of the request",
            "other requested extensions are omitted",
        ]),
        permitted_usages: lines(usages(signer)),
        lifetime: lines(&[
            "spec.expirationSeconds, at most --cluster-signing-duration (default 8760h), which is also the default",
            "at least 10m; starts 5m before signing; ends with the CA at the latest",
        ]),
        keys: lines(&[ANY_KEY]),
        approval: lines(approval(signer)),
    }
}

fn subjects(signer: KubernetesSigner) -> &'static [&'static str] {
    match signer {
        KubernetesSigner::KubeletServing | KubernetesSigner::KubeletClient => {
            &["one organization: system:nodes", "common name with the prefix system:node:"]
        }
        KubernetesSigner::Client => {
            &["any; the API server rejects requests with organization system:masters"]
        }
        KubernetesSigner::LegacyUnknown => &["any"],
    }
}

fn alt_names(signer: KubernetesSigner) -> &'static str {
    match signer {
        KubernetesSigner::KubeletServing => {
            "alternative names: at least one DNS name or IP address; no URI and no e-mail address"
        }
        KubernetesSigner::KubeletClient => "alternative names: none",
        KubernetesSigner::Client | KubernetesSigner::LegacyUnknown => "alternative names: any",
    }
}

fn usages(signer: KubernetesSigner) -> &'static [&'static str] {
    match signer {
        KubernetesSigner::KubeletServing => {
            &["digital signature, server auth; key encipherment may be added", "all of these, no others"]
        }
        KubernetesSigner::KubeletClient => {
            &["digital signature, client auth; key encipherment may be added", "all of these, no others"]
        }
        KubernetesSigner::Client => &["client auth; digital signature and key encipherment may be added"],
        KubernetesSigner::LegacyUnknown => &["any"],
    }
}

fn approval(signer: KubernetesSigner) -> &'static [&'static str] {
    match signer {
        KubernetesSigner::KubeletServing => &[
            "manual; automatic with --approve-kubelet-serving, for the node's own addresses",
            "never automatic for names of the API server, loopback and link-local names, wildcards",
        ],
        KubernetesSigner::KubeletClient => &[
            "automatic if the requester may create certificatesigningrequests/nodeclient or, for its own node, \
             certificatesigningrequests/selfnodeclient",
        ],
        KubernetesSigner::Client => &["manual"],
        KubernetesSigner::LegacyUnknown => &["manual", "certificates.k8s.io/v1 rejects new requests"],
    }
}

fn api_serving() -> SignerDescription {
    SignerDescription {
        name: API_SERVING.to_owned(),
        kind: SignerKind::BuiltIn,
        trust_distribution: lines(&[
            "ClusterTrustBundles kubernetes.io:kube-apiserver-serving:*, to verify API servers with",
            "the same CAs are in the ConfigMap kube-root-ca.crt of every namespace",
        ]),
        requests: None,
        pod_requests: None,
        ca_bit: NOTHING_SIGNED,
    }
}

fn lines(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use windlass_pki::AltNames;
    use windlass_pki::policy::{self, PolicyError, RequestedAttributes};

    use super::*;
    use crate::commands::signer::signing_policy;

    /// The descriptions match the rules: each row is a request and the signers that accept it.
    #[test]
    fn the_words_are_those_of_the_rules() {
        let none = AltNames::default();
        let dns = AltNames { dns_names: vec!["n1".into()], ..AltNames::default() };
        let uri = AltNames { uris: vec!["spiffe://a/b".into()], ..dns.clone() };
        type Check = fn(&RequestedAttributes<'_>) -> Result<(), PolicyError>;
        let checks: [(&str, Check); 3] = [
            (KubernetesSigner::KubeletServing.name(), policy::validate_kubelet_serving),
            (KubernetesSigner::KubeletClient.name(), policy::validate_kubelet_client),
            (KubernetesSigner::Client.name(), policy::validate_api_client),
        ];
        let (serving, client) = ("digital signature, server auth", "digital signature, client auth");
        let table = [
            ("system:node:n1", vec!["system:nodes"], &dns, serving, [true, false, false]),
            ("system:node:n1", vec!["system:nodes"], &none, serving, [false, false, false]),
            ("system:node:n1", vec!["system:nodes"], &uri, serving, [false, false, false]),
            ("system:node:n1", vec!["system:nodes"], &none, client, [false, true, true]),
            ("system:node:n1", vec!["system:nodes"], &dns, client, [false, false, true]),
            ("n1", vec!["system:nodes"], &none, client, [false, false, true]),
            ("system:node:n1", vec!["system:nodes", "x"], &none, client, [false, false, true]),
            ("jane", vec!["dev"], &uri, "client auth", [false, false, true]),
            ("jane", vec!["dev"], &none, serving, [false, false, false]),
        ];
        for (name, organizations, alt_names, usages, wanted) in table {
            let asked = RequestedAttributes {
                common_name: name,
                organizations,
                alt_names,
                usages: usages.split(", ").collect(),
            };
            let found = checks.map(|(_, check)| check(&asked).is_ok());
            assert_eq!(found, wanted, "{asked:?}");
        }
        for (name, _) in checks {
            let terms = document(name).unwrap().requests.unwrap();
            let said = terms.permitted_usages.first().unwrap().split(';').next().unwrap();
            assert!([serving, client, "client auth"].contains(&said), "{name}: {said}");
        }
    }

    #[test]
    fn each_signer_documents_all_six_items() {
        for name in NAMES {
            let document = document(name).unwrap();
            assert!(!document.trust_distribution.is_empty() && !document.ca_bit.is_empty());
            assert_eq!(document.requests.is_none(), name == API_SERVING);
            let text = signing_policy::text(&document);
            if let Some(SigningPolicy {
                permitted_subjects,
                permitted_extensions,
                permitted_usages,
                lifetime,
                ..
            }) = &document.requests
            {
                for lines in [permitted_subjects, permitted_extensions, permitted_usages, lifetime] {
                    assert!(!lines.is_empty(), "{name}");
                    assert!(lines.iter().all(|line| text.contains(line)), "{text}");
                }
            }
        }
        assert_eq!(document("example.com/a"), None);
        let text = signing_policy::text(&document(API_SERVING).unwrap());
        assert!(text.contains("CertificateSigningRequests:   not signed\n"), "{text}");
    }
}
