//! Request errors and the `Status` sent to the client.
//!
//! Every failure is a variant, and [`Error::status`] maps each to the `Status` that kube-apiserver
//! would send, without a catch-all arm. Text for operators goes to the log ([`Error::internal`]),
//! never to the client.

use windlass_api::field::{FieldErrors, quote};
use windlass_api::status::{CauseType, Status, StatusCause, StatusDetails, qualified_kind};

/// Failure of a request; each variant maps to one HTTP status code.
#[derive(Debug)]
pub enum Error {
    /// 400: the request is malformed; the text is sent to the client.
    BadRequest(String),
    /// 401: the request has an invalid credential, or none where one is required.
    Unauthorized,
    /// 403 for a resource, which the details name.
    Forbidden(ErrorSubject, String),
    /// 403 for a non-resource path.
    ForbiddenPath(String),
    /// 403: the namespace is being terminated.
    NamespaceTerminating(ErrorSubject, String),
    /// 404: the named object does not exist.
    NotFound(ErrorSubject),
    /// 404 for an unknown resource, version or subresource.
    NoSuchResource,
    /// 404 in plain text: nothing is served under this path.
    NoSuchPath,
    /// 405: the endpoint does not support the HTTP method.
    MethodNotAllowed,
    /// 405 with a custom text: the resource lacks the verb.
    VerbNotSupported(String),
    /// 406: no offered media type is acceptable; carries the supported types.
    NotAcceptable(&'static str),
    /// 409 on create; `generated` asks the client to retry, because a generated name collided.
    AlreadyExists {
        /// Existing object that the new one collides with.
        subject: ErrorSubject,
        /// Whether the existing object is being deleted, so that a retry may succeed.
        deleting: bool,
        /// Whether the server generated the name.
        generated: bool,
    },
    /// 409: a precondition failed or the resource version is stale.
    Conflict(ErrorSubject, String),
    /// 409: fields are owned by other managers.
    ApplyConflict(String, Vec<StatusCause>),
    /// 410 with a token to continue inconsistently.
    Expired(String, String),
    /// 413: the body or the resulting object exceeds its size limit.
    TooLarge(String),
    /// 415: the media type of the body is not supported.
    UnsupportedMediaType(String),
    /// 415 for an unknown patch type.
    UnsupportedPatchType,
    /// 422: the object is invalid.
    Invalid {
        /// API group of the invalid object.
        group: String,
        /// Kind of the invalid object; for some the plural resource.
        kind: String,
        /// Name of the invalid object; may be empty before one is generated.
        name: String,
        /// Validation errors by field path, in the order reported to the client.
        errors: FieldErrors,
    },
    /// 422 without a field: a JSON patch could not be applied.
    UnprocessablePatch,
    /// 429: a limit is exceeded; the client may retry after one second.
    TooManyRequests,
    /// 500 with a text for the client (unclassified, as some are in Kubernetes).
    Unclassified(String),
    /// 500 whose text goes to the log only.
    Internal(String),
    /// 503 with a text for the client.
    Unavailable(String),
    /// 504: the client requested a resource version that is not reached yet.
    FutureVersion {
        /// Resource version that the client requested, as a store revision.
        requested: u64,
        /// Newest revision that this server has seen.
        current: u64,
    },
    /// 504: the request exceeded its timeout.
    Timeout,
    /// Another error, with the warnings raised before it.
    Warned(Vec<String>, Box<Error>),
}

/// Object or resource that an error refers to: `configmaps "x"`.
#[derive(Clone, Debug, Default)]
pub struct ErrorSubject {
    /// API group; empty for the core group.
    pub group: String,
    /// Plural resource; for delete preconditions the kind.
    pub resource: String,
    /// Name of the object; may be empty.
    pub name: String,
}

impl ErrorSubject {
    /// Identifies an object, or a whole resource if the name is empty.
    pub fn new(group: &str, resource: &str, name: &str) -> Self {
        ErrorSubject { group: group.into(), resource: resource.into(), name: name.into() }
    }

    fn words(&self) -> String {
        let resource = qualified_kind(&self.group, &self.resource);
        if self.name.is_empty() { resource } else { format!("{resource} {}", quote(&self.name)) }
    }

