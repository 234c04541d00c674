//! Limits on work and memory that users can cause, each with its reason.

use std::time::Duration;

/// Trust anchors in one bundle. A CA that is rotated more often than its certificates expire adds one each time, and
/// every verifier reads all of them. Their records are an annotation, and annotations of an object are limited to 256
/// KiB.
pub const MAX_ANCHORS: usize = 512;

/// Requesters whose certificates are counted for one signer. A window takes less than 1 KiB; of more requesters, those
/// whose last certificate is oldest are forgotten.
pub const MAX_TRACKED_REQUESTERS: usize = 10_000;

/// PKCS#11 URIs. Labels have at most 32 bytes and serial numbers 16; objects may have longer ones.
pub const MAX_TOKEN_URI_BYTES: usize = 2048;

/// PINs of PKCS#11 tokens. Tokens that state a limit stop at 255.
pub const MAX_PIN_BYTES: usize = 255;

/// Time between initializations of a PKCS#11 library. Each ends the sessions of all tokens, so that requests for one
/// that is gone would delay those for the others.
pub const TOKEN_REINITIALIZATION_INTERVAL: Duration = Duration::from_secs(1);
