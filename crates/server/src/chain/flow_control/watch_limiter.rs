//! Limits open watches by user: they outlive the seat they started with.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// Number of open watches by user.
pub(crate) struct WatchLimiter {
    max_per_user: usize,
    open: Mutex<HashMap<Arc<str>, usize>>,
}

/// An open watch; closed when dropped.
pub struct OpenWatch {
    watches: Arc<WatchLimiter>,
    user: Arc<str>,
}

impl WatchLimiter {
    /// Creates a limiter of `most` watches per user.
    pub(crate) fn new(most: usize) -> Arc<WatchLimiter> {
        Arc::new(WatchLimiter { max_per_user: most, open: Mutex::default() })
    }

    /// Opens a watch, unless the user has too many.
    pub(crate) fn open(self: &Arc<Self>, user: &str) -> Option<OpenWatch> {
        let mut open = self.lock();
        let user = open.get_key_value(user).map_or_else(|| user.into(), |(user, _)| user.clone());
        let count = open.entry(user.clone()).or_default();
        if *count >= self.max_per_user {
            return None;
        }
        *count += 1;
        Some(OpenWatch { watches: self.clone(), user })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, usize>> {
        self.open.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        let mut open = self.watches.lock();
        let Some(count) = open.get_mut(&self.user) else { return };
        *count -= 1;
        if *count == 0 {
            open.remove(&self.user);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_has_a_separate_limit_and_idle_users_are_forgotten() {
        let watches = WatchLimiter::new(2);
        let (first, second) = (watches.open("alice"), watches.open("alice"));
        assert!(first.is_some() && second.is_some());
        assert!(watches.open("alice").is_none());
        let other = watches.open("bob");
        assert!(other.is_some());
        drop(first);
        let again = watches.open("alice");
        assert!(again.is_some());
        drop((second, other, again));
        assert!(watches.lock().is_empty());
    }
}
