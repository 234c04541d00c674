//! Limits on work and memory that users can cause, each with its reason.

/// Trust anchors in one bundle. A CA that is rotated more often than its certificates expire adds one each time, and
/// every verifier reads all of them. Their records are an annotation, and annotations of an object are limited to 256
/// KiB.
pub const MAX_ANCHORS: usize = 512;
