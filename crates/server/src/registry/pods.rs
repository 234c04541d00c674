//! Pods: stored, validated and watched here, but not run. A node agent fills the projected volumes
//! of pods bound to its node.

mod admission_defaults;
mod defaults;
mod fields;
mod nano_quantity;
mod prepare;
mod qos;
mod row;
mod validate;

use super::kind::{Kind, SelectableField, ServedVersion, Subresource, SubresourceAction};
use super::table_cells::{self, column, wide};

/// Descriptor of Pod in the core group.
pub(crate) const KIND: Kind = Kind {
    name: "Pod",
    plural: "pods",
    short_names: &["po"],
    categories: &["all"],
    served: &[ServedVersion::new("", "v1", "io.k8s.api.core.v1.Pod")],
    subresources: &[
        Subresource::status(
            |new, old, _| prepare::update_status(new, old),
            |new, old, _, errors| validate::status(new, old, errors),
        ),
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
        SelectableField::new("spec.nodeName", &["/spec/nodeName"]),
        SelectableField::new("spec.restartPolicy", &["/spec/restartPolicy"]),
        SelectableField::new("spec.schedulerName", &["/spec/schedulerName"]),
        SelectableField::new("spec.serviceAccountName", &["/spec/serviceAccountName"]),
        SelectableField { label: "spec.hostNetwork", pointers: &["/spec/hostNetwork"], absent: "false" },
        SelectableField::new("status.phase", &["/status/phase"]),
        SelectableField::new("status.podIP", &["/status/podIP"]),
        SelectableField::new("status.nominatedNodeName", &["/status/nominatedNodeName"]),
    ],
    columns: &[
        table_cells::NAME,
        column("Ready"),
        column("Status"),
        column("Restarts"),
        table_cells::AGE,
        wide(column("IP")),
        wide(column("Node")),
        wide(column("Nominated Node")),
        wide(column("Readiness Gates")),
    ],
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
