//! POST of a review, which is answered and not stored.

mod access;
mod rules;
mod self_subject;
mod token;

use http::StatusCode;
use serde_json::Value;

use super::RequestContext;
use super::decode::{self, ExpectedType};
use crate::error::Error;
use crate::registry::kind::ReviewKind;
use crate::request::options::WriteOptions;

pub(crate) struct ReviewResponse {
    /// The response body: the submitted review and its `status`.
    pub value: Value,
    /// Texts for the `Warning` headers of the response, in order.
    pub warnings: Vec<String>,
}

impl ReviewResponse {
    /// Returns true if access is allowed or the user authenticated: further grants would not change
    /// the result.
    pub(crate) fn is_granted(&self) -> bool {
        let status = &self.value["status"];
        status["allowed"] == true
            || status["authenticated"] == true
            || status.pointer("/userInfo/username").is_some_and(|name| name != "")
    }
}

/// HTTP status of all review responses, always 201.
pub(crate) const CODE: StatusCode = StatusCode::CREATED;

/// Answers the review in the body.
pub(crate) async fn answer(
    call: &RequestContext<'_>,
    review: ReviewKind,
    body: &[u8],
) -> Result<ReviewResponse, Error> {
    let options = WriteOptions::parse(call.query, "CreateOptions")?;
    let expected = ExpectedType::object(call.kind, call.served);
    let decode = || decode::object(call, expected, body, options.field_validation);
    let draft = call.run_offloaded(body.len(), decode).await?;
    let mut question = draft.value;
    let answer = || match review {
        ReviewKind::Token => token::answer(call, &mut question),
        ReviewKind::SelfSubject => self_subject::answer(call, &mut question),
        ReviewKind::SubjectAccess => access::answer(call, &mut question),
        ReviewKind::LocalSubjectAccess => access::answer_local(call, &mut question),
        ReviewKind::SelfSubjectAccess => access::answer_self(call, &mut question),
        ReviewKind::SelfSubjectRules => rules::answer(call, &mut question),
    };
    call.run_offloaded(body.len(), answer).await?;
    Ok(ReviewResponse { value: question, warnings: draft.warnings })
}
