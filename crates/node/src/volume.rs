//! Projected volumes: what is to be in them, and how it gets there.
//!
//! Everything here is called by somebody who watches pods and objects; nothing here waits, asks the
//! API or keeps anything but what is on the disk.
//!
//! - [`definition`]: `definition` parsing makes of a pod's `projected`
//!   volume, or of one in a file of the same shape, something that is known to be right.
//! - [`trust_anchors`]: [`Bundles`](trust_anchors::TrustBundleIndex) holds the ClusterTrustBundles, each read once when it
//!   changes; it knows which of them a volume selects and what comes out.
//! - [`plan`]: [`decide`](plan::decide) makes files of a definition and of a
//!   [`PlanInputs`](plan::PlanInputs), or says why there are none. It is pure.
//! - [`payload`], [`path`]: the files, and where they are. [`id`]: which volume.
//! - [`writer`]: [`Writer`](writer::VolumeWriter) puts them on the disk, all at once.
//!
//! A loop on top of it does this whenever something has changed that a volume depends on, and may do
//! it at any other time, since what is the same is not written:
//!
//! 1. `Definition::read` once for each volume of a pod; an error is told to the pod, and that is all.
//! 2. `Readers::of(pod)`, once.
//! 3. `Writer::read` once, when the process begins or the pod comes: if it has files, the volume was
//!    ready before, and a certificate and its key may be among them that are still good.
//! 4. `decide` with what is known now. A `World` only has to know what the definition names: a name that
//!    is missing from a map is one of which nothing is known yet. Tokens and certificates go by the
//!    place of their source in the list; while they are asked for, or are refused, the reason is what
//!    the pod is told, unless there is an older one that is still to be served.
//! 5. `Action::Write`: `Writer::write`. From then on the volume was ready. `Written::Changed` is the
//!    moment for telling applications and for reporting; `Bundles::select` and `Anchors::digest` say
//!    what of.
//! 6. `Action::Keep` and `Action::Wait`: a `FailedMount` event with `Blocked::failed_mount`. With `Keep`
//!    the application goes on with what it has; with `Wait` it has not begun.
//! 7. `Writer::remove` when the pod is gone.
//!
//! A bundle that is deleted leaves its anchors with those who need it, until there is another, and an
//! empty file with those to whom it is optional: they said that they can do without, so that deleting
//! it is how it is taken from them.

pub mod definition;
pub mod id;
pub mod path;
pub mod payload;
pub mod plan;
pub mod trust_anchors;
pub mod writer;
