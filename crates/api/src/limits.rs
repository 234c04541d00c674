//! Limits on the work that a body may cause, and their reasons.
//!
//! Every decoded body comes from a client, so each way in which a short text could consume much
//! memory, stack or time has a limit.

/// Largest body that is decoded: kube-apiserver's limit on requests.
///
/// Reading a body stops there; the YAML decoder checks the limit again, because a byte of YAML
/// costs far more to parse than a byte of JSON or protobuf.
pub const MAX_BODY_BYTES: usize = 3 * 1024 * 1024;

/// Maximum nesting depth of objects and lists in JSON and protobuf.
///
/// This is the limit of `serde_json`. Go allows 10,000, but no API kind nests deeper than about 40
/// levels, and with this limit a body cannot exhaust a 2 MiB stack even in an unoptimised build.
pub const MAX_DEPTH: usize = 127;

/// Maximum number of duplicate keys reported per body, as in Kubernetes' strict decoder.
pub const MAX_DUPLICATES: usize = 100;

/// Maximum nesting depth of a YAML body. Its parser needs several times as much stack per level as
/// `serde_json`.
pub const MAX_YAML_DEPTH: usize = 64;

/// Maximum number of aliases (`*name`) and merge keys (`<<`) in a YAML body. Manifests written by
/// people have a handful.
pub const MAX_YAML_ALIASES: usize = 100;

/// Maximum number of parser events that all aliases may replay; bounds an alias bomb.
pub const MAX_YAML_REPLAYED_EVENTS: usize = 10_000;

/// Maximum number of scalars, lists and maps in a YAML body. JSON needs no such limit, because its
/// parser keeps only the result.
pub const MAX_YAML_NODES: usize = 250_000;

/// Maximum bytes of text in a YAML body after alias expansion: slightly more than a body can hold
/// without aliases.
pub const MAX_YAML_TEXT_BYTES: usize = 4 * 1024 * 1024;

/// Maximum number of errors listed per object; the others are counted. Each error has a text of
/// some hundred bytes, and a body has room for a million invalid elements.
pub const MAX_ERRORS: usize = 100;

/// Maximum total size of the listed errors, in bytes. A hundred of Kubernetes' longest errors take
/// half of that.
pub const MAX_ERROR_BYTES: usize = 128 * 1024;

/// Maximum bytes of a value shown in an error. Kubernetes has no limit; its length limits for
/// names, labels and keys are far lower, and a PEM request fits as well.
pub const MAX_SHOWN_BYTES: usize = 10 * 1024;

/// Maximum bytes of a key or unknown field shown in a path. The longest valid key has 317.
pub const MAX_KEY_BYTES: usize = 1024;

/// Maximum size of the message of a `Status` in bytes: all errors and the surrounding text.
pub const MAX_MESSAGE_BYTES: usize = 256 * 1024;

/// Maximum number of list elements that a strategic merge patch may visit. Each list is visited
/// once, so the count is the number of elements in the patch and the object, unless the patch names
/// the same element repeatedly.
pub const MAX_PATCHED_ELEMENTS: usize = 1_000_000;

/// Maximum number of requirements in a label or field selector. Each is checked against every
/// object of a list and every change of an open watch. People write a handful.
pub const MAX_REQUIREMENTS: usize = 1000;
