//! Names of key types and requesters, for `windlass signer show`.

use super::{AllowedRequesters, KEY_TYPES, KeyType};

impl KeyType {
    /// Returns the name that `keyTypes` uses for it.
    pub fn name(self) -> &'static str {
        let found = KEY_TYPES.iter().find(|(_, kind)| *kind == self);
        found.map_or("", |(name, _)| *name)
    }
}

impl AllowedRequesters {
    /// User names whose requests are approved, sorted.
    pub fn users(&self) -> impl Iterator<Item = &str> {
        self.users.iter().map(String::as_str)
    }

    /// Groups whose requests are approved, sorted.
    pub fn groups(&self) -> impl Iterator<Item = &str> {
        self.groups.iter().map(String::as_str)
    }
}
