//! Limits on what a segment and its strings may hold, each with its reason.

/// Bytes of the entries of one segment. Ten segments then fit into one request to etcd, whose limit is 1.5 MiB.
pub const MAX_SEGMENT_BYTES: usize = 64 * 1024;

/// Bytes from which a segment is full and its successor is begun. Every append rewrites the object, so a larger segment
/// costs more per append, and a smaller one more metadata per certificate.
pub const FULL_SEGMENT_BYTES: usize = 32 * 1024;

/// Bytes of one string. Names of Kubernetes have at most 253, DNS names as well; user names have no limit of their own.
pub const MAX_STRING_BYTES: usize = 1024;

/// Bytes of all alternative names of one record, so that every record fits into a segment.
pub const MAX_NAME_BYTES: usize = 16 * 1024;

/// Alternative names of one kind in a record; `windlass_pki` issues no more.
pub const MAX_NAMES: usize = 1024;

/// Entries of one segment. The smallest entry has two bytes.
pub const MAX_ENTRIES: usize = MAX_SEGMENT_BYTES / 2;

/// Bytes of a serial number (RFC 5280 §4.1.2.2).
pub const MAX_SERIAL_BYTES: usize = 20;

/// Bytes of an authority id. A subject key identifier usually has 20.
pub const MAX_AUTHORITY_BYTES: usize = 64;
