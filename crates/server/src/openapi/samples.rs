//! A few kinds of every sort, for tests of the documents.

use crate::registry::*;

pub fn registry() -> KindRegistry {
    KindRegistry::new(&[
        &pods::KIND,
        &namespaces::KIND,
        &nodes::KIND,
        &secrets::KIND,
        &serviceaccounts::KIND,
        &events::KIND,
        &certificatesigningrequests::KIND,
        &clustertrustbundles::KIND,
        &podcertificaterequests::KIND,
        &leases::KIND,
        &rbac::CLUSTER_ROLE,
    ])
}
