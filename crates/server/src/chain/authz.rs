//! Stage: may the caller do this? Decided before routing, so that what exists is not given away.

use crate::error::{Error, Subject};
use crate::request::info::{Info, Target};
use crate::user::{AUTHENTICATED, User};

/// Paths that anybody may read: a load balancer has no credentials.
const PUBLIC: &[&str] = &["/healthz", "/livez", "/readyz", "/version", "/version/"];

/// Refuses what the caller may not do.
///
/// Everybody who proved who they are may do everything, everybody else only read health and
/// version: the credentials there are so far are all the operator's own.
pub fn authorize(user: &User, info: &Info) -> Result<(), Error> {
    if user.is_in(AUTHENTICATED) || is_public(info) {
        return Ok(());
    }
    Err(denied(user, info))
}

fn is_public(info: &Info) -> bool {
    info.target == Target::Path
        && info.verb == "get"
        && (PUBLIC.contains(&info.path.as_str())
            || ["/livez/", "/readyz/", "/healthz/"].iter().any(|p| info.path.starts_with(p)))
}

fn denied(user: &User, info: &Info) -> Error {
    let who = windlass_api::field::quote(&user.name);
    let Target::Resource(path) = &info.target else {
        return Error::ForbiddenPath(format!(
            "User {who} cannot {} path {}",
            info.verb,
            windlass_api::field::quote(&info.path)
        ));
    };
    let resource = if path.subresource.is_empty() {
        path.resource.clone()
    } else {
        format!("{}/{}", path.resource, path.subresource)
    };
    let place = if path.namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace {}", windlass_api::field::quote(&path.namespace))
    };
    let why = format!(
        "User {who} cannot {} resource {} in API group {} {place}",
        info.verb,
        windlass_api::field::quote(&resource),
        windlass_api::field::quote(&path.group),
    );
    Error::Forbidden(Subject::new(&path.group, &path.resource, &path.name), why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Method;

    fn answer(user: &User, path: &str) -> Option<String> {
        let info = Info::parse(&Method::GET, path, false, None).unwrap();
        authorize(user, &info).err().map(|e| e.status().message)
    }

    #[test]
    fn nobody_reads_health_and_nothing_else() {
        let nobody = User::anonymous();
        for path in ["/healthz", "/livez", "/readyz", "/version", "/readyz/ping"] {
            assert_eq!(answer(&nobody, path), None, "{path}");
        }
        assert_eq!(
            answer(&nobody, "/apis").unwrap(),
            "forbidden: User \"system:anonymous\" cannot get path \"/apis\""
        );
        assert_eq!(
            answer(&nobody, "/api/v1/namespaces/n/secrets/s").unwrap(),
            "secrets \"s\" is forbidden: User \"system:anonymous\" cannot get resource \"secrets\" in API group \"\" in the namespace \"n\""
        );
        assert!(answer(&nobody, "/metrics").is_some());
    }

    #[test]
    fn the_operator_may_do_everything() {
        let admin = User::authenticated("admin", "", vec![]);
        assert_eq!(answer(&admin, "/api/v1/secrets"), None);
    }
}