    fn quoted(&self) -> String {
        format!("{} {}", qualified_kind(&self.group, &self.resource), quote(&self.name))
    }

    fn details(&self) -> StatusDetails {
        StatusDetails {
            name: self.name.clone(),
            group: self.group.clone(),
            kind: self.resource.clone(),
            ..StatusDetails::default()
        }
    }
}

impl Error {
    /// Returns a 422 for invalid query options (`ListOptions`, `PatchOptions`, …).
    pub fn options(kind: &str, errors: FieldErrors) -> Self {
        let name = String::new();
        Error::Invalid { group: "meta.k8s.io".into(), kind: kind.into(), name, errors }
    }

    /// Adds the texts of `Warning` headers to the error.
    #[must_use]
    pub fn warned(self, warnings: Vec<String>) -> Self {
        if warnings.is_empty() { self } else { Error::Warned(warnings, Box::new(self)) }
    }

    /// Returns the texts of the `Warning` headers.
    pub fn warnings(&self) -> &[String] {
        match self {
            Error::Warned(warnings, _) => warnings,
            _ => &[],
        }
    }

    /// Returns the text for operators, if it says more than the client's.
    pub fn internal(&self) -> Option<&str> {
        match self {
            Error::Internal(text) => Some(text),
            Error::Warned(_, because) => because.internal(),
            _ => None,
        }
    }

