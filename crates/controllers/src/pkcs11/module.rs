//! The library of a PKCS#11 vendor: initialization, tokens, login.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::Instant;

use cryptoki::context::{CInitializeArgs, CInitializeFlags, Function, Pkcs11};
use cryptoki::error::{Error, RvError};
use cryptoki::session::{Session, UserType};
use cryptoki::slot::{Slot, TokenInfo};

use super::pin::TokenPin;
use super::uri::TokenUri;
use crate::limits::TOKEN_REINITIALIZATION_INTERVAL;

/// A loaded PKCS#11 library and the PIN file of its tokens. Load a library once per process: PKCS#11 keeps its state per
/// process, so that a second instance would end the sessions of the first.
pub struct TokenModule {
    path: PathBuf,
    pin_file: PathBuf,
    library: RwLock<LibraryState>,
    /// PINs that a token rejected, by token. Trying one again would lock the token.
    rejected_pins: Mutex<Vec<(String, TokenPin)>>,
}

/// The library, and how often it was initialized. Holders of the read lock call the library; the write lock is for
/// initialization, during which no other call is allowed.
pub(super) struct LibraryState {
    library: Pkcs11,
    pub(super) generation: u64,
    initialized_at: Instant,
}

/// Error of the library or a token.
#[derive(Debug)]
pub(super) enum TokenFault {
    /// A call failed; a new session may help.
    Failed(String),
    /// The token rejected the PIN; more attempts could lock it.
    PinRejected(String),
}

impl fmt::Display for TokenFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Failed(reason) | Self::PinRejected(reason)) = self;
        formatter.write_str(reason)
    }
}

impl From<Error> for TokenFault {
    fn from(error: Error) -> Self {
        Self::Failed(describe_error(&error))
    }
}

impl TokenModule {
    /// Loads and initializes a library. The PIN file is read at every login, so that a corrected PIN needs no restart.
    /// The error names the library.
    pub fn load(path: &Path, pin_file: &Path) -> Result<Self, String> {
        let failed = |error: Error| format!("PKCS#11 module {}: {}", path.display(), describe_error(&error));
        let library = Pkcs11::new(path).map_err(failed)?;
        library.initialize(initialization()).map_err(failed)?;
        let state = LibraryState { library, generation: 0, initialized_at: Instant::now() };
        Ok(Self {
            path: path.to_owned(),
            pin_file: pin_file.to_owned(),
            library: RwLock::new(state),
            rejected_pins: Mutex::default(),
        })
    }

