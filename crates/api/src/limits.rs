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
