//! Sample kinds of every sort, for tests of the documents.

use crate::registry::KindRegistry;
use crate::registry::kind::{Kind, Scope, ServedVersion, Subresource, SubresourceAction};

/// Returns a registry of sample kinds.
pub fn registry() -> KindRegistry {
    KindRegistry::new(&[
        &PODS,
        &NAMESPACES,
        &NODES,
        &SECRETS,
        &SERVICE_ACCOUNTS,
        &EVENTS,
        &REQUESTS,
        &BUNDLES,
        &POD_CERTIFICATES,
        &LEASES,
        &ROLES,
    ])
}

static PODS: Kind = Kind {
    name: "Pod",
    plural: "pods",
    singular: "pod",
    short_names: &["po"],
    categories: &["all"],
    returns_deleted: true,
    served: &[served("", "v1", "io.k8s.api.core.v1.Pod")],
    subresources: &[
        view("status"),
        create("eviction", "policy", "v1", "Eviction", "io.k8s.api.policy.v1.Eviction"),
        create("binding", "", "v1", "Binding", "io.k8s.api.core.v1.Binding"),
    ],
    ..Kind::DEFAULT
};

static NAMESPACES: Kind = Kind {
    name: "Namespace",
    plural: "namespaces",
    singular: "namespace",
    short_names: &["ns"],
    scope: Scope::Cluster,
    served: &[served("", "v1", "io.k8s.api.core.v1.Namespace")],
    subresources: &[view("status"), Subresource { name: "finalize", action: SubresourceAction::Finalize }],
    delete_collection: false,
    ..Kind::DEFAULT
};

static NODES: Kind = Kind {
    name: "Node",
    plural: "nodes",
    singular: "node",
    short_names: &["no"],
    scope: Scope::Cluster,
    served: &[served("", "v1", "io.k8s.api.core.v1.Node")],
    subresources: &[view("status")],
    ..Kind::DEFAULT
};

static SECRETS: Kind = Kind {
    name: "Secret",
    plural: "secrets",
    singular: "secret",
    served: &[served("", "v1", "io.k8s.api.core.v1.Secret")],
    ..Kind::DEFAULT
};

static SERVICE_ACCOUNTS: Kind = Kind {
    name: "ServiceAccount",
    plural: "serviceaccounts",
    singular: "serviceaccount",
    short_names: &["sa"],
    returns_deleted: true,
    served: &[served("", "v1", "io.k8s.api.core.v1.ServiceAccount")],
    subresources: &[create(
        "token",
        "authentication.k8s.io",
        "v1",
        "TokenRequest",
        "io.k8s.api.authentication.v1.TokenRequest",
    )],
    ..Kind::DEFAULT
};

static EVENTS: Kind = Kind {
    name: "Event",
    plural: "events",
    singular: "event",
    short_names: &["ev"],
    served: &[
        served("", "v1", "io.k8s.api.core.v1.Event"),
        served("events.k8s.io", "v1", "io.k8s.api.events.v1.Event"),
    ],
    ..Kind::DEFAULT
};

static REQUESTS: Kind = Kind {
    name: "CertificateSigningRequest",
    plural: "certificatesigningrequests",
    singular: "certificatesigningrequest",
    short_names: &["csr"],
    scope: Scope::Cluster,
    served: &[served("certificates.k8s.io", "v1", "io.k8s.api.certificates.v1.CertificateSigningRequest")],
    subresources: &[view("status"), view("approval")],
    ..Kind::DEFAULT
};

static BUNDLES: Kind = Kind {
    name: "ClusterTrustBundle",
    plural: "clustertrustbundles",
    singular: "clustertrustbundle",
    scope: Scope::Cluster,
    served: &[
        served("certificates.k8s.io", "v1", "io.k8s.api.certificates.v1.ClusterTrustBundle"),
        served("certificates.k8s.io", "v1beta1", "io.k8s.api.certificates.v1beta1.ClusterTrustBundle"),
    ],
    ..Kind::DEFAULT
};

static POD_CERTIFICATES: Kind = Kind {
    name: "PodCertificateRequest",
    plural: "podcertificaterequests",
    singular: "podcertificaterequest",
    served: &[
        served("certificates.k8s.io", "v1", "io.k8s.api.certificates.v1.PodCertificateRequest"),
        served("certificates.k8s.io", "v1beta1", "io.k8s.api.certificates.v1beta1.PodCertificateRequest"),
    ],
    subresources: &[view("status")],
    ..Kind::DEFAULT
};

static LEASES: Kind = Kind {
    name: "Lease",
    plural: "leases",
    singular: "lease",
    served: &[served("coordination.k8s.io", "v1", "io.k8s.api.coordination.v1.Lease")],
    ..Kind::DEFAULT
};

static ROLES: Kind = Kind {
    name: "ClusterRole",
    plural: "clusterroles",
    singular: "clusterrole",
    scope: Scope::Cluster,
    served: &[served("rbac.authorization.k8s.io", "v1", "io.k8s.api.rbac.v1.ClusterRole")],
    ..Kind::DEFAULT
};

const fn served(group: &'static str, version: &'static str, type_name: &'static str) -> ServedVersion {
    ServedVersion { group, version, type_name, convert: None }
}

const fn view(name: &'static str) -> Subresource {
    Subresource {
        name,
        action: SubresourceAction::View { prepare_update: |_, _, _| {}, validate_update: |_, _, _, _| {} },
    }
}

const fn create(
    name: &'static str,
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    type_name: &'static str,
) -> Subresource {
    Subresource { name, action: SubresourceAction::Create { group, version, kind, type_name } }
}
