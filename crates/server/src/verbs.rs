//! The verbs on resources, one file each; all writes go through [`write_path`].

mod apply;
pub(crate) mod create;
pub(crate) mod decode;
pub(crate) mod delete;
pub(crate) mod freshness;
pub(crate) mod get;
pub(crate) mod list;
pub(crate) mod patch;
pub(crate) mod review;
pub(crate) mod store_error;
pub(crate) mod subresource;
pub(crate) mod update;
pub(crate) mod watch;
pub(crate) mod write_path;

use std::sync::Arc;

use http::HeaderMap;
use time::OffsetDateTime;

use crate::cache::KindCache;
use crate::error::{Error, ErrorSubject};
use crate::registry::certificatesigningrequests::CsrParser;
use crate::registry::kind::{Kind, Scope, ServedVersion};
use crate::request::info::ResourcePath;
use crate::request::query::QueryParameters;
use crate::server::Server;
use crate::user::User;

/// A request on a resource, after authorization and routing.
pub struct RequestContext<'a> {
    pub server: &'a Arc<Server>,
    pub kind: &'static Kind,
    /// Group and version that the client addressed the kind in.
    pub served: &'static ServedVersion,
    pub path: &'a ResourcePath,
    /// Decoded query parameters of the request URL.
    pub query: &'a QueryParameters,
    /// Request headers as the client sent them.
    pub headers: &'a HeaderMap,
    /// User that the request is performed as, after impersonation.
    pub user: &'a Arc<User>,
    /// Parses the PKCS#10 request of a CertificateSigningRequest, once for all stages.
    pub(crate) csr: &'a CsrParser,
    /// Time the request arrived, used for all timestamps it writes.
    pub now: OffsetDateTime,
}

impl RequestContext<'_> {
    pub fn cache(&self) -> Result<&Arc<KindCache>, Error> {
        let cache = self.server.caches.for_kind(self.kind);
        cache.ok_or_else(|| Error::Internal(format!("{} has no cache", self.kind.plural)))
    }

    /// Returns the key: `namespace/name`, or `name` at cluster scope.
    pub fn key(&self, name: &str) -> String {
        match self.kind.scope {
            Scope::Cluster => name.to_owned(),
            Scope::Namespaced => format!("{}/{name}", self.path.namespace),
        }
    }

    /// Returns the object `name` as the subject of an error.
    pub fn subject(&self, name: &str) -> ErrorSubject {
        ErrorSubject::new(self.served.group, self.kind.plural, name)
    }

    /// Returns a 422 for an object of the kind.
    pub fn invalid(&self, name: &str, errors: windlass_api::field::FieldErrors) -> Error {
        Error::Invalid {
            group: self.served.group.into(),
            kind: self.kind.name.into(),
            name: name.into(),
            errors,
        }
    }

    /// Runs one stage, on about `size` bytes, without blocking other requests.
    pub async fn run_offloaded<T>(
        &self,
        size: usize,
        work: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.server.offload.run(self.user, size, work).await
    }

    /// Returns the field manager to record for this caller.
    pub fn manager(&self, asked: &str) -> String {
        if !asked.is_empty() {
            return asked.to_owned();
        }
        let agent = self.headers.get(http::header::USER_AGENT);
        let agent = agent.and_then(|v| v.to_str().ok()).unwrap_or_default();
        let product = agent.split('/').next().unwrap_or_default();
        let printable = product.chars().filter(|c| !c.is_control()).take(128);
        let name: String = printable.collect();
        if name.is_empty() { "unknown".into() } else { name }
    }
}
