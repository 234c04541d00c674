//! May somebody do something?

use serde_json::Value;

use crate::error::Error;
use crate::verbs::Call;

/// Of anybody, anywhere.
pub fn answer(call: &Call<'_>, question: &mut Value) -> Result<(), Error> {
    let _ = (call, question);
    Err(Error::MethodNotAllowed)
}

/// Of anybody, in the namespace of the path.
pub fn answer_local(call: &Call<'_>, question: &mut Value) -> Result<(), Error> {
    answer(call, question)
}

/// Of the caller.
pub fn answer_self(call: &Call<'_>, question: &mut Value) -> Result<(), Error> {
    answer(call, question)
}
