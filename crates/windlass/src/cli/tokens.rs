//! Flags of `windlass token`: bootstrap tokens for nodes that join.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::requests::{ApiServerArgs, OutputArgs, ResultArgs};
use super::values::{self, ExpiryTime};

const CREATE_EXAMPLE: &str = "Examples:
  Create a token for 24 hours, and print the command that joins a machine:
    windlass token create --server https://192.0.2.1:6443

  Write the token to a bootstrap kubeconfig instead of printing it:
    windlass token create --ttl 1h --write-bootstrap-kubeconfig bootstrap.kubeconfig";

const LIST_EXAMPLE: &str = "Examples:
  windlass token list
  windlass token list --show-secrets -o json";

const DELETE_EXAMPLE: &str = "Examples:
  windlass token delete 07401b f395ac";

/// Default group of tokens.
pub const DEFAULT_GROUP: &str = "system:bootstrappers:windlass:default-node-token";

/// Subcommands of `windlass token`.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Create a bootstrap token and print the command that joins a machine.
    ///
    /// The token authorizes a certificate for a node of any name until the token expires or is
    /// deleted. If missing, role bindings that allow tokens to request certificates and have them
    /// approved are created and reported.
    Create(Box<TokenCreateArgs>),
    /// List bootstrap tokens.
    List(TokenListArgs),
    /// Delete bootstrap tokens.
    ///
    /// Nodes that have already joined are not affected.
    Delete(TokenDeleteArgs),
}

/// Flags of `windlass token create`.
#[derive(Debug, Args)]
#[command(after_help = CREATE_EXAMPLE)]
pub struct TokenCreateArgs {
    /// Lifetime of the token, for example 2h or 7d; 0 disables expiry.
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = parse_ttl)]
    pub ttl: TokenTtl,
    /// Group that the token authenticates as, with the prefix system:bootstrappers:; may be repeated.
    #[arg(long, value_name = "GROUP", value_delimiter = ',', value_parser = parse_group)]
    #[arg(default_value = DEFAULT_GROUP)]
    pub groups: Vec<String>,
    /// Description of the token.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    #[arg(value_parser = parse_description)]
    pub description: String,
    /// URL of the server for nodes [default: the URL in the kubeconfig].
    #[arg(long = "server", value_name = "URL", value_parser = parse_server_url)]
    pub url: Option<String>,
    /// Bootstrap kubeconfig to create, for copying to nodes. The file must not exist.
    #[arg(long, value_name = "FILE")]
    pub write_bootstrap_kubeconfig: Option<PathBuf>,
    /// Skip the creation of role bindings.
    #[arg(long)]
    pub no_bindings: bool,
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    pub server: ApiServerArgs,
}

/// Flags of `windlass token list`.
#[derive(Debug, Args)]
#[command(after_help = LIST_EXAMPLE)]
pub struct TokenListArgs {
    /// Print complete tokens, including their secrets.
    #[arg(long)]
    pub show_secrets: bool,
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    pub server: ApiServerArgs,
}

/// Flags of `windlass token delete`.
#[derive(Debug, Args)]
#[command(after_help = DELETE_EXAMPLE)]
pub struct TokenDeleteArgs {
    /// Token ID: the part before the dot.
    #[arg(value_name = "ID", required = true, value_parser = parse_token_id)]
    pub ids: Vec<String>,
    #[command(flatten)]
    pub output: ResultArgs,
    #[command(flatten)]
    pub server: ApiServerArgs,
}

/// Lifetime of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenTtl {
    /// Expires this long after its creation; at least one second.
    For(Duration),
    /// Never expires; the token works until it is deleted.
    Forever,
}

fn parse_ttl(text: &str) -> Result<TokenTtl, &'static str> {
    match values::expiry(text) {
        _ if matches!(text, "0" | "0s") => Ok(TokenTtl::Forever),
        // Times in tokens have whole seconds.
        Ok(ExpiryTime::After(lasts)) if lasts.as_secs() == 0 => Err("must be at least 1s"),
        Ok(ExpiryTime::After(lasts)) => Ok(TokenTtl::For(lasts)),
        Ok(ExpiryTime::At(_)) | Err(_) => {
            Err("must be a duration such as 24h, 7d or 1d12h, or 0 for no expiry")
        }
    }
}

/// `system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]`; a token with any other is no token at all.
fn parse_group(text: &str) -> Result<String, &'static str> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let good = text.strip_prefix("system:bootstrappers:").is_some_and(|rest| {
        let ends = rest.bytes().last().is_some_and(plain);
        ends && rest.len() <= 256 && rest.bytes().all(|b| plain(b) || matches!(b, b':' | b'-'))
    });
    if good {
        return Ok(text.to_owned());
    }
    Err(
        "must have the form system:bootstrappers:NAME; NAME consists of lower-case letters, digits, ':' and '-'",
    )
}

