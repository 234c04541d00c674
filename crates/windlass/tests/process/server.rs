//! The server process of `windlass_testkit`, under the names that these tests use.

pub use windlass_testkit::{
    ADMIN_TOKEN, PATIENCE, ServerDataDir as TestDataDir, ServerProcess as TestServer,
    read_lines as lines, wait_for_exit as wait,
};

/// Any failure of a connection; a killed server causes all kinds of them.
pub type BoxedError = Box<dyn std::error::Error + Send + Sync>;

/// Whether the long variants are wanted.
pub fn long() -> bool {
    std::env::var_os("WINDLASS_LONG").is_some_and(|value| value == "1")
}
