//! Encodes and decodes bootstrap tokens as Secrets.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, anyhow};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ObjectMeta;
use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use windlass_api::timestamp;
use windlass_pki::{SecureRandom, SystemRandom};
use zeroize::Zeroizing;

use crate::cli::TokenTtl;

/// Namespace of bootstrap token Secrets, fixed by Kubernetes.
pub const NAMESPACE: &str = "kube-system";
pub const TYPE: &str = "bootstrap.kubernetes.io/token";

const PREFIX: &str = "bootstrap-token-";
const USAGE_PREFIX: &str = "usage-bootstrap-";
const USAGES: [&str; 2] = ["authentication", "signing"];
const ID_LENGTH: usize = 6;
const SECRET_LENGTH: usize = 16;

/// Returns the name of a token's Secret.
pub fn name(id: &str) -> String {
    format!("{PREFIX}{id}")
}

/// A new token. Its type prevents accidental printing.
pub struct BootstrapToken {
    /// Public part of the token, also in the name of its Secret.
    pub id: String,
    secret: Zeroizing<String>,
}

impl BootstrapToken {
    /// Generates a token from the system's random source.
    pub fn random() -> Result<BootstrapToken> {
        let random = SystemRandom::new();
        let id = (*letters(&random, ID_LENGTH)?).clone();
        Ok(BootstrapToken { id, secret: letters(&random, SECRET_LENGTH)? })
    }

    /// Returns the complete token, as a joining machine presents it.
    pub fn whole(&self) -> Zeroizing<String> {
        Zeroizing::new(format!("{}.{}", self.id, *self.secret))
    }

    /// Returns the Secret that makes the token valid on the server.
    pub fn object(&self, terms: &TokenAttributes) -> Secret {
        let mut data = BTreeMap::new();
        let mut put = |key: &str, value: &str| data.insert(key.to_owned(), ByteString(value.into()));
        put("token-id", &self.id);
        put("token-secret", &self.secret);
        for usage in USAGES {
            put(&format!("{USAGE_PREFIX}{usage}"), "true");
        }
        put("auth-extra-groups", &terms.groups.join(","));
        if let Some(expires) = &terms.expires {
            put("expiration", expires);
        }
        if !terms.description.is_empty() {
            put("description", &terms.description);
        }
        let metadata = ObjectMeta {
            name: Some(name(&self.id)),
            namespace: Some(NAMESPACE.into()),
            ..ObjectMeta::default()
        };
        let type_ = Some(TYPE.into());
        Secret { metadata, data: Some(data), type_, ..Secret::default() }
    }
}

/// Draws this many letters from the 36 that tokens consist of, with equal probability.
fn letters(random: &SystemRandom, length: usize) -> Result<Zeroizing<String>> {
    const LETTERS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let mut text = Zeroizing::new(String::with_capacity(length));
    let mut byte = Zeroizing::new([0; 1]);
    while text.len() < length {
        random.fill(&mut *byte).map_err(|_| anyhow!("no random numbers available"))?;
        let [number] = *byte;
        // Values above the last multiple of 36 would favor the first letters.
        if number < 252
            && let Some(letter) = LETTERS.get(usize::from(number % 36))
        {
            text.push(char::from(*letter));
        }
    }
    Ok(text)
}

#[derive(Serialize)]
pub struct TokenAttributes {
    /// Expiry as RFC 3339; `None` if it never expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// Permitted usages: authentication, signing or both.
    pub usages: Vec<String>,
    /// Groups of users that authenticate with the token.
    pub groups: Vec<String>,
    /// Free text for people; empty if not set.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
}

impl TokenAttributes {
    pub fn new(ttl: TokenTtl, groups: &[String], text: &str, now: OffsetDateTime) -> Result<TokenAttributes> {
        let expires = match ttl {
            TokenTtl::Forever => None,
            TokenTtl::For(lasts) => Some(expiration_time(now, lasts).context("--ttl is too long")?),
        };
        let usages = USAGES.map(str::to_owned).to_vec();
        Ok(TokenAttributes { expires, usages, groups: groups.to_vec(), description: text.to_owned() })
    }
}

fn expiration_time(now: OffsetDateTime, lasts: std::time::Duration) -> Option<String> {
    let end = now.checked_add(lasts.try_into().ok()?)?.replace_nanosecond(0).ok()?;
    end.format(&Rfc3339).ok()
}

/// An existing token, as listed.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenEntry {
    /// Public part of the token, also in the name of its Secret.
    pub id: String,
    /// Complete token, if the user requested secrets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    #[serde(flatten)]
    pub terms: TokenAttributes,
    /// Remaining lifetime in seconds; `None` if it never expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds_left: Option<i64>,
    /// Why the token cannot be used to join.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<&'static str>,
}

