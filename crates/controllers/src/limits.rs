//! Limits on work and memory that users can cause, each with its reason.

use std::time::Duration;

/// Trust anchors in one bundle. A CA that is rotated more often than its certificates expire adds one each time, and
/// every verifier reads all of them. Their records are an annotation, and annotations of an object are limited to 256
/// KiB.
pub const MAX_ANCHORS: usize = 512;

/// Requesters whose certificates are counted for one signer. A window takes less than 1 KiB; of more requesters, those
/// whose last certificate is oldest are forgotten.
pub const MAX_TRACKED_REQUESTERS: usize = 10_000;

/// Size of the entries of one revocation list, in bytes. A list is an object, which has at most 1 MiB as JSON, and base64
/// takes four bytes for three. Of more entries, those that expire first are left out.
pub const MAX_CRL_ENTRIES_BYTES: usize = 700 * 1024;

/// Time between two signatures of a list that changes, plus a second for each thousand entries. Everybody who may sign
/// for a signer can revoke as fast as the server accepts it.
pub const MIN_CRL_INTERVAL: Duration = Duration::from_secs(2);

/// Size of the ConfigMap with the lists of a signer, in bytes: the limit of Kubernetes.
pub const MAX_CRL_CONFIG_MAP_BYTES: usize = 1 << 20;

/// Replaced CAs of one signer whose lists are still signed. Each costs a signature and an object per half duration.
pub const MAX_RETAINED_AUTHORITIES: usize = 32;

/// PKCS#11 URIs. Labels have at most 32 bytes and serial numbers 16; objects may have longer ones.
pub const MAX_TOKEN_URI_BYTES: usize = 2048;

/// PINs of PKCS#11 tokens. Tokens that state a limit stop at 255.
pub const MAX_PIN_BYTES: usize = 255;

/// Time between initializations of a PKCS#11 library. Each ends the sessions of all tokens, so that requests for one
/// that is gone would delay those for the others.
pub const TOKEN_REINITIALIZATION_INTERVAL: Duration = Duration::from_secs(1);
