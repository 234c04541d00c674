//! Permissions of the controller, checked before it lists: repeated rejections would fill the log of the server.

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use windlass_runtime::client_error::describe;

use super::target::TargetKind;

/// Whether objects of a kind may be listed, in a namespace or everywhere. If the review fails, listing will show.
pub async fn can_list(client: &Client, kind: TargetKind, namespace: Option<&str>) -> bool {
    let (group, resource) = group_and_resource(kind);
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                group: Some(group.to_owned()),
                resource: Some(resource.to_owned()),
                namespace: namespace.map(str::to_owned),
                verb: Some("list".to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    match reviews.create(&PostParams::default(), &review).await {
        Ok(answer) => answer.status.is_none_or(|status| status.allowed),
        Err(error) => {
            tracing::debug!(error = describe(&error), "cannot check permissions");
            true
        }
    }
}

/// Returns the message of the server for a forbidden list, without the user.
pub fn forbidden_message(kind: TargetKind, namespace: Option<&str>) -> String {
    let (group, resource) = group_and_resource(kind);
    let place = match namespace {
        Some(namespace) => format!("in the namespace \"{namespace}\""),
        None => "at the cluster scope".to_owned(),
    };
    let shown = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
    format!("{shown} is forbidden: cannot list resource \"{resource}\" in API group \"{group}\" {place}")
}

fn group_and_resource(kind: TargetKind) -> (&'static str, &'static str) {
    match kind {
        TargetKind::ConfigMap => ("", "configmaps"),
        TargetKind::Secret => ("", "secrets"),
        TargetKind::ClusterTrustBundle => ("certificates.k8s.io", "clustertrustbundles"),
    }
}
