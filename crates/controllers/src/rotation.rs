//! Rotation of the CAs of custom signers, with proof that consumers have the trust anchors.
//!
//! - `policy`: what a CARotation asks for; `observation`: what is observed of its signer.
//! - `phase`: derives phase and next step from the two, a pure function; `consumers`: who has which bundle.
//!
//! The phase is never stored as a decision: it is derived from Secrets, bundles, reports and the ledger each time. So a
//! crash, a second controller or an edit by hand cannot confuse a rotation.

mod consumers;
#[cfg(test)]
mod model;
mod observation;
mod phase;
mod policy;