    /// Returns the `Status` sent to the client.
    pub fn status(&self) -> Status {
        match self {
            Error::Warned(_, because) => because.status(),
            Error::BadRequest(text) => Status::failure(400, "BadRequest", text),
            Error::Unauthorized => Status::failure(401, "Unauthorized", "Unauthorized"),
            Error::Forbidden(subject, why) => {
                let text = format!("{} is forbidden: {why}", subject.words());
                Status::failure(403, "Forbidden", text).with_details(subject.details())
            }
            Error::ForbiddenPath(why) => {
                let text = format!("forbidden: {why}");
                Status::failure(403, "Forbidden", text).with_details(StatusDetails::default())
            }
            Error::NamespaceTerminating(subject, namespace) => terminating(subject, namespace),
            Error::NotFound(subject) => {
                let text = format!("{} not found", subject.quoted());
                Status::failure(404, "NotFound", text).with_details(subject.details())
            }
            Error::NoSuchResource => {
                plain(404, "NotFound", "the server could not find the requested resource")
            }
            Error::NoSuchPath => plain(404, "NotFound", "404 page not found"),
            Error::MethodNotAllowed => {
                let text = "the server does not allow this method on the requested resource";
                plain(405, "MethodNotAllowed", text)
            }
            Error::VerbNotSupported(text) => plain(405, "MethodNotAllowed", text),
            Error::NotAcceptable(accepted) => {
                let text = format!("only the following media types are accepted: {accepted}");
                Status::failure(406, "NotAcceptable", text)
            }
            Error::AlreadyExists { subject, deleting, generated } => exists(subject, *deleting, *generated),
            Error::Conflict(subject, why) => {
                let text = format!("Operation cannot be fulfilled on {}: {why}", subject.quoted());
                Status::failure(409, "Conflict", text).with_details(subject.details())
            }
            Error::ApplyConflict(text, conflicts) => apply_conflict(text, conflicts),
            Error::Expired(text, token) => {
                let mut status = Status::failure(410, "Expired", text);
                status.metadata.continue_.clone_from(token);
                status
            }
            Error::TooLarge(text) => Status::failure(413, "RequestEntityTooLarge", text),
            Error::UnsupportedMediaType(text) => Status::failure(415, "UnsupportedMediaType", text),
            Error::UnsupportedPatchType => plain(415, "UnsupportedMediaType", "415: Unsupported Media Type"),
            Error::Invalid { group, kind, name, errors } => {
                Status::invalid(group, kind, name, errors.clone())
            }
            Error::UnprocessablePatch => {
                let text = "the server rejected our request due to an error in our request";
                plain(422, "Invalid", text)
            }
            Error::TooManyRequests => {
                let text = "the server has received too many requests and has asked us to try again later";
                retry(429, "TooManyRequests", text, 1)
            }
            Error::Unclassified(text) => Status::failure(500, "", text),
            Error::Internal(_) => internal_error(),
            Error::Unavailable(text) => retry(503, "ServiceUnavailable", text, 1),
            Error::FutureVersion { requested: asked, current } => future_version(*asked, *current),
            Error::Timeout => {
                let text = "request did not complete within the allotted timeout";
                Status::failure(504, "Timeout", text).with_details(StatusDetails::default())
            }
        }
    }
}

fn plain(code: u16, reason: &str, text: &str) -> Status {
    Status::failure(code, reason, text).with_details(StatusDetails::default())
}

fn retry(code: u16, reason: &str, text: &str, seconds: u32) -> Status {
    Status::failure(code, reason, text)
        .with_details(StatusDetails { retry_after_seconds: seconds, ..StatusDetails::default() })
}

fn terminating(subject: &ErrorSubject, namespace: &str) -> Status {
    let why = format!("namespace {namespace} is being terminated");
    let text = format!(
        "{} is forbidden: unable to create new content in namespace {namespace} because it is being terminated",
        subject.words()
    );
    let mut details = subject.details();
    details.causes = vec![StatusCause {
        kind: CauseType::NamespaceTerminating,
        message: why,
        field: "metadata.namespace".into(),
    }];
    Status::failure(403, "Forbidden", text).with_details(details)
}

fn exists(subject: &ErrorSubject, deleting: bool, generated: bool) -> Status {
    let mut details = subject.details();
    let mut text = format!("{} already exists", subject.quoted());
    if deleting {
        text = format!("object is being deleted: {text}");
    }
    if generated {
        text = format!("{text}, the server was not able to generate a unique name for the object");
        details.retry_after_seconds = 1;
    }
    Status::failure(409, "AlreadyExists", text).with_details(details)
}

fn apply_conflict(text: &str, causes: &[StatusCause]) -> Status {
    Status::failure(409, "Conflict", text)
        .with_details(StatusDetails { causes: causes.to_vec(), ..StatusDetails::default() })
}

fn internal_error() -> Status {
    let text = "Internal error occurred: the server could not complete the request";
    Status::failure(500, "InternalError", text).with_details(StatusDetails {
        causes: vec![StatusCause {
            kind: CauseType::UnexpectedServerResponse,
            message: "the server could not complete the request".into(),
            field: String::new(),
        }],
        ..StatusDetails::default()
    })
}

fn future_version(asked: u64, current: u64) -> Status {
    let text = format!("Too large resource version: {asked}, current: {current}");
    Status::failure(504, "Timeout", format!("Timeout: {text}")).with_details(StatusDetails {
        causes: vec![StatusCause {
            kind: CauseType::ResourceVersionTooLarge,
            message: "Too large resource version".into(),
            field: String::new(),
        }],
        retry_after_seconds: 1,
        ..StatusDetails::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_those_of_kubernetes() {
        let one = ErrorSubject::new("certificates.k8s.io", "clustertrustbundles", "a");
        let all = ErrorSubject::new("", "secrets", "");
        for (error, code, text) in [
            (Error::NotFound(one.clone()), 404, "clustertrustbundles.certificates.k8s.io \"a\" not found"),
            (Error::Forbidden(all, "no".into()), 403, "secrets is forbidden: no"),
            (
                Error::Conflict(one.clone(), "why".into()),
                409,
                "Operation cannot be fulfilled on clustertrustbundles.certificates.k8s.io \"a\": why",
            ),
            (
                Error::AlreadyExists { subject: one, deleting: true, generated: false },
                409,
                "object is being deleted: clustertrustbundles.certificates.k8s.io \"a\" already exists",
            ),
        ] {
            let status = error.status();
            assert_eq!((status.code, status.message.as_str()), (Some(code), text));
        }
    }

    #[test]
    fn internal_text_stays_inside() {
        let error = Error::Internal("the password is swordfish".into());
        let sent = serde_json::to_string(&error.status()).unwrap();
        assert!(!sent.contains("swordfish"));
        assert_eq!(error.internal(), Some("the password is swordfish"));
    }
}
