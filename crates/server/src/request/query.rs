//! The query string, decoded once.

use percent_encoding::percent_decode_str;

/// Decoded pairs of a query string, in order.
#[derive(Clone, Debug, Default)]
pub struct QueryParameters(Vec<(String, String)>);

impl QueryParameters {
    /// Decodes a raw query. Invalid UTF-8 becomes U+FFFD, which no name or selector may contain; an
    /// invalid escape is kept as it is.
    pub fn parse(raw: Option<&str>) -> QueryParameters {
        let pairs = raw.unwrap_or_default().split('&').filter(|p| !p.is_empty());
        QueryParameters(pairs.map(pair).collect())
    }

    /// Returns the first value of `name`.
    pub fn first(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// Returns all values of the parameter `name`, in order.
    pub fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// Returns the flag `name` as Kubernetes parses it: `0` and `false` are false, any other value,
    /// even an empty one, is true. `None` if absent.
    pub fn flag(&self, name: &str) -> Option<bool> {
        self.first(name).map(|v| v != "0" && !v.eq_ignore_ascii_case("false"))
    }
}

fn pair(raw: &str) -> (String, String) {
    let (name, value) = raw.split_once('=').unwrap_or((raw, ""));
    (decode(name), decode(value))
}

fn decode(raw: &str) -> String {
    if !raw.bytes().any(|b| b == b'%' || b == b'+') {
        return raw.to_owned();
    }
    let spaced = raw.replace('+', " ");
    percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_as_kubernetes_reads_them() {
        let query = QueryParameters::parse(Some("a=1&b=True&c=false&d=0&e=FALSE&f&g="));
        let read: Vec<_> = "abcdefgh".chars().map(|c| query.flag(&c.to_string())).collect();
        let (yes, no) = (Some(true), Some(false));
        assert_eq!(read, [yes, yes, no, no, no, yes, yes, None]);
    }

    #[test]
    fn values_are_decoded() {
        let query = QueryParameters::parse(Some("l=a%3Db%2Cc+d&x=%zz&l=2"));
        assert_eq!(query.first("l"), Some("a=b,c d"));
        assert_eq!(query.values("l").count(), 2);
    }
}
