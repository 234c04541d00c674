//! Path of a file in a volume. It cannot escape the volume or use names reserved by the node.

use std::fmt;
use std::path::Path;

/// Longest path of a file, in bytes.
const MAX_PATH: usize = 4096;
/// Longest element of a path, in bytes.
const MAX_NAME: usize = 255;

/// A relative path without `.`, `..` and empty elements, whose first element does not begin with
/// `..`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VolumePath(String);

/// Why a text is not a valid path in a volume. The messages are kubelet's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// The path is empty or consists only of separators and dots.
    #[error("invalid path: must not be empty: {0:?}")]
    Empty(String),
    /// The path is absolute, not relative.
    #[error("invalid path: must be relative path: {0}")]
    Absolute(String),
    /// The path exceeds the limit of 4096 bytes.
    #[error("invalid path: must be less than or equal to {MAX_PATH} characters")]
    TooLong,
    /// The path contains a `..` element.
    #[error("invalid path: must not contain '..': {0}")]
    Backstep(String),
    /// An element exceeds the limit of 255 bytes.
    #[error("invalid path: filenames must be less than or equal to {MAX_NAME} characters")]
    NameTooLong,
    /// The first element is reserved for the node.
    #[error("invalid path: must not start with '..': {0}")]
    Reserved(String),
    /// The path contains a NUL byte.
    #[error("invalid path: must not contain a NUL character")]
    Nul,
}

impl VolumePath {
    /// Parses and normalizes a path: `./a//b` becomes `a/b`.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        if text.starts_with('/') {
            return Err(PathError::Absolute(text.to_owned()));
        }
        if text.len() > MAX_PATH {
            return Err(PathError::TooLong);
        }
        if text.contains('\0') {
            return Err(PathError::Nul);
        }
        let mut names = Vec::new();
        for name in text.split('/').filter(|name| !name.is_empty() && *name != ".") {
            if name == ".." {
                return Err(PathError::Backstep(text.to_owned()));
            }
            if name.len() > MAX_NAME {
                return Err(PathError::NameTooLong);
            }
            names.push(name);
        }
        // Checked after normalization: `./..data` is `..data`.
        match names.first() {
            None => Err(PathError::Empty(text.to_owned())),
            Some(first) if first.starts_with("..") => Err(PathError::Reserved(text.to_owned())),
            Some(_) => Ok(Self(names.join("/"))),
        }
    }

    /// Returns the normalized path with `/` as separator.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the path for file system calls.
    pub fn as_path(&self) -> &Path {
        Path::new(&self.0)
    }

    /// Returns the first element, which is visible at the top of the volume.
    pub fn first_element(&self) -> &str {
        self.0.split('/').next().unwrap_or_default()
    }

    /// Returns its parent directories, outermost first.
    pub fn folders(&self) -> impl Iterator<Item = &str> {
        self.0.match_indices('/').filter_map(|(at, _)| self.0.get(..at))
    }
}

impl fmt::Display for VolumePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_inside_are_taken() {
        let long = "a".repeat(255);
        let deep = ["a"; 2048].join("/");
        let good = [
            ("a", "a"),
            ("a/b/c.pem", "a/b/c.pem"),
            ("./a//b/", "a/b"),
            ("a..b", "a..b"),
            ("a/..b", "a/..b"),
            (".hidden", ".hidden"),
            (&long, &long),
            (&deep, &deep),
        ];
        for (text, clean) in good {
            assert_eq!(VolumePath::parse(text).unwrap().as_str(), clean);
        }
        let longer = "a".repeat(256);
        let deeper = format!("{deep}/a");
        let bad = [
            ("", "invalid path: must not be empty: \"\""),
            (".", "invalid path: must not be empty: \".\""),
            ("/etc/passwd", "invalid path: must be relative path: /etc/passwd"),
            ("..", "invalid path: must not contain '..': .."),
            ("../a", "invalid path: must not contain '..': ../a"),
            ("a/../../b", "invalid path: must not contain '..': a/../../b"),
            ("..data", "invalid path: must not start with '..': ..data"),
            ("./..data/a", "invalid path: must not start with '..': ./..data/a"),
            ("...", "invalid path: must not start with '..': ..."),
            ("a\0b", "invalid path: must not contain a NUL character"),
            (&longer, "invalid path: filenames must be less than or equal to 255 characters"),
            (&deeper, "invalid path: must be less than or equal to 4096 characters"),
        ];
        for (text, message) in bad {
            assert_eq!(VolumePath::parse(text).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn a_path_knows_its_directories() {
        let path = VolumePath::parse("a/b/c").unwrap();
        assert_eq!(path.first_element(), "a");
        assert_eq!(path.folders().collect::<Vec<_>>(), ["a", "a/b"]);
        let path = VolumePath::parse("a").unwrap();
        assert_eq!((path.first_element(), path.folders().count()), ("a", 0));
    }
}
