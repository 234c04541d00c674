//! Tokens of service accounts, bound to their pods and renewed in time.

use std::sync::Arc;

use kube::Client;
use zeroize::Zeroizing;

use super::Wakes;
use crate::clock::Clock;
use crate::manager::Random;
use crate::volume::id::{Owner, SourceId};
use crate::volume::plan::Obtained;

/// What a token is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Whose it is, in the namespace of the pod.
    pub service_account: String,
    /// For whom; none is the server.
    pub audience: Option<String>,
    /// How long it is to last.
    pub expiration_seconds: i64,
}

/// The tokens that are wanted.
pub struct Tokens {
    client: Client,
    clock: Clock,
    random: Random,
    wakes: Wakes,
}

impl Tokens {
    /// None are wanted yet.
    pub fn new(client: Client, clock: Clock, random: Random, wakes: Wakes) -> Arc<Self> {
        Arc::new(Self { client, clock, random, wakes })
    }

    /// From now on there is to be such a token, unless it is wanted already. `found` is what is on the
    /// disk since an earlier life of the process: it is used for as long as it is good.
    pub fn want(&self, id: &SourceId, wanted: Wanted, found: Option<Zeroizing<String>>) {
        let _ = (id, wanted, found, &self.client, &self.clock, &self.random, &self.wakes);
    }

    /// The tokens of a pod are wanted no more.
    pub fn forget(&self, owner: &Owner) {
        let _ = owner;
    }

    /// The token.
    pub fn get(&self, id: &SourceId) -> Obtained<Zeroizing<String>> {
        let _ = id;
        Obtained::Not("failed to fetch token: not yet requested".into())
    }
}
