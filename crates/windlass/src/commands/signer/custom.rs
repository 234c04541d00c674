//! Descriptions of custom signers, derived from their configuration.

use std::time::Duration;

use windlass_controllers::signers::config::pods::AllowedPods;
use windlass_controllers::signers::config::{
    ApprovalMode, DistributionPointTemplate, PodProfile, RequestProfile, SignerConfig,
};
use windlass_pki::{CertificateUsages, KeyType};

use super::signing_policy::{NO_CA, STRONG_KEY, SignerDescription, SignerKind, SigningPolicy};

/// Describes a custom signer of the file or of an object.
pub fn document(custom: &SignerConfig) -> SignerDescription {
    let trust = match &custom.publish {
        Some(publication) => match &publication.canary {
            Some(canary) => {
                format!("ClusterTrustBundles {} (canary) and {}", canary.bundle, publication.bundle)
            }
            None => format!("ClusterTrustBundle {}", publication.bundle),
        },
        None => "not published: distribute the CA to verifiers".to_owned(),
    };
    SignerDescription {
        name: custom.name.as_str().to_owned(),
        kind: SignerKind::Custom,
        trust_distribution: vec![trust],
        requests: custom.requests.as_ref().map(request_policy),
        pod_requests: custom.pods.as_ref().map(pod_policy),
        ca_bit: NO_CA,
    }
}

fn request_policy(profile: &RequestProfile) -> SigningPolicy {
    let chain = match profile.include_chain {
        true => "intermediates of the CA are appended, without the root",
        false => "intermediates of the CA are not appended",
    };
    SigningPolicy {
        permitted_subjects: vec![
            labelled_list("common names", &profile.common_names),
            labelled_list("organizations", &profile.organizations),
        ],
        permitted_extensions: vec![
            labelled_list("DNS names", &profile.dns_names),
            labelled_list("IP addresses", &profile.ip_addresses),
            labelled_list("e-mail addresses", &profile.email_addresses),
            labelled_list("URIs", &profile.uris),
            "key usage and extended key usage come from the usages of the request".into(),
            "other requested extensions are omitted".into(),
        ]
        .into_iter()
        .chain(distribution_points(&profile.distribution_points))
        .collect(),
        permitted_usages: usages(&profile.usages, &profile.required_usages),
        lifetime: vec![
            format!(
                "spec.expirationSeconds, at most {}; default {}",
                duration(profile.max_duration),
                duration(profile.duration)
            ),
            "at least 10m; starts 5m before signing; ends with the CA at the latest".into(),
            chain.into(),
        ],
        keys: vec![match &profile.key_types {
            Some(types) => KeyType::names(types).join(", "),
            None => STRONG_KEY.into(),
        }],
        approval: match &profile.approval {
            ApprovalMode::Manual => vec!["manual".into()],
            ApprovalMode::Automatic(who) => vec![
                "automatic if the request complies and the requester is listed here, else manual".into(),
                labelled_list("users", &who.users().collect::<Vec<_>>()),
                labelled_list("groups", &who.groups().collect::<Vec<_>>()),
            ],
        },
    }
}

fn pod_policy(profile: &PodProfile) -> SigningPolicy {
    let id = match &profile.trust_domain {
        Some(domain) => format!("URI: spiffe://{domain}/ns/NAMESPACE/sa/SERVICEACCOUNT"),
        None => "URI: none".into(),
    };
    let services = match &profile.service_names {
        Some(domain) => {
            format!(
                "DNS names: SERVICE.NAMESPACE.svc and SERVICE.NAMESPACE.svc.{domain}, of the pod's services"
            )
        }
        None => "DNS names: none".into(),
    };
    let refresh = format!("refresh after {:.0}% of the lifetime", profile.refresh_after * 100.0);
    SigningPolicy {
        permitted_subjects: vec!["empty".into()],
        permitted_extensions: [id, services, "extensions requested by pods are ignored".into()]
            .into_iter()
            .chain(distribution_points(&profile.distribution_points))
            .collect(),
        permitted_usages: pod_usages(profile),
        lifetime: vec![
            format!("spec.maxExpirationSeconds, at most {}", duration(profile.max_duration)),
            "at least 1h; starts 2m before signing; ends with the CA at the latest".into(),
            refresh,
        ],
        keys: vec![KeyType::names(&profile.key_types).join(", ")],
        approval: allowed(&profile.allowed),
    }
}

fn distribution_points(points: &[DistributionPointTemplate]) -> Option<String> {
    (!points.is_empty()).then(|| labelled_list("CRL distribution points", points))
}

fn allowed(allowed: &AllowedPods) -> Vec<String> {
    match allowed {
        AllowedPods::Everyone => vec!["not required; all pods".into()],
        AllowedPods::Only { namespaces, service_accounts } => {
            let accounts = service_accounts.iter().map(|(namespace, name)| format!("{namespace}/{name}"));
            vec![
                "not required; pods of these only".into(),
                labelled_list("namespaces", &namespaces.iter().collect::<Vec<_>>()),
                labelled_list("service accounts", &accounts.collect::<Vec<_>>()),
            ]
        }
    }
}

/// Names of usages that a request may contain; for synonyms, the common one.
const USAGES: [&str; 19] = [
    "digital signature",
    "content commitment",
    "key encipherment",
    "data encipherment",
    "key agreement",
    "encipher only",
    "decipher only",
    "any",
    "server auth",
    "client auth",
    "code signing",
    "email protection",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "timestamping",
    "ocsp signing",
    "microsoft sgc",
    "netscape sgc",
];

