//! Review kinds: posted and answered, never stored.

use super::kind::{Kind, ReviewKind, Scope, ServedVersion};

/// Descriptor of SelfSubjectReview, which `kubectl auth whoami` creates.
pub(crate) const SELF_SUBJECT: Kind = Kind {
    name: "SelfSubjectReview",
    plural: "selfsubjectreviews",
    served: &[authentication("io.k8s.api.authentication.v1.SelfSubjectReview")],
    ..question(ReviewKind::SelfSubject)
};

/// Descriptor of TokenReview, which authenticates a bearer token.
pub(crate) const TOKEN: Kind = Kind {
    name: "TokenReview",
    plural: "tokenreviews",
    served: &[authentication("io.k8s.api.authentication.v1.TokenReview")],
    ..question(ReviewKind::Token)
};

/// Descriptor of SubjectAccessReview: may a user perform an action?
pub(crate) const SUBJECT_ACCESS: Kind = Kind {
    name: "SubjectAccessReview",
    plural: "subjectaccessreviews",
    served: &[authorization("io.k8s.api.authorization.v1.SubjectAccessReview")],
    ..question(ReviewKind::SubjectAccess)
};

/// Descriptor of LocalSubjectAccessReview: may a user perform an action in a namespace?
pub(crate) const LOCAL_SUBJECT_ACCESS: Kind = Kind {
    name: "LocalSubjectAccessReview",
    plural: "localsubjectaccessreviews",
    scope: Scope::Namespaced,
    served: &[authorization("io.k8s.api.authorization.v1.LocalSubjectAccessReview")],
    ..question(ReviewKind::LocalSubjectAccess)
};

/// Descriptor of SelfSubjectAccessReview: may the caller perform an action?
pub(crate) const SELF_SUBJECT_ACCESS: Kind = Kind {
    name: "SelfSubjectAccessReview",
    plural: "selfsubjectaccessreviews",
    served: &[authorization("io.k8s.api.authorization.v1.SelfSubjectAccessReview")],
    ..question(ReviewKind::SelfSubjectAccess)
};

/// Descriptor of SelfSubjectRulesReview: what may the caller do in a namespace?
pub(crate) const SELF_SUBJECT_RULES: Kind = Kind {
    name: "SelfSubjectRulesReview",
    plural: "selfsubjectrulesreviews",
    served: &[authorization("io.k8s.api.authorization.v1.SelfSubjectRulesReview")],
    ..question(ReviewKind::SelfSubjectRules)
};

const fn question(review: ReviewKind) -> Kind {
    Kind { scope: Scope::Cluster, review: Some(review), ..Kind::DEFAULT }
}

const fn authentication(type_name: &'static str) -> ServedVersion {
    ServedVersion::new("authentication.k8s.io", "v1", type_name)
}

const fn authorization(type_name: &'static str) -> ServedVersion {
    ServedVersion::new("authorization.k8s.io", "v1", type_name)
}
