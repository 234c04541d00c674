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
//! here: it goes on like the body of an update.

mod json;
mod merge;
#[cfg(test)]
pub(crate) mod sample_schema;
mod strategic;

pub use json::json;
pub use merge::merge;
pub use strategic::strategic;

/// Why a patch was not applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// It is no patch of its format: 400.
    #[error("{0}")]
    Malformed(String),
    /// A JSON patch has too many operations: 413.
    #[error("The allowed maximum operations in a JSON patch is {limit}, got {count}")]
    TooManyOperations {
        /// Number of operations in the patch.
        count: usize,
        /// How many it may have.
        limit: usize,
    },
    /// Its operations would do more work, or make a larger object, than a request may: 413.
    #[error("{0}")]
    TooLarge(String),
    /// It does not fit the object (a missing path, a failed test): 422.
    #[error("{0}")]
    Failed(String),
    /// A strategic merge patch contradicts itself or the schema. kube-apiserver answers 500 with
    /// this text.
    #[error("{0}")]
    Directive(String),
}