fn usage_names(usages: &CertificateUsages) -> String {
    let has = |name: &&str| {
        CertificateUsages::from_names(&[name])
            .is_ok_and(|one| usages.key.contains(one.key) && usages.extended.is_superset(&one.extended))
    };
    USAGES.into_iter().filter(has).collect::<Vec<_>>().join(", ")
}

fn usages(allowed: &CertificateUsages, required: &[String]) -> Vec<String> {
    let required = match required {
        [] => "none required".to_owned(),
        required => format!("required: {}", required.join(", ")),
    };
    vec![usage_names(allowed), required]
}

fn pod_usages(profile: &PodProfile) -> Vec<String> {
    let usual = profile.usages(KeyType::EcdsaP256);
    let rsa = profile.usages(KeyType::Rsa3072);
    let mut said = vec![usage_names(&usual)];
    if rsa != usual {
        said.push(format!("with RSA keys: {}", usage_names(&rsa)));
    }
    said
}

fn labelled_list<T: ToString>(what: &str, all: &[T]) -> String {
    let all = all.iter().map(ToString::to_string).collect::<Vec<_>>();
    let shown = if all.is_empty() { "none".to_owned() } else { all.join(", ") };
    format!("{what}: {shown}")
}

/// Formats a duration in the units of the file.
pub fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let parts = [(seconds / 3600, "h"), (seconds / 60 % 60, "m"), (seconds % 60, "s")];
    let shown = parts.iter().filter(|(count, _)| *count > 0);
    let shown = shown.map(|(count, unit)| format!("{count}{unit}")).collect::<String>();
    if shown.is_empty() { "0s".into() } else { shown }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use windlass_controllers::signers::config::SignersConfig;

    use super::*;

    fn documents(signers: &str) -> Vec<SignerDescription> {
        let text = format!("{{apiVersion: windlass.dev/v1, kind: Signers, signers: [{signers}]}}");
        let read = SignersConfig::parse(Path::new("signers.yaml"), &text).unwrap();
        read.signers.iter().map(document).collect()
    }

    #[test]
    fn the_description_shows_the_configuration() {
        let documents = documents(
            "{name: a.b/tls, ca: {selfSigned: {directory: d}}, publish: {}, requests: {\
             commonNames: ['*.a.b'], dnsNames: ['*.a.b', a.b], ipAddresses: [10.0.0.0/8], \
             usages: [server auth, digital signature], requiredUsages: [server auth], \
             keyTypes: [ECDSAP256, RSA4096], maxDuration: 36h, duration: 90m, includeChain: false, \
             approval: {automatic: {users: [jane], groups: [g1, g2]}}}},\
             {name: a.b/pods, ca: {selfSigned: {directory: e}}, pods: {trustDomain: a.b, \
             serviceNames: true, namespaces: [web], serviceAccounts: [db/x], maxDuration: 2h}, \
             crl: {distributionPoints: ['http://a.b/{authority}.crl']}}",
        );
        let [tls, pods] = documents.as_slice() else { panic!() };
        assert_eq!(tls.trust_distribution, ["ClusterTrustBundle a.b:tls:anchors"]);
        let terms = tls.requests.as_ref().unwrap();
        assert_eq!(terms.permitted_subjects, ["common names: *.a.b", "organizations: none"]);
        assert_eq!(
            terms.permitted_extensions[..4],
            ["DNS names: *.a.b, a.b", "IP addresses: 10.0.0.0/8", "e-mail addresses: none", "URIs: none"]
        );
        assert_eq!(terms.permitted_usages, ["digital signature, server auth", "required: server auth"]);
        let lifetime = "spec.expirationSeconds, at most 36h; default 1h30m";
        assert_eq!(terms.lifetime[0], lifetime);
        assert_eq!(terms.keys, ["ECDSAP256, RSA4096"]);
        assert_eq!(terms.approval[1..], ["users: jane", "groups: g1, g2"]);
        assert!(tls.pod_requests.is_none() && pods.requests.is_none());

        let terms = pods.pod_requests.as_ref().unwrap();
        assert_eq!(terms.permitted_extensions[0], "URI: spiffe://a.b/ns/NAMESPACE/sa/SERVICEACCOUNT");
        assert_eq!(terms.permitted_extensions[3], "CRL distribution points: http://a.b/{authority}.crl");
        assert_eq!(
            terms.permitted_usages,
            [
                "digital signature, server auth, client auth",
                "with RSA keys: digital signature, key encipherment, server auth, client auth"
            ]
        );
        assert_eq!(terms.approval[1..], ["namespaces: web", "service accounts: db/x"]);
        assert!(terms.lifetime[2].contains("66%"));
        assert!(pods.trust_distribution[0].starts_with("not published"));
    }

    /// A usage that is missing in the list would be missing in descriptions.
    #[test]
    fn every_usage_has_a_name() {
        for name in USAGES {
            assert_eq!(usage_names(&CertificateUsages::from_names(&[name]).unwrap()), name);
        }
        let also = ["signing", "s/mime"];
        let usages = CertificateUsages::from_names(&also).unwrap();
        assert_eq!(usage_names(&usages), "digital signature, email protection");
    }

    #[test]
    fn durations_look_as_in_the_file() {
        for (seconds, shown) in [(0, "0s"), (600, "10m"), (5400, "1h30m"), (7_776_000, "2160h")] {
            assert_eq!(duration(Duration::from_secs(seconds)), shown);
        }
    }
}
