//! Names of requesters, for `windlass signer show`.

use super::AllowedRequesters;

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
