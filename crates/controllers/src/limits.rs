//! Limits on what others can make the controllers do or keep, each with its reason.

/// Trust anchors in one bundle. A CA that is replaced more often than its certificates expire adds
/// one each time, and every verifier reads all of them; their records are an annotation, of which
/// an object may have 256 KiB.
pub const MAX_ANCHORS: usize = 512;