impl TokenEntry {
    /// Decodes a Secret; `None` if it is not a bootstrap token.
    pub fn from_secret(secret: &Secret, reveal: bool, now: OffsetDateTime) -> Option<TokenEntry> {
        if secret.type_.as_deref() != Some(TYPE) {
            return None;
        }
        let id = secret.metadata.name.as_deref()?.strip_prefix(PREFIX)?.to_owned();
        let data = |key: &str| {
            let ByteString(bytes) = secret.data.as_ref()?.get(key)?;
            Some(String::from_utf8_lossy(bytes).into_owned()).filter(|text| !text.is_empty())
        };
        let uses = |usage: &&str| data(&format!("{USAGE_PREFIX}{usage}")).as_deref() == Some("true");
        let expires = data("expiration");
        let end = expires.as_deref().map(timestamp::parse);
        let problem = if secret.metadata.deletion_timestamp.is_some() {
            Some("being deleted")
        } else if data("token-id").as_deref() != Some(&id) || data("token-secret").is_none() {
            Some("incomplete")
        } else if end.as_ref().is_some_and(|end| end.as_ref().map_or(true, |end| *end <= now)) {
            Some("expired")
        } else if !uses(&"authentication") {
            Some("not for authentication")
        } else {
            None
        };
        let token = data("token-secret").filter(|_| reveal).map(|secret| format!("{id}.{secret}"));
        let groups = data("auth-extra-groups").unwrap_or_default();
        let groups = groups.split(',').filter(|group| !group.is_empty()).map(str::to_owned);
        let terms = TokenAttributes {
            expires,
            usages: USAGES.iter().filter(|usage| uses(usage)).map(|u| (*u).to_owned()).collect(),
            groups: groups.collect(),
            description: data("description").unwrap_or_default(),
        };
        // An unreadable expiry counts as expired.
        let seconds_left = end.map(|end| end.map_or(0, |end| (end - now).whole_seconds()));
        Some(TokenEntry { id, token, terms, seconds_left, problem })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use time::macros::datetime;

    use super::*;

    const NOW: OffsetDateTime = datetime!(2026-06-01 12:00:00.5 UTC);

    fn create_token(ttl: TokenTtl) -> (BootstrapToken, Secret) {
        let groups = ["system:bootstrappers:a", "system:bootstrappers:b"].map(str::to_owned);
        let terms = TokenAttributes::new(ttl, &groups, "for the web", NOW).unwrap();
        let token = BootstrapToken::random().unwrap();
        let secret = token.object(&terms);
        (token, secret)
    }

    #[test]
    fn a_token_is_stored_as_kubernetes_reads_it() {
        let (token, secret) = create_token(TokenTtl::For(Duration::from_secs(3600)));
        let secret = serde_json::to_value(secret).unwrap();
        assert_eq!(secret["metadata"]["namespace"], "kube-system");
        assert_eq!(secret["metadata"]["name"], format!("bootstrap-token-{}", token.id));
        assert_eq!(secret["type"], "bootstrap.kubernetes.io/token");
        let data: BTreeMap<String, ByteString> = serde_json::from_value(secret["data"].clone()).unwrap();
        let whole = token.whole();
        let (id, hidden) = whole.split_once('.').unwrap();
        for (key, value) in [
            ("token-id", id),
            ("token-secret", hidden),
            ("usage-bootstrap-authentication", "true"),
            ("usage-bootstrap-signing", "true"),
            ("auth-extra-groups", "system:bootstrappers:a,system:bootstrappers:b"),
            ("expiration", "2026-06-01T13:00:00Z"),
            ("description", "for the web"),
        ] {
            assert_eq!(data[key].0, value.as_bytes(), "{key}");
        }
        assert_eq!(data.len(), 7);
        let (_, secret) = create_token(TokenTtl::Forever);
        assert!(!secret.data.unwrap().contains_key("expiration"));
        assert!(TokenAttributes::new(TokenTtl::For(Duration::MAX), &[], "", NOW).is_err());
    }

    #[test]
    fn tokens_have_one_form_and_differ() {
        let tokens: Vec<_> = (0..50).map(|_| BootstrapToken::random().unwrap().whole()).collect();
        for token in &tokens {
            let (id, secret) = token.split_once('.').unwrap();
            assert_eq!((id.len(), secret.len()), (6, 16));
            let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
            assert!(id.bytes().chain(secret.bytes()).all(plain), "{}", **token);
        }
        let all: std::collections::BTreeSet<_> = tokens.iter().map(|token| token.as_str()).collect();
        assert_eq!(all.len(), tokens.len());
        // All letters occur: 1100 draws miss a given one once in 10^13.
        let used: std::collections::BTreeSet<_> = tokens.iter().flat_map(|t| t.bytes()).collect();
        assert_eq!(used.len(), 37);
    }

    #[test]
    fn listed_tokens_hide_their_secret() {
        let (token, secret) = create_token(TokenTtl::For(Duration::from_secs(3600)));
        let entry = TokenEntry::from_secret(&secret, false, NOW).unwrap();
        let text = serde_json::to_string(&entry).unwrap();
        let whole = token.whole();
        let (_, hidden) = whole.split_once('.').unwrap();
        assert!(!text.contains(hidden), "{text}");
        assert_eq!((entry.seconds_left, entry.problem), (Some(3599), None));
        assert_eq!(entry.terms.usages, ["authentication", "signing"]);
        assert_eq!(entry.terms.groups.len(), 2);
        let entry = TokenEntry::from_secret(&secret, true, NOW).unwrap();
        assert_eq!(entry.token.as_deref(), Some(whole.as_str()));
    }

    #[test]
    fn an_unusable_token_has_a_reason() {
        let hour = TokenTtl::For(Duration::from_secs(3600));
        for (key, value, problem) in [
            ("expiration", "2026-06-01T13:00:00Z", None),
            ("expiration", "", None),
            ("expiration", "2026-06-01T12:00:00Z", Some("expired")),
            ("expiration", "tomorrow", Some("expired")),
            ("token-id", "other", Some("incomplete")),
            ("token-secret", "", Some("incomplete")),
            ("usage-bootstrap-signing", "", None),
            ("usage-bootstrap-authentication", "no", Some("not for authentication")),
        ] {
            let (_, mut secret) = create_token(hour);
            let data = secret.data.as_mut().unwrap();
            data.insert(key.into(), ByteString(value.into()));
            assert_eq!(
                TokenEntry::from_secret(&secret, false, NOW).unwrap().problem,
                problem,
                "{key}={value}"
            );
        }
        let (_, mut secret) = create_token(hour);
        secret.type_ = Some("Opaque".into());
        assert!(TokenEntry::from_secret(&secret, false, NOW).is_none());
    }
}
