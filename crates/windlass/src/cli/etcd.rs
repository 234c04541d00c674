//! Flags for a store on etcd, with the names of kube-apiserver's flags.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use windlass_store::{EtcdOptions, EtcdTlsFiles};

use super::values;

/// Connection to an etcd cluster.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Store on etcd")]
pub struct EtcdArgs {
    /// URLs of the etcd members that store all objects, https://HOST:PORT, separated by commas. Any number of
    /// servers can share one etcd cluster. The data directory then holds certificates and keys only.
    #[arg(long, value_name = "URL", value_delimiter = ',', value_parser = parse_etcd_url)]
    pub etcd_servers: Vec<String>,
    /// CA certificates that verify the etcd members (PEM).
    #[arg(long, value_name = "FILE", requires = "etcd_servers")]
    pub etcd_cafile: Option<PathBuf>,
    /// Client certificate for etcd (PEM).
    #[arg(long, value_name = "FILE", requires = "etcd_servers", requires = "etcd_keyfile")]
    pub etcd_certfile: Option<PathBuf>,
    /// Private key of --etcd-certfile (PEM).
    #[arg(long, value_name = "FILE", requires = "etcd_servers", requires = "etcd_certfile")]
    pub etcd_keyfile: Option<PathBuf>,
    /// Prefix of all keys in etcd.
    #[arg(long, value_name = "PREFIX", requires = "etcd_servers", value_parser = parse_etcd_prefix)]
    #[arg(default_value = "/windlass")]
    pub etcd_prefix: String,
    /// Compaction interval; 0 disables compaction. History older than five minutes is compacted, by one of all
    /// servers.
    #[arg(long, value_name = "DURATION", requires = "etcd_servers", value_parser = values::duration)]
    #[arg(default_value = "5m")]
    pub etcd_compaction_interval: Duration,
}

impl EtcdArgs {
    /// Options of the connection; `None` without `--etcd-servers`.
    pub fn options(self) -> Option<EtcdOptions> {
        if self.etcd_servers.is_empty() {
            return None;
        }
        let tls = EtcdTlsFiles { ca: self.etcd_cafile, identity: self.etcd_certfile.zip(self.etcd_keyfile) };
        let mut options = EtcdOptions::new(self.etcd_servers);
        options.tls = Some(tls);
        options.prefix = self.etcd_prefix;
        let interval = self.etcd_compaction_interval;
        options.compaction = (!interval.is_zero()).then_some(interval);
        Some(options)
    }
}

/// Reads the address of a member.
fn parse_etcd_url(text: &str) -> Result<String, &'static str> {
    const FORM: &str = "must be http://HOST:PORT or https://HOST:PORT";
    let text = text.trim().trim_end_matches('/');
    let uri: http::Uri = text.parse().map_err(|_| FORM)?;
    let place = match uri.scheme_str() {
        Some("http" | "https") => uri.authority().ok_or(FORM)?,
        _ => return Err(FORM),
    };
    // What stands before an @ is a credential, and addresses are written to logs.
    let whole = matches!(uri.path(), "" | "/") && uri.query().is_none();
    let plain = !place.as_str().contains('@') && !place.host().is_empty();
    if whole && plain && place.port_u16().is_some() { Ok(text.to_owned()) } else { Err(FORM) }
}

fn parse_etcd_prefix(text: &str) -> Result<String, &'static str> {
    let text = text.trim_end_matches('/');
    if text.len() > 1 && text.starts_with('/') {
        Ok(text.to_owned())
    } else {
        Err("must start with / and have at least one more character")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_scheme_a_host_and_a_port() {
        for (text, read) in [
            ("http://127.0.0.1:2379", Some("http://127.0.0.1:2379")),
            ("https://etcd-0.etcd:2379/", Some("https://etcd-0.etcd:2379")),
            ("https://[::1]:2379", Some("https://[::1]:2379")),
            ("127.0.0.1:2379", None),
            ("etcd", None),
            ("https://etcd", None),
            ("ftp://etcd:2379", None),
            ("https://etcd:2379/v3", None),
            ("https://root:secret@etcd:2379", None),
            ("https://:2379", None),
            ("", None),
        ] {
            assert_eq!(parse_etcd_url(text).ok().as_deref(), read, "{text}");
        }
    }

    #[test]
    fn an_interval_of_zero_leaves_compaction_to_others() {
        #[derive(clap::Parser)]
        struct EtcdCommandLine {
            #[command(flatten)]
            etcd: EtcdArgs,
        }
        let compaction = |flags: &[&str]| {
            let line = [&["windlass", "--etcd-servers=http://a:1"], flags].concat();
            let line: EtcdCommandLine = clap::Parser::try_parse_from(line).unwrap();
            line.etcd.options().unwrap().compaction
        };
        assert_eq!(compaction(&[]), Some(Duration::from_secs(300)));
        assert_eq!(compaction(&["--etcd-compaction-interval=90s"]), Some(Duration::from_secs(90)));
        assert_eq!(compaction(&["--etcd-compaction-interval=0"]), None);
    }

    #[test]
    fn a_prefix_is_a_path() {
        for (text, read) in
            [("/windlass", Some("/windlass")), ("/a/b/", Some("/a/b")), ("/", None), ("a", None)]
        {
            assert_eq!(parse_etcd_prefix(text).ok().as_deref(), read, "{text}");
        }
    }
}
