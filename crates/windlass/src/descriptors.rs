//! Limit on file descriptors, and the share of connections.

use std::num::NonZeroUsize;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use windlass_server::ConnectionLimits;
use windlass_server::limits;

use crate::cli::ConnectionArgs;

/// Descriptors reserved for the store, the log, reloaded certificates, volumes and etcd;
/// connections never use them.
const RESERVED: usize = 128;

/// Limits on connections below this cause a warning: a fleet of a thousand nodes may need more.
const FEW: usize = 4096;

/// Raises the soft limit on open files to the hard limit, as Go's runtime does, and returns it. The
/// soft limit is 1024 on most systems, for programs that use select(2).
pub fn raise_limit() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: maximum, maximum };
    let effective = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => maximum,
        Err(error) => {
            tracing::warn!(%error, "cannot raise the limit on open files");
            current
        }
    };
    effective.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

pub fn connection_limits(arguments: &ConnectionArgs, descriptors: usize) -> ConnectionLimits {
    let possible = descriptors.saturating_sub(RESERVED).max(descriptors / 2);
    let wanted = arguments.max_connections.map_or(limits::CONNECTIONS, NonZeroUsize::get);
    // Without an explicit limit, warn only if the result is low.
    if possible < arguments.max_connections.map_or(FEW, NonZeroUsize::get) {
        let (limit, reserved) = (descriptors, RESERVED);
        tracing::warn!(
            limit,
            reserved,
            possible,
            wanted,
            "limit on open files reduces the limit on connections"
        );
    }
    let mut chosen = ConnectionLimits::new(wanted.min(possible));
    if let Some(per_address) = arguments.max_connections_per_address {
        chosen.per_address = per_address.get().min(chosen.total);
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(total: Option<usize>, per_address: Option<usize>, files: usize) -> (usize, usize) {
        let arguments = ConnectionArgs {
            max_connections: total.and_then(NonZeroUsize::new),
            max_connections_per_address: per_address.and_then(NonZeroUsize::new),
        };
        let limits = connection_limits(&arguments, files);
        (limits.total, limits.per_address)
    }

    #[test]
    fn connections_leave_descriptors_for_files() {
        assert_eq!(limits(None, None, usize::MAX), (32_768, 24_576));
        assert_eq!(limits(None, None, 1024), (896, 672));
        assert_eq!(limits(None, None, 64), (32, 24));
        assert_eq!(limits(Some(500), None, 1024), (500, 375));
        assert_eq!(limits(Some(5_000), Some(4_000), 1024), (896, 896));
        assert_eq!(limits(Some(50_000), Some(100), 1_048_576), (50_000, 100));
    }

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        let hard = getrlimit(Resource::Nofile).maximum;
        let raised = raise_limit();
        assert_eq!(getrlimit(Resource::Nofile).current, hard);
        assert_eq!(raised as u64, hard.unwrap_or(u64::MAX));
    }
}
