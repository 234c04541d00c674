//! The three patch formats of a `PATCH` request, as pure functions from an object and a patch to
//! the new object.
//!
//! ```text
//! json       application/json-patch+json              a list of operations (RFC 6902)
//! merge      application/merge-patch+json             an object that is laid over (RFC 7386)
//! strategic  application/strategic-merge-patch+json   the same, but lists merge as the schema says
//! ```
//!
//! Server-side apply, the fourth format, is in [`crate::apply`]. What a patch made is not checked
//! here: it is then processed like the body of an update.

mod json;
mod merge;
#[cfg(test)]
pub(crate) mod sample_schema;
mod strategic;

pub use json::json;
pub use merge::merge;
pub use strategic::strategic;

/// Reason why a patch was not applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// Malformed patch for its format: status 400.
    #[error("{0}")]
    Malformed(String),
    /// A JSON patch with too many operations: status 413.
    #[error("The allowed maximum operations in a JSON patch is {limit}, got {count}")]
    TooManyOperations {
        /// Number of operations in the patch.
        count: usize,
        /// Maximum number of operations allowed.
        limit: usize,
    },
    /// The operations exceed the work or object size allowed for a request: status 413.
    #[error("{0}")]
    TooLarge(String),
    /// The patch does not fit the object (a missing path, a failed test): status 422.
    #[error("{0}")]
    Failed(String),
    /// A strategic merge patch that contradicts itself or the schema. kube-apiserver returns 500
    /// with this text.
    #[error("{0}")]
    Directive(String),
}
