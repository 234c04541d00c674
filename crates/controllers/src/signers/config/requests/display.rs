//! Which requests a signer signs, for people.

use super::{KEY_TYPES, KeyType, AllowedRequesters};

impl KeyType {
    /// Its name in the file.
    pub fn name(self) -> &'static str {
        let found = KEY_TYPES.iter().find(|(_, kind)| *kind == self);
        found.map_or("", |(name, _)| *name)
    }
}

impl AllowedRequesters {
    /// Users, in order.
    pub fn users(&self) -> impl Iterator<Item = &str> {
        self.users.iter().map(String::as_str)
    }

    /// Groups, in order.
    pub fn groups(&self) -> impl Iterator<Item = &str> {
        self.groups.iter().map(String::as_str)
    }
}
