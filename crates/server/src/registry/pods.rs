//! Pods: stored, checked and watched here, and run by nobody. A node agent fills the projected
//! volumes of the pods that are bound to its node.

mod admission;
mod amount;
mod columns;
mod defaults;
mod prepare;
mod qos;
mod read;
mod row;
mod validate;

use super::kind::{Action, Kind, Selectable, Served, Subresource};

/// The kind Pod.
pub const KIND: Kind = Kind {
    name: "Pod",
    plural: "pods",
    singular: "pod",
    short_names: &["po"],
    categories: &["all"],
    served: &[Served {
        group: "",
        version: "v1",
        type_name: "io.k8s.api.core.v1.Pod",
        convert: None,
    }],
    subresources: &[
        Subresource {
            name: "status",
            action: Action::View {
                prepare_update: |new, old, _| prepare::update_status(new, old),
                validate_update: |new, old, _, errors| validate::status(new, old, errors),
            },
        },
        Subresource {
            name: "ephemeralcontainers",
            action: Action::View {
                prepare_update: |new, old, _| prepare::update_ephemeral_containers(new, old),
                validate_update: |new, old, _, errors| {
                    validate::ephemeral_containers(new, old, errors);
                },
            },
        },
        Subresource {
            name: "resize",
            action: Action::View {
                prepare_update: |new, old, _| prepare::resize(new, old),
                validate_update: |new, old, _, errors| validate::resize(new, old, errors),
            },
        },
        Subresource {
            name: "binding",
            action: Action::Create {
                group: "",
                version: "v1",
                kind: "Binding",
                type_name: "io.k8s.api.core.v1.Binding",
            },
        },
        Subresource {
            name: "eviction",
            action: Action::Create {
                group: "policy",
                version: "v1",
                kind: "Eviction",
                type_name: "io.k8s.api.policy.v1.Eviction",
            },
        },
    ],
    selectable: &[
        Selectable { label: "spec.nodeName", at: &["/spec/nodeName"], absent: "" },
        Selectable { label: "spec.restartPolicy", at: &["/spec/restartPolicy"], absent: "" },
        Selectable { label: "spec.schedulerName", at: &["/spec/schedulerName"], absent: "" },
        Selectable {
            label: "spec.serviceAccountName",
            at: &["/spec/serviceAccountName"],
            absent: "",
        },
        Selectable { label: "spec.hostNetwork", at: &["/spec/hostNetwork"], absent: "false" },
        Selectable { label: "status.phase", at: &["/status/phase"], absent: "" },
        Selectable { label: "status.podIP", at: &["/status/podIP"], absent: "" },
        Selectable {
            label: "status.nominatedNodeName",
            at: &["/status/nominatedNodeName"],
            absent: "",
        },
    ],
    columns: &columns::COLUMNS,
    row: row::row,
    row_conditions: row::conditions,
    generation: true,
    defaults: defaults::pod,
    prepare_create: prepare::create,
    prepare_update: prepare::update,
    validate_create: validate::create,
    validate_update: validate::update,
    grace: prepare::grace,
    graceful: true,
    returns_deleted: true,
    ..Kind::DEFAULT
};

/// Rules that nodes share with pods.
pub(super) mod rules {
    pub use super::validate::{go_json, quantity, taint_effect};
}

#[cfg(test)]
mod tests;
