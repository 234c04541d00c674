//! A private key in a token.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use cryptoki::object::{Attribute, ObjectClass, ObjectHandle};
use cryptoki::session::Session;
use windlass_pki::{Error, ExternalKey, PublicKey, SignatureScheme};

use super::module::{LibraryState, TokenFault, TokenModule};
use super::signature::TokenMechanism;
use super::uri::TokenUri;

/// A private key in a token, found by its URI at each login. Calls of one key are serialized; different keys sign
/// concurrently.
pub struct TokenKey {
    uri: TokenUri,
    public_key: PublicKey,
    scheme: SignatureScheme,
    mechanism: TokenMechanism,
    session: Mutex<Option<KeySession>>,
    module: Arc<TokenModule>,
}

/// A logged-in session in which the key was found.
struct KeySession {
    session: Session,
    key: ObjectHandle,
    /// Initialization of the library to which the session belongs.
    generation: u64,
}

impl TokenKey {
    /// Creates a key without looking for the token, which may be absent for now. The public key comes from the CA's
    /// certificate; a signature by any other key is an error. Fails for keys that are not RSA, P-256 or P-384.
    pub fn new(module: Arc<TokenModule>, uri: TokenUri, public_key: PublicKey) -> Result<Self, Error> {
        let scheme = SignatureScheme::for_key(&public_key)?;
        let mechanism = TokenMechanism::for_scheme(scheme)
            .ok_or(Error::UnsupportedKey("keys in PKCS#11 tokens must be RSA, P-256 or P-384"))?;
        Ok(Self { uri, public_key, scheme, mechanism, session: Mutex::default(), module })
    }

    /// Signs with the open session, or with a new one, or with a new one after initializing the library.
    fn sign_input(&self, input: &[u8]) -> Result<Vec<u8>, TokenFault> {
        let mut open = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        let had_session = open.is_some();
        let (mut generation, mut result) = self.attempt(&mut open, input);
        if had_session && is_worth_retrying(&result) {
            (generation, result) = self.attempt(&mut open, input);
        }
        if is_worth_retrying(&result) {
            self.module.reinitialize(generation)?;
            (_, result) = self.attempt(&mut open, input);
        }
        result
    }

    /// Signs once. Closes the session if that fails, so that the next attempt opens another.
    fn attempt(&self, open: &mut Option<KeySession>, input: &[u8]) -> (u64, Result<Vec<u8>, TokenFault>) {
        self.module.with_library(|state| {
            let current = open.take().filter(|session| session.generation == state.generation);
            let session = match current {
                Some(session) => Ok(session),
                None => self.open_session(state),
            };
            let result = session.and_then(|session| {
                match session.session.sign(&self.mechanism.mechanism(), session.key, input) {
                    Ok(output) => {
                        *open = Some(session);
                        Ok(output)
                    }
                    Err(error) => {
                        session.session.close().ok();
                        Err(error.into())
                    }
                }
            });
            (state.generation, result)
        })
    }

    fn open_session(&self, state: &LibraryState) -> Result<KeySession, TokenFault> {
        let session = self.module.open_session(state, &self.uri)?;
        match find_key(&session, &self.uri) {
            Ok(key) => Ok(KeySession { session, key, generation: state.generation }),
            Err(error) => {
                session.close().ok();
                Err(error)
            }
        }
    }
}

impl ExternalKey for TokenKey {
    fn public_key(&self) -> &PublicKey {
        &self.public_key
    }

    fn signature_scheme(&self) -> SignatureScheme {
        self.scheme
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        let unavailable =
            |reason: &dyn fmt::Display| Error::KeyUnavailable(format!("{}: {reason}", self.uri));
        let output = self.sign_input(&self.mechanism.input(message));
        let signature = self.mechanism.signature(output.map_err(|fault| unavailable(&fault))?);
        signature.ok_or_else(|| unavailable(&"the token returned a signature of another length"))
    }
}

impl Drop for TokenKey {
    fn drop(&mut self) {
        let open = self.session.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        self.module.with_library(|state| {
            if let Some(open) = open.filter(|open| open.generation == state.generation) {
                open.session.close().ok();
            }
        });
    }
}

impl fmt::Debug for TokenKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "TokenKey({})", self.uri)
    }
}

/// A rejected PIN is not tried again, because the token would be locked.
fn is_worth_retrying(result: &Result<Vec<u8>, TokenFault>) -> bool {
    matches!(result, Err(TokenFault::Failed(_)))
}

/// Finds the one private key of a URI in a session.
fn find_key(session: &Session, uri: &TokenUri) -> Result<ObjectHandle, TokenFault> {
    let mut template = vec![Attribute::Class(ObjectClass::PRIVATE_KEY), Attribute::Token(true)];
    template.extend(uri.object.as_ref().map(|label| Attribute::Label(label.clone().into_bytes())));
    template.extend(uri.id.as_ref().map(|id| Attribute::Id(id.clone())));
    let mut found = session.iter_objects(&template)?;
    match (found.next().transpose()?, found.next().transpose()?) {
        (Some(key), None) => Ok(key),
        (None, _) => Err(TokenFault::Failed("the token has no such private key".to_owned())),
        (Some(_), Some(_)) => {
            Err(TokenFault::Failed("several private keys match; add the id attribute".to_owned()))
        }
    }
}
