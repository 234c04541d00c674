//! Bytes of encoded but unwritten responses, counted by user.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// Pending response bytes by user.
pub(crate) struct PendingBytes {
    max_bytes_per_user: usize,
    by_user: Mutex<HashMap<Arc<str>, usize>>,
}

/// The bytes of one response; released on drop.
pub(crate) struct ByteCharge {
    pending: Arc<PendingBytes>,
    user: Arc<str>,
    bytes: usize,
}

impl PendingBytes {
    /// Creates an empty counter with a limit of `most` bytes per user.
    pub(crate) fn new(most: usize) -> Arc<PendingBytes> {
        Arc::new(PendingBytes { max_bytes_per_user: most, by_user: Mutex::default() })
    }

    /// Returns true if the user already exceeds the limit.
    pub(crate) fn is_exceeded(&self, user: &str) -> bool {
        self.lock().get(user).is_some_and(|bytes| *bytes > self.max_bytes_per_user)
    }

    /// Charges a response unless the user would exceed the limit. A user's only response is charged
    /// whatever its size.
    pub(crate) fn try_charge(self: &Arc<Self>, user: &str, bytes: usize) -> Option<ByteCharge> {
        let mut by_user = self.lock();
        let before = by_user.get(user).copied().unwrap_or_default();
        if before > 0 && before.saturating_add(bytes) > self.max_bytes_per_user {
            return None;
        }
        Some(self.add(&mut by_user, user, bytes))
    }

    /// Charges a response regardless of the limit.
    pub(crate) fn charge(self: &Arc<Self>, user: &str, bytes: usize) -> ByteCharge {
        self.add(&mut self.lock(), user, bytes)
    }

    fn add(self: &Arc<Self>, by_user: &mut HashMap<Arc<str>, usize>, user: &str, bytes: usize) -> ByteCharge {
        let known = by_user.get_key_value(user).map(|(user, _)| user.clone());
        let user = known.unwrap_or_else(|| user.into());
        *by_user.entry(user.clone()).or_default() += bytes;
        ByteCharge { pending: self.clone(), user, bytes }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, usize>> {
        self.by_user.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Drop for ByteCharge {
    fn drop(&mut self) {
        let mut by_user = self.pending.lock();
        let Some(bytes) = by_user.get_mut(&self.user) else { return };
        *bytes -= self.bytes;
        if *bytes == 0 {
            by_user.remove(&self.user);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_has_a_separate_limit_and_idle_users_are_forgotten() {
        let pending = PendingBytes::new(100);
        let large = pending.try_charge("alice", 1000);
        assert!(large.is_some(), "a single response is always possible");
        assert!(pending.is_exceeded("alice") && !pending.is_exceeded("bob"));
        assert!(pending.try_charge("alice", 1).is_none());
        let other = pending.try_charge("bob", 60);
        assert!(pending.try_charge("bob", 60).is_none());
        let forced = pending.charge("bob", 60);
        assert!(pending.is_exceeded("bob"));
        drop(large);
        let again = pending.try_charge("alice", 100);
        assert!(again.is_some() && !pending.is_exceeded("alice"));
        drop((other, forced, again));
        assert!(pending.lock().is_empty());
    }
}
