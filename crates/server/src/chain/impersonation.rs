//! Stage: acting as somebody else. Not offered yet, so it is refused: to do as oneself what was
//! meant to be done as another would be worse than not to do it.

use http::HeaderMap;

use crate::error::Error;

/// Refuses requests that ask to act as another user.
pub fn refuse(headers: &HeaderMap) -> Result<(), Error> {
    if headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
        let text = "impersonation is not offered by this server: send the request without Impersonate headers";
        return Err(Error::ForbiddenPath(text.into()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_acts_as_another() {
        let mut headers = HeaderMap::new();
        assert!(refuse(&headers).is_ok());
        headers.insert("Impersonate-User", "alice".parse().unwrap());
        assert_eq!(refuse(&headers).unwrap_err().status().code, Some(403));
        let mut headers = HeaderMap::new();
        headers.insert("impersonate-extra-scopes", "x".parse().unwrap());
        assert!(refuse(&headers).is_err());
    }
}
