//! Pods: stored, validated and watched here, but not run. A node agent fills the projected volumes
//! of pods bound to its node.

mod admission_defaults;
mod columns;
mod defaults;
mod fields;
mod nano_quantity;
mod prepare;
mod qos;
mod row;
mod validate;

use super::kind::{Kind, SelectableField, ServedVersion, Subresource, SubresourceAction};

/// Descriptor of Pod in the core group.
pub(crate) const KIND: Kind = Kind {
    name: "Pod",
    plural: "pods",
    singular: "pod",
    short_names: &["po"],
    categories: &["all"],
    served: &[ServedVersion { group: "", version: "v1", type_name: "io.k8s.api.core.v1.Pod", convert: None }],
    subresources: &[
        Subresource {
            name: "status",
            action: SubresourceAction::View {
                prepare_update: |new, old, _| prepare::update_status(new, old),
                validate_update: |new, old, _, errors| validate::status(new, old, errors),
            },
        },
        Subresource {
            name: "ephemeralcontainers",
            action: SubresourceAction::View {
                prepare_update: |new, old, _| prepare::update_ephemeral_containers(new, old),
                validate_update: |new, old, _, errors| {
                    validate::ephemeral_containers(new, old, errors);
                },
            },
        },
        Subresource {
            name: "resize",
            action: SubresourceAction::View {
                prepare_update: |new, old, _| prepare::resize(new, old),
                validate_update: |new, old, _, errors| validate::resize(new, old, errors),
            },
        },
        Subresource {
            name: "binding",
            action: SubresourceAction::Create {
                group: "",
                version: "v1",
                kind: "Binding",
                type_name: "io.k8s.api.core.v1.Binding",
            },
        },
        Subresource {
            name: "eviction",
            action: SubresourceAction::Create {
                group: "policy",
                version: "v1",
                kind: "Eviction",
                type_name: "io.k8s.api.policy.v1.Eviction",
            },
        },
    ],
    selectable: &[
        SelectableField { label: "spec.nodeName", pointers: &["/spec/nodeName"], absent: "" },
        SelectableField { label: "spec.restartPolicy", pointers: &["/spec/restartPolicy"], absent: "" },
        SelectableField { label: "spec.schedulerName", pointers: &["/spec/schedulerName"], absent: "" },
        SelectableField {
            label: "spec.serviceAccountName",
            pointers: &["/spec/serviceAccountName"],
            absent: "",
        },
        SelectableField { label: "spec.hostNetwork", pointers: &["/spec/hostNetwork"], absent: "false" },
        SelectableField { label: "status.phase", pointers: &["/status/phase"], absent: "" },
        SelectableField { label: "status.podIP", pointers: &["/status/podIP"], absent: "" },
        SelectableField {
            label: "status.nominatedNodeName",
            pointers: &["/status/nominatedNodeName"],
            absent: "",
        },
    ],
    columns: &columns::COLUMNS,
    row: row::row,
    row_conditions: row::conditions,
    generation: true,
    defaults: defaults::default_pod,
    prepare_create: prepare::create,
    prepare_update: prepare::update,
    validate_create: validate::create,
    validate_update: validate::update,
    grace: prepare::grace,
    graceful: true,
    returns_deleted: true,
    ..Kind::DEFAULT
};

/// Rules that nodes and pods share.
pub(super) mod rules {
    pub(crate) use super::validate::{go_json, quantity, taint_effect};
}

#[cfg(test)]
mod tests;
