//! CA keys in PKCS#11 tokens: smart cards, HSMs, and SoftHSM.
//!
//! A [`TokenModule`] is the library of a vendor, loaded once per process. A [`TokenKey`] is one private key that a
//! [`TokenUri`] names; it implements [`ExternalKey`](windlass_pki::ExternalKey), so that a
//! [`CertificateAuthority`](windlass_pki::CertificateAuthority) signs with it. The key never leaves the token.
//!
//! # Threads
//!
//! Every call may block for as long as the token takes, which is seconds if it must be reconnected. Async callers run
//! whatever signs (`issue_certificate`, `sign_crl`) inside [`tokio::task::spawn_blocking`], and must not hold locks that
//! async tasks wait for. A timeout around the join handle abandons the result, not the call: the thread returns when
//! the library does.
//!
//! # Removed tokens
//!
//! If signing fails, the session is closed and a new one opened; if that fails too, the library is finalized and
//! initialized again, since most libraries look for tokens only then. If the token is still missing, the error is
//! [`Error::KeyUnavailable`](windlass_pki::Error::KeyUnavailable): the caller delays the request and retries. Once the
//! token is back, the next call signs.

mod module;
mod pin;
mod signature;
mod token_key;
mod uri;

pub use module::TokenModule;
pub use pin::TokenPin;
pub use token_key::TokenKey;
pub use uri::{TokenUri, TokenUriError};

#[cfg(test)]
mod tests;
