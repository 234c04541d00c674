//! How much work a body may ask for, and why that much.
//!
//! Everything decoded here was sent by somebody else, so each way in which a short text could cost
//! much memory, stack or time has a number.

/// The largest body that is decoded: kube-apiserver's limit on requests.
///
/// Reading the body stops there; the YAML decoder checks it once more, because a byte of YAML costs
/// far more to parse than a byte of JSON or protobuf.
pub const MAX_BODY_BYTES: usize = 3 * 1024 * 1024;

/// How deep objects and lists may be nested in JSON and protobuf.
///
/// It is `serde_json`'s own limit. Go allows 10,000, but no kind of the API can be nested by more
/// than about 40 levels, and with this number a body cannot exhaust a 2 MiB stack even in an
/// unoptimised build.
pub const MAX_DEPTH: usize = 127;

/// How many duplicate keys are told of one body, as in Kubernetes' strict decoder.
pub const MAX_DUPLICATES: usize = 100;

/// How deep a YAML body may be nested. Its parser takes several times as much stack for a level as
/// `serde_json` does.
pub const MAX_YAML_DEPTH: usize = 64;

/// How many aliases (`*name`) and merge keys (`<<`) a YAML body may use. Manifests written by people
/// have a handful.
pub const MAX_YAML_ALIASES: usize = 100;

/// How many parser events aliases may stand for together: what bounds an alias bomb.
pub const MAX_YAML_REPLAYED_EVENTS: usize = 10_000;

/// How many scalars, lists and maps a YAML body may hold. JSON needs no such number, because its
/// parser keeps nothing but the result.
pub const MAX_YAML_NODES: usize = 250_000;

/// How many bytes of text a YAML body may come to once its aliases are replaced: a little more than
/// a body can hold without them.
pub const MAX_YAML_TEXT_BYTES: usize = 4 * 1024 * 1024;

/// How many errors of one object are listed; the others are counted. Each has a text of some hundred bytes, and a
/// body has room for a million elements that break a rule.
pub const MAX_ERRORS: usize = 100;

/// How many bytes the listed errors may have together. A hundred of Kubernetes' longest have half of that.
pub const MAX_ERROR_BYTES: usize = 128 * 1024;

/// How many bytes of a value stand in an error about it. Kubernetes has no limit; its rules on the length of
/// names, labels and keys are far below, and a request in PEM fits as well.
pub const MAX_SHOWN_BYTES: usize = 10 * 1024;

/// How many bytes of a key, or of a field that does not exist, stand in a path to it. The longest key that a rule
/// allows has 317.
pub const MAX_KEY_BYTES: usize = 1024;

/// How many bytes the message of a `Status` may have: all errors, and what stands around them.
pub const MAX_MESSAGE_BYTES: usize = 256 * 1024;

/// How many list elements a strategic merge patch may look at. Each list is looked at once, so that a patch comes to
/// as many as there are in the patch and in the object, unless it names the same element again and again.
pub const MAX_PATCHED_ELEMENTS: usize = 1_000_000;

/// How many requirements a label or field selector may have. Each is checked against each object of a list, and
/// against each change while a watch is open. A person writes a handful.
pub const MAX_REQUIREMENTS: usize = 1000;
