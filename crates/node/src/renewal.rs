//! What the renewal of node certificates and of volume certificates has in common: when to renew, how long to wait
//! after failures, and how many requests are made at most.
//!
//! The two state machines are separate, because little else is the same; each says at its head why.

mod renewal_times;
mod retry_policy;

pub(crate) use renewal_times::{CertificateAge, RenewalTimes};
pub use retry_policy::RetryPolicy;
pub(crate) use retry_policy::{FailureClass, RetryState};
