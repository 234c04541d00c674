//! The server in process, through its request chain: no socket, everything else real.

mod conformance;
mod fixture;
