//! Limits on what others make this agent use, each with its reason.

/// How much memory the volumes of all pods together may take, as an option of tmpfs. The kernel's
/// default is half of the memory, and who may create Secrets and pods decides what is in them. An
/// object has 1 MiB at most, so that a fifth is thousands of volumes on a usual node.
pub const POD_VOLUME_MEMORY: &str = "20%";

/// How many files, directories and links they may have. The kernel takes about 1 KiB of memory for
/// each, which the limit above does not count.
pub const POD_VOLUME_INODES: &str = "200k";
