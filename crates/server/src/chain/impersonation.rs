//! Stage: acting as somebody else. Not offered yet, so it is refused: to do as oneself what was
//! meant to be done as another would be worse than not to do it.

use std::sync::Arc;

use http::HeaderMap;

use crate::error::Error;
use crate::request::info::Info;
use crate::server::Server;
use crate::user::User;

/// The user that a request is to be done as; none if it is the caller.
pub fn impersonate(
    server: &Server,
    caller: &Arc<User>,
    headers: &HeaderMap,
    info: &Info,
) -> Result<Option<Arc<User>>, Error> {
    let _ = (server, caller, info);
    if headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
        let text = "impersonation is not offered by this server: send the request without Impersonate headers";
        return Err(Error::ForbiddenPath(text.into()));
    }
    Ok(None)
}
