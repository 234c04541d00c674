//! Projected volumes: their definition, their content, and how it is written to disk.
//!
//! The volume manager calls this module. Nothing here waits, calls the API or keeps state other
//! than the files on disk.
//!
//! - [`definition`]: parses and validates a pod's `projected` volume, or one of a projections file
//!   in the same format.
//! - [`trust_anchors`]: [`TrustBundleIndex`](trust_anchors::TrustBundleIndex) holds the
//!   ClusterTrustBundles, each parsed once per change, and resolves the selections of volumes.
//! - [`tainted_authority`]: authorities whose certificates are renewed early.
//! - [`revocation_lists`]: the CertificateRevocationLists, by signer and authority.
//! - [`plan`]: [`decide`](plan::decide) computes the files from a definition and
//!   [`PlanInputs`](plan::PlanInputs), or returns why there are none. It is pure.
//! - [`payload`], [`path`]: the files and their paths. [`id`]: volume IDs.
//! - [`writer`]: [`VolumeWriter`](writer::VolumeWriter) writes the files atomically.
//!
//! The caller runs these steps whenever a dependency of a volume changes. It may run them at any
//! time, because unchanged files are not written:
//!
//! - `VolumeDefinition::parse`, once for each volume of a pod. An error is reported to the pod, and
//!   nothing else happens.
//! - `VolumeReaders::from_pod`, once.
//! - `VolumeWriter::read`, once when the process starts or the pod appears. If it returns files,
//!   the volume was ready before, and they may include a valid certificate and key.
//! - `decide` with the current inputs. `PlanInputs` only has to contain what the definition names:
//!   a name that is missing from a map is not known yet. Tokens and certificates are keyed by the
//!   index of their source. While they are requested or refused, the reason is reported to the pod,
//!   unless an older one can still be served.
//! - On `VolumeAction::Write`, `VolumeWriter::write`. From then on the volume is ready. On
//!   `WriteOutcome::Changed`, notify applications and report; `TrustBundleIndex::select` and
//!   `TrustAnchors::digest` describe the content.
//! - On `VolumeAction::Keep` and `VolumeAction::Wait`, a `FailedMount` event with
//!   `BlockedReason::failed_mount`. With `Keep` the application continues with the old files; with
//!   `Wait` it has not started.
//! - `VolumeWriter::remove` when the pod is gone.
//!
//! If a bundle is deleted, volumes that require it keep its anchors until it is replaced. Volumes
//! for which it is optional get an empty file: deleting the bundle is how its anchors are withdrawn
//! from them.

pub mod definition;
pub mod id;
pub mod path;
pub mod payload;
pub mod plan;
pub mod revocation_lists;
pub mod tainted_authority;
pub mod trust_anchors;
pub mod writer;
