//! Bootstrap tokens `id.secret` of joining nodes, stored in secrets of `kube-system`.

use std::collections::BTreeSet;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use time::OffsetDateTime;
use windlass_api::meta::ObjectMetaView;
use windlass_api::timestamp;

use crate::error::Error;
use crate::server::Server;
use crate::user::User;

/// Authenticates a token; `None` if it is no bootstrap token or its secret does not permit it.
pub(crate) fn identify(server: &Server, token: &str, now: OffsetDateTime) -> Result<Option<User>, Error> {
    let Some((id, secret)) = parse(token) else { return Ok(None) };
    let found = server.core_object("secrets", &format!("kube-system/bootstrap-token-{id}"))?;
    Ok(found.and_then(|found| validate_secret(&found, id, secret, now)))
}

/// Returns the key of the token's secret, if it has the form of a bootstrap token.
pub(crate) fn secret_key(token: &str) -> Option<String> {
    parse(token).map(|(id, _)| format!("kube-system/bootstrap-token-{id}"))
}

const DEFAULT_GROUP: &str = "system:bootstrappers";

/// Splits a bootstrap token into its ID (`[a-z0-9]{6}`) and secret (`[a-z0-9]{16}`).
fn parse(token: &str) -> Option<(&str, &str)> {
    let (id, secret) = token.split_once('.')?;
    let plain = |text: &str| text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    (id.len() == 6 && secret.len() == 16 && plain(id) && plain(secret)).then_some((id, secret))
}

fn validate_secret(object: &Value, id: &str, secret: &str, now: OffsetDateTime) -> Option<User> {
    if ObjectMetaView::from_object(object).is_deleting() || object["type"] != "bootstrap.kubernetes.io/token"
    {
        return None;
    }
    let data = |key: &str| {
        let text = object["data"][key].as_str()?;
        STANDARD.decode(text).ok()
    };
    // Checked first, so that nothing else about the secret leaks to those who do not know it.
    verify_slices_are_equal(&data("token-secret")?, secret.as_bytes()).ok()?;
    let text = |key: &str| data(key).and_then(|bytes| String::from_utf8(bytes).ok());
    if text("token-id")? != id || text("usage-bootstrap-authentication")? != "true" {
        return None;
    }
    match data("expiration").filter(|bytes| !bytes.is_empty()) {
        None => {}
        // An unparsable expiration counts as expired.
        Some(_) if timestamp::parse(&text("expiration")?).ok()? <= now => return None,
        Some(_) => {}
    }
    let mut groups = BTreeSet::from([DEFAULT_GROUP.to_owned()]);
    if data("auth-extra-groups").is_some_and(|bytes| !bytes.is_empty()) {
        for group in text("auth-extra-groups")?.split(',') {
            if !is_bootstrap_group(group) {
                return None;
            }
            groups.insert(group.to_owned());
        }
    }
    let name = format!("system:bootstrap:{id}");
    Some(User::authenticated(&name, "", groups.into_iter().collect()))
}

/// Matches `system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]`, as the upstream authenticator does.
fn is_bootstrap_group(group: &str) -> bool {
    let Some(rest) = group.strip_prefix("system:bootstrappers:") else { return false };
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let last = rest.bytes().last().is_some_and(plain);
    last && rest.len() <= 256 && rest.bytes().all(|b| plain(b) || b == b':' || b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use time::macros::datetime;

    const NOW: OffsetDateTime = datetime!(2026-06-01 12:00 UTC);

    fn secret(changes: &[(&str, &str)]) -> Value {
        let mut data = json!({});
        let usual = [
            ("token-id", "abcdef"),
            ("token-secret", "0123456789abcdef"),
            ("usage-bootstrap-authentication", "true"),
        ];
        for (key, value) in usual.iter().chain(changes) {
            data[*key] = json!(STANDARD.encode(value));
        }
        json!({"metadata": {}, "type": "bootstrap.kubernetes.io/token", "data": data})
    }

    fn groups(object: &Value) -> Option<Vec<String>> {
        validate_secret(object, "abcdef", "0123456789abcdef", NOW).map(|user| user.groups)
    }

    #[test]
    fn a_token_has_one_form() {
        assert_eq!(parse("abcdef.0123456789abcdef"), Some(("abcdef", "0123456789abcdef")));
        for bad in [
            "abcde.0123456789abcdef",
            "abcdef.0123456789abcde",
            "abcdef.0123456789abcdef0",
            "ABCDEF.0123456789abcdef",
            "abcdef.0123456789abcde.",
            "abcdef:0123456789abcdef",
            "../../.0123456789abcdef",
            " bcdef.0123456789abcdef",
            "",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_secret_says_whether_it_may_be_used() {
        let plain = ["system:bootstrappers", "system:authenticated"].map(str::to_owned).to_vec();
        for (changes, allowed) in [
            (&[][..], true),
            (&[("expiration", "")], true),
            (&[("expiration", "2026-06-01T12:00:01Z")], true),
            (&[("expiration", "2026-06-01T13:00:00+02:00")], false),
            (&[("expiration", "2026-06-01T12:00:00Z")], false),
            (&[("expiration", "tomorrow")], false),
            (&[("token-secret", "0123456789abcdeX")], false),
            (&[("token-secret", "")], false),
            (&[("token-id", "fedcba")], false),
            (&[("usage-bootstrap-authentication", "True")], false),
            (&[("usage-bootstrap-authentication", "")], false),
            (&[("auth-extra-groups", "")], true),
            (&[("auth-extra-groups", "system:masters")], false),
            (&[("auth-extra-groups", "system:bootstrappers:a,system:masters")], false),
            (&[("auth-extra-groups", "system:bootstrappers:a, system:bootstrappers:b")], false),
            (&[("auth-extra-groups", "system:bootstrappers:")], false),
            (&[("auth-extra-groups", "system:bootstrappers:a-")], false),
            (&[("auth-extra-groups", "system:bootstrappers:A")], false),
        ] {
            let want = allowed.then(|| plain.clone());
            assert_eq!(groups(&secret(changes)), want, "{changes:?}");
        }
        let extra = [("auth-extra-groups", "system:bootstrappers:z,system:bootstrappers:a:b-c")];
        let want = ["", ":a:b-c", ":z"].map(|end| format!("system:bootstrappers{end}"));
        assert_eq!(groups(&secret(&extra)).unwrap()[..3], want);
    }

    #[test]
    fn only_bootstrap_secrets_that_stay_count() {
        let mut other = secret(&[]);
        other["type"] = json!("Opaque");
        assert_eq!(groups(&other), None);
        let mut going = secret(&[]);
        going["metadata"]["deletionTimestamp"] = json!("2027-01-01T00:00:00Z");
        assert_eq!(groups(&going), None);
        for missing in ["token-id", "token-secret", "usage-bootstrap-authentication"] {
            let mut less = secret(&[]);
            less["data"].as_object_mut().unwrap().remove(missing);
            assert_eq!(groups(&less), None, "{missing}");
        }
    }

    #[test]
    fn groups_have_a_longest_name() {
        let long = |n: usize| format!("system:bootstrappers:{}", "a".repeat(n));
        assert!(is_bootstrap_group(&long(256)));
        assert!(!is_bootstrap_group(&long(257)));
    }
}
