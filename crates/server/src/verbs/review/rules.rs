//! What may the caller do in a namespace?

use serde_json::Value;

use crate::error::Error;
use crate::verbs::Call;

/// Puts the answer into the question.
pub fn answer(call: &Call<'_>, question: &mut Value) -> Result<(), Error> {
    let _ = (call, question);
    Err(Error::MethodNotAllowed)
}