fn parse_description(text: &str) -> Result<String, &'static str> {
    if text.chars().any(char::is_control) {
        Err("must not contain control characters")
    } else {
        Ok(text.to_owned())
    }
}

fn parse_server_url(text: &str) -> Result<String, &'static str> {
    const WRONG: &str = "must be like https://192.0.2.1:6443";
    let url: http::Uri = text.parse().map_err(|_| WRONG)?;
    // A token on a connection that anybody can read is everybody's.
    if url.scheme_str() != Some("https") || url.host().is_none_or(str::is_empty) {
        return Err(WRONG);
    }
    Ok(text.trim_end_matches('/').to_owned())
}

/// Takes a whole token as well, for it is what people have at hand, and forgets its secret; and the Secret's
/// name, which `-o name` prints.
fn parse_token_id(text: &str) -> Result<String, &'static str> {
    let name = values::reference(text, &["secret", "secrets"], "v1").unwrap_or_default();
    let text = name.strip_prefix("bootstrap-token-").unwrap_or(&name);
    let plain = |text: &str| text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let (id, secret) = text.split_once('.').unwrap_or((text, ""));
    if id.len() == 6 && plain(id) && plain(secret) {
        return Ok(id.to_owned());
    }
    Err("must have six lower-case letters and digits")
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, CliCommand};

    fn parse(line: &str) -> Result<TokenCommand, clap::Error> {
        match Cli::try_parse_from(line.split_whitespace())?.command {
            CliCommand::Token(command) => Ok(command),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_token_lasts_one_day_by_default() {
        for (flags, wanted) in [
            ("", Some(TokenTtl::For(Duration::from_secs(24 * 3600)))),
            ("--ttl 90s", Some(TokenTtl::For(Duration::from_secs(90)))),
            ("--ttl 7d", Some(TokenTtl::For(Duration::from_secs(7 * 24 * 3600)))),
            ("--ttl 0", Some(TokenTtl::Forever)),
            ("--ttl 10ms", None),
            ("--ttl -1h", None),
            ("--ttl 2027-01-01", None),
            ("--ttl soon", None),
        ] {
            let found = match parse(&format!("windlass token create {flags}")) {
                Ok(TokenCommand::Create(create)) => Some(create.ttl),
                Ok(_) | Err(_) => None,
            };
            assert_eq!(found, wanted, "{flags}");
        }
    }

    #[test]
    fn groups_are_those_of_bootstrappers() {
        let groups = |flags: &str| match parse(&format!("windlass token create {flags}")) {
            Ok(TokenCommand::Create(create)) => Some(create.groups),
            Ok(_) | Err(_) => None,
        };
        assert_eq!(groups("").unwrap(), [DEFAULT_GROUP]);
        let two = "--groups system:bootstrappers:a,system:bootstrappers:b:c-1";
        assert_eq!(groups(two).unwrap().len(), 2);
        let long = "a".repeat(257);
        for bad in ["system:masters", "a", "system:bootstrappers:", "system:bootstrappers:A", &long] {
            assert_eq!(groups(&format!("--groups {bad}")), None, "{bad}");
            let bad = format!("--groups system:bootstrappers:{bad}-");
            assert_eq!(groups(&bad), None, "{bad}");
        }
    }

    #[test]
    fn a_token_is_sent_over_tls_only() {
        for (text, good) in [
            ("https://192.0.2.1:6443", true),
            ("https://api.example.com/", true),
            ("http://192.0.2.1:6443", false),
            ("192.0.2.1:6443", false),
            ("https://", false),
        ] {
            assert_eq!(parse_server_url(text).is_ok(), good, "{text}");
        }
    }

    #[test]
    fn tokens_are_deleted_by_their_ids() {
        let ids = |line: &str| match parse(&format!("windlass token delete {line}")) {
            Ok(TokenCommand::Delete(delete)) => Some(delete.ids),
            Ok(_) | Err(_) => None,
        };
        assert_eq!(ids("abcdef 012345.0123456789abcdef").unwrap(), ["abcdef", "012345"]);
        assert_eq!(ids("secret/bootstrap-token-abcdef").unwrap(), ["abcdef"]);
        for bad in ["", "abcde", "ABCDEF", "abcdefg", "../../", "abcdef.X"] {
            assert_eq!(ids(bad), None, "{bad}");
        }
    }
}