    /// Calls the library while nobody initializes it.
    pub(super) fn with_library<T>(&self, call: impl FnOnce(&LibraryState) -> T) -> T {
        call(&self.library.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Initializes the library again, because most libraries look for tokens only then. Does nothing if it happened
    /// since `generation`, or a moment ago.
    pub(super) fn reinitialize(&self, generation: u64) -> Result<(), TokenFault> {
        let mut state = self.library.write().unwrap_or_else(PoisonError::into_inner);
        if state.generation != generation || state.initialized_at.elapsed() < TOKEN_REINITIALIZATION_INTERVAL
        {
            return Ok(());
        }
        // All sessions end here, even if the library fails below.
        state.generation = state.generation.wrapping_add(1);
        state.initialized_at = Instant::now();
        if let Err(error) = state.library.clone().finalize() {
            tracing::debug!(module = %self.path.display(), error = describe_error(&error), "C_Finalize failed");
        }
        match state.library.initialize(initialization()) {
            Ok(()) | Err(Error::Pkcs11(RvError::CryptokiAlreadyInitialized, _)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens a session with the token of a URI and logs in.
    pub(super) fn open_session(&self, state: &LibraryState, uri: &TokenUri) -> Result<Session, TokenFault> {
        let (slot, token) = find_token(&state.library, uri)?;
        // Sessions are closed explicitly: the handle of one from before an initialization may belong to another session now.
        let session = state.library.open_ro_session_no_drop(slot)?;
        match self.log_in(&session, &token) {
            Ok(()) => Ok(session),
            Err(error) => {
                session.close().ok();
                Err(error)
            }
        }
    }

    fn log_in(&self, session: &Session, token: &TokenInfo) -> Result<(), TokenFault> {
        if !token.login_required() {
            return Ok(());
        }
        let name = format!("token {:?} with serial number {:?}", token.label(), token.serial_number());
        let pin = TokenPin::from_file(&self.pin_file).map_err(TokenFault::Failed)?;
        let mut rejected = self.rejected_pins.lock().unwrap_or_else(PoisonError::into_inner);
        if rejected.iter().any(|(token, rejected)| *token == name && *rejected == pin) {
            let file = self.pin_file.display();
            let reason = format!("{name} rejected the PIN; correct it in {file}");
            return Err(TokenFault::PinRejected(reason));
        }
        match session.login(UserType::User, Some(&pin.to_auth_pin())) {
            Ok(()) | Err(Error::Pkcs11(RvError::UserAlreadyLoggedIn, _)) => Ok(()),
            Err(error @ Error::Pkcs11(code, _)) if is_pin_rejection(code) => {
                rejected.retain(|(token, _)| *token != name);
                let reason = format!("{name} rejected the PIN: {}", describe_error(&error));
                rejected.push((name, pin));
                Err(TokenFault::PinRejected(reason))
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for TokenModule {
    fn drop(&mut self) {
        let state = self.library.get_mut().unwrap_or_else(PoisonError::into_inner);
        // Without it, the library could not be loaded again by this process.
        state.library.clone().finalize().ok();
    }
}

impl fmt::Debug for TokenModule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TokenModule").field("path", &self.path).finish_non_exhaustive()
    }
}

fn initialization() -> CInitializeArgs {
    CInitializeArgs::new(CInitializeFlags::OS_LOCKING_OK)
}

fn is_pin_rejection(code: RvError) -> bool {
    matches!(
        code,
        RvError::PinIncorrect
            | RvError::PinInvalid
            | RvError::PinLenRange
            | RvError::PinExpired
            | RvError::PinLocked
    )
}

/// Finds the one token that matches all attributes of a URI.
fn find_token(library: &Pkcs11, uri: &TokenUri) -> Result<(Slot, TokenInfo), TokenFault> {
    let mut found = None;
    for slot in library.get_slots_with_token()? {
        // A slot may lose its token between the two calls; the others still count.
        let Ok(token) = library.get_token_info(slot) else { continue };
        let is_equal =
            |wanted: &Option<String>, value: &str| wanted.as_deref().is_none_or(|wanted| wanted == value);
        let matches = is_equal(&uri.token, token.label())
            && is_equal(&uri.serial, token.serial_number())
            && is_equal(&uri.manufacturer, token.manufacturer_id())
            && is_equal(&uri.model, token.model())
            && uri.slot_id.is_none_or(|wanted| wanted == slot.id());
        if matches && found.replace((slot, token)).is_some() {
            return Err(TokenFault::Failed("several tokens match; add the serial attribute".to_owned()));
        }
    }
    found.ok_or_else(|| TokenFault::Failed("no such token is present".to_owned()))
}

/// Describes an error by the names of the PKCS#11 specification; the texts of the library are paragraphs.
fn describe_error(error: &Error) -> String {
    match error {
        Error::Pkcs11(code, function) => format!("{}: {}", function_name(*function), code_name(*code)),
        error => error.to_string(),
    }
}

fn function_name(function: Function) -> String {
    format!("C_{function:?}")
}

/// Returns the name of a return value: `SessionHandleInvalid` is `CKR_SESSION_HANDLE_INVALID`.
fn code_name(code: RvError) -> String {
    let mut name = "CKR".to_owned();
    for character in format!("{code:?}").chars() {
        if character.is_ascii_uppercase() {
            name.push('_');
        }
        name.push(character.to_ascii_uppercase());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_names_of_the_specification() {
        let error = Error::Pkcs11(RvError::SessionHandleInvalid, Function::Sign);
        assert_eq!(describe_error(&error), "C_Sign: CKR_SESSION_HANDLE_INVALID");
        let error = Error::Pkcs11(RvError::DeviceRemoved, Function::OpenSession);
        assert_eq!(describe_error(&error), "C_OpenSession: CKR_DEVICE_REMOVED");
    }

    #[test]
    fn a_missing_library_is_named() {
        let error = TokenModule::load(Path::new("/nonexistent/library.so"), Path::new("/nonexistent/pin"));
        assert!(error.unwrap_err().contains("/nonexistent/library.so"));
    }
}
