//! The server process of `windlass_testkit`, under the names that these tests use.

pub use windlass_testkit::{
    ADMIN_TOKEN, PATIENCE, ServerDataDir as TestDataDir, ServerProcess as TestServer, read_lines as lines,
    wait_for_exit as wait,
};

/// Any connection error; a killed server causes various kinds.
pub type BoxedError = Box<dyn std::error::Error + Send + Sync>;

/// Returns whether the long variants of tests are enabled.
pub fn long() -> bool {
    std::env::var_os("WINDLASS_LONG").is_some_and(|value| value == "1")
}
