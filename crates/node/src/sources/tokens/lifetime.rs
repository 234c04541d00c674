//! Age of tokens, and when to renew them.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::Deserialize;
use time::OffsetDateTime;
use zeroize::Zeroizing;

use super::TokenSpec;
use crate::clock::ClockReading;

/// Longest use of a token.
const MAX_AGE: Duration = Duration::from_secs(24 * 3600);
/// Share of its lifetime for which a token is used.
const SHARE: f64 = 0.8;
/// Longest random advance of a renewal, to spread requests.
pub(super) const JITTER: Duration = Duration::from_secs(10);
/// How often to check whether the wall clock jumped.
pub(super) const LOOK: Duration = Duration::from_secs(60);
/// Shortest time between renewals, however short the token's lifetime.
const SHORTEST: Duration = Duration::from_secs(10);

/// A deadline, reached when either clock reaches it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RefreshDeadline {
    wall: OffsetDateTime,
    since: Duration,
}

impl RefreshDeadline {
    fn after(pause: Duration, now: ClockReading) -> Self {
        Self { wall: now.wall + pause, since: now.since.saturating_add(pause) }
    }

    /// Returns when to renew a token that was just issued. It does not depend on the server's
    /// clock.
    pub(super) fn for_new_token(lasts: Duration, now: ClockReading, random: f64) -> Self {
        let pause = used_for(lasts).saturating_sub(early(random));
        Self::after(pause.max(SHORTEST), now)
    }

    /// Returns the remaining time; `None` if it is due.
    pub(super) fn left(&self, now: ClockReading) -> Option<Duration> {
        let wall = Duration::try_from(self.wall - now.wall).unwrap_or_default();
        let left = wall.min(self.since.saturating_sub(now.since));
        (!left.is_zero()).then_some(left)
    }
}

/// Whether a token found on disk can be used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum TokenValidity {
    /// The token expired or is missing.
    Useless,
    /// The token is usable but should be renewed soon.
    Old,
    /// The token is valid until this deadline.
    Good(RefreshDeadline),
}

/// Claims of a token. The signature is not verified: the token comes from our own disk, and the
/// claims only decide when to request another.
#[derive(Debug, Deserialize)]
pub(super) struct TokenClaims {
    #[serde(default)]
    aud: TokenAudiences,
    exp: i64,
    iat: i64,
    #[serde(default, rename = "kubernetes.io")]
    kubernetes: KubernetesClaims,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum TokenAudiences {
    One(String),
    Several(Vec<String>),
}

#[derive(Debug, Default, Deserialize)]
struct KubernetesClaims {
    /// When it should have been renewed, although it is accepted for much longer.
    warnafter: Option<i64>,
}

impl Default for TokenAudiences {
    fn default() -> Self {
        Self::Several(Vec::new())
    }
}

impl TokenClaims {
    /// Parses the claims of a JWT without verifying its signature.
    pub(super) fn read(token: &str) -> Option<Self> {
        let mut parts = token.trim().split('.');
        let (_, payload, _) = (parts.next()?, parts.next()?, parts.next()?);
        let payload = payload.trim_end_matches('=');
        let payload = Zeroizing::new(BASE64_URL_SAFE_NO_PAD.decode(payload).ok()?);
        serde_json::from_slice(&payload).ok()
    }

    /// Returns whether the token has the wanted subject and audience. Only the server knows its own
    /// audience.
    pub(super) fn are_for(&self, wanted: &TokenSpec) -> bool {
        let Some(audience) = &wanted.audience else { return true };
        match &self.aud {
            TokenAudiences::One(one) => one == audience,
            TokenAudiences::Several(several) => several.contains(audience),
        }
    }

    /// Returns the validity of a token that was requested for `wanted` seconds.
    pub(super) fn validity(&self, wanted: i64, now: ClockReading, random: f64) -> TokenValidity {
        let expires = self.kubernetes.warnafter.map_or(self.exp, |warn| warn.min(self.exp));
        let lasts = u64::try_from(expires.saturating_sub(self.iat).min(wanted)).unwrap_or_default();
        let times = (from_unix(self.iat), from_unix(self.exp));
        let (Some(issued), Some(expires)) = times else { return TokenValidity::Useless };
        if now.wall >= expires {
            return TokenValidity::Useless;
        }
        let renewed = issued.saturating_add(time_of(used_for(Duration::from_secs(lasts))));
        match Duration::try_from(renewed - now.wall) {
            // An issue time in the future predates a correction of the clock.
            Ok(left) if !left.is_zero() && left <= MAX_AGE => {
                TokenValidity::Good(RefreshDeadline::after(left.saturating_sub(early(random)), now))
            }
            _ => TokenValidity::Old,
        }
    }
}

/// How long a token is used.
fn used_for(lasts: Duration) -> Duration {
    lasts.mul_f64(SHARE).min(MAX_AGE)
}

fn early(random: f64) -> Duration {
    JITTER.mul_f64(random.clamp(0.0, 1.0))
}

fn from_unix(seconds: i64) -> Option<OffsetDateTime> {
    OffsetDateTime::from_unix_timestamp(seconds).ok()
}

fn time_of(duration: Duration) -> time::Duration {
    time::Duration::try_from(duration).unwrap_or(time::Duration::MAX)
}
