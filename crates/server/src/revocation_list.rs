//! `/pki/crl/<authority>.crl` and `.pem`: published certificate revocation lists, for clients without a
//! credential.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH};
use http::request::Parts;
use http::{Response, StatusCode};

use crate::body::ResponseBody;
use crate::error::Error;
use crate::registry::object_fields::text;
use crate::registry::revocations::REVOCATION_LISTS_KIND;
use crate::response;
use crate::server::Server;

const PREFIX: &str = "/pki/crl/";
/// Revocations should take effect soon, and a conditional request costs little.
const CACHEABLE: HeaderValue = HeaderValue::from_static("public, max-age=60");

/// Formats of a list, by the suffix of the path.
#[derive(Clone, Copy)]
enum CrlFormat {
    Der,
    Pem,
}

impl CrlFormat {
    fn media_type(self) -> &'static str {
        match self {
            CrlFormat::Der => "application/pkix-crl",
            CrlFormat::Pem => "application/x-pem-file",
        }
    }
}

/// Returns true if lists are served below the path.
pub(crate) fn is_below(path: &str) -> bool {
    path.starts_with(PREFIX)
}

/// Serves the list of an authority; 404 if it has none.
pub(crate) fn answer(server: &Server, parts: &Parts, path: &str) -> Result<Response<ResponseBody>, Error> {
    let file = path.strip_prefix(PREFIX).and_then(|file| file.rsplit_once('.'));
    let (id, format) = match file {
        Some((id, "crl")) => (id, CrlFormat::Der),
        Some((id, "pem")) => (id, CrlFormat::Pem),
        _ => return Err(Error::NoSuchPath),
    };
    let cache = server.caches.for_kind(&REVOCATION_LISTS_KIND);
    let object = cache.and_then(|cache| cache.get(id)).ok_or(Error::NoSuchPath)?;
    let tag = format!("\"{}\"", object.revision);
    let tag = HeaderValue::from_str(&tag).map_err(|error| Error::Internal(error.to_string()))?;
    let is_known = parts.headers.get_all(IF_NONE_MATCH).iter().any(|known| *known == tag);
    let mut response = if is_known {
        let mut response = response::typed(StatusCode::NOT_MODIFIED, format.media_type(), Bytes::new());
        response.headers_mut().remove(CONTENT_TYPE);
        response
    } else {
        let der = STANDARD.decode(text(&object.stored_value(), "/spec/crl"));
        let der = der.map_err(|_| Error::Internal("stored revocation list is not base64".into()))?;
        let bytes: Bytes = match format {
            CrlFormat::Der => der.into(),
            CrlFormat::Pem => windlass_pki::pem::encode("X509 CRL", &der).as_bytes().to_vec().into(),
        };
        response::typed(StatusCode::OK, format.media_type(), bytes)
    };
    response.headers_mut().insert(CACHE_CONTROL, CACHEABLE);
    response.headers_mut().insert(ETAG, tag);
    let nosniff = HeaderValue::from_static("nosniff");
    response.headers_mut().insert(http::header::X_CONTENT_TYPE_OPTIONS, nosniff);
    Ok(response)
}
