//! Limits on what others make this agent use, each with its reason.

/// Memory limit of all pod volumes together, as an option of tmpfs. The kernel's default is half of
/// the memory, and users who may create Secrets and pods decide the content. An object has at most
/// 1 MiB, so a fifth is enough for thousands of volumes on a usual node.
pub const POD_VOLUME_MEMORY: &str = "20%";

/// Limit of files, directories and symlinks. The kernel takes about 1 KiB of memory for each, which
/// the limit above does not count.
pub const POD_VOLUME_INODES: &str = "200k";

/// Most files that are watched for opens at the same time. Users who may create pods decide the number of volumes, the
/// kernel takes about 1 KiB of memory for each watch, and other programs of the user share its limit
/// (`fs.inotify.max_user_watches`, at least 8192 on a usual node). Only files that were not read yet need one.
pub const MAX_READ_WATCHES: usize = 4096;
