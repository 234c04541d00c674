//! Who did what, written down: one `audit.k8s.io/v1` event a request, at the level Metadata.

use std::sync::Arc;

use crate::user::User;

/// Where events go.
#[derive(Default)]
pub struct Audit {}

/// What is known of a request so far; the stages fill it in.
#[derive(Default)]
pub struct Record {
    /// Who authenticated.
    pub user: Option<Arc<User>>,
    /// Whom they act as, if that is somebody else.
    pub impersonated: Option<Arc<User>>,
    /// What authorization said: whether it was allowed, and why.
    pub decision: Option<(bool, String)>,
}
