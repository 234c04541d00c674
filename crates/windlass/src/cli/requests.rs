//! Flags of the commands about certificates: `windlass issue` and `windlass csr`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use windlass_pki::KeyType;

use super::values;

const ISSUE_EXAMPLE: &str = "\
Examples:
  A client certificate for the API server, approved by yourself:
    windlass issue --signer kubernetes.io/kube-apiserver-client --cn alice --approve --out alice

  A serving certificate from a signer of your own; somebody else approves it:
    windlass issue --signer example.com/web --dns web.example.com --ip 192.0.2.7 --out /etc/web/tls

  The same again, with a new key, in place:
    windlass issue --renew --out /etc/web/tls";

const LIST_EXAMPLE: &str = "\
Examples:
  windlass csr list --pending
  windlass csr list --signer kubernetes.io/kubelet-serving -o wide";

const SHOW_EXAMPLE: &str = "\
Examples:
  windlass csr show csr-x7k2p
  windlass csr show csr-x7k2p -o json";

const APPROVE_EXAMPLE: &str = "\
Examples:
  windlass csr approve csr-x7k2p
  windlass csr approve csr-x7k2p csr-9fq4z --reason Checked --message 'asked for by phone'";

const DENY_EXAMPLE: &str = "\
Examples:
  windlass csr deny csr-x7k2p --reason Unknown --message 'nobody knows this machine'";

/// The server of a command.
#[derive(Debug, Args)]
pub struct ApiServerArgs {
    /// The server to ask, and who to be there [default: as kubectl].
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
}

/// Output format of commands; each command accepts a subset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// One indented JSON document on standard output.
    Json,
    /// The JSON document converted to YAML.
    Yaml,
    /// For people, with more in it.
    Wide,
    /// One `KIND/NAME` per line, for scripts.
    Name,
}

/// Flags that say how to print.
#[derive(Debug, Args)]
pub struct OutputArgs {
    /// How to print: json, yaml, wide or name [default: for people].
    #[arg(long = "output", short = 'o', value_name = "FORMAT", hide_possible_values = true)]
    #[arg(value_enum)]
    pub format: Option<OutputFormat>,
}

/// Flags that say how to print what is one document and has no names.
#[derive(Debug, Default, Args)]
pub struct DocumentArgs {
    /// Output format: json or yaml [default: text].
    #[arg(long = "output", short = 'o', value_name = "FORMAT", value_parser = document_format)]
    pub format: Option<OutputFormat>,
}

/// Flags that say how to print what was done to objects.
#[derive(Debug, Args)]
pub struct ResultArgs {
    /// Output format: json, yaml or name [default: text].
    #[arg(long = "output", short = 'o', value_name = "FORMAT", value_parser = result_format)]
    pub format: Option<OutputFormat>,
}

fn document_format(text: &str) -> Result<OutputFormat, &'static str> {
    match text {
        "json" => Ok(OutputFormat::Json),
        "yaml" => Ok(OutputFormat::Yaml),
        _ => Err("must be json or yaml"),
    }
}

fn result_format(text: &str) -> Result<OutputFormat, &'static str> {
    match text {
        "name" => Ok(OutputFormat::Name),
        text => document_format(text).map_err(|_| "must be json, yaml or name"),
    }
}

#[derive(Debug, Args)]
#[command(after_help = ISSUE_EXAMPLE)]
pub struct IssueArgs {
    /// Who is to sign, for example kubernetes.io/kube-apiserver-client.
    #[arg(long, value_name = "SIGNER", value_parser = values::signer_name)]
    #[arg(required_unless_present = "renew")]
    pub signer: Option<String>,
    #[command(flatten)]
    pub names: NameArgs,
    /// What the certificate is for, for example 'server auth'. May be given several times [default: what
    /// fits the signer].
    #[arg(long, value_name = "USAGE", value_delimiter = ',', value_parser = values::usage)]
    pub usage: Vec<String>,
    /// How long the certificate is to last, for example 24h or 90d; at least 10m. The signer may give less
    /// [default: as long as the signer gives].
    #[arg(long, value_name = "DURATION", value_parser = values::lifetime)]
    pub duration: Option<Duration>,
    /// Type of the key to generate [default: ecdsa-p256, or as before with --renew].
    #[arg(long, value_name = "TYPE", value_parser = values::key_type())]
    pub key_type: Option<KeyType>,
    /// Approve the request, if you may. Else it waits for somebody who may.
    #[arg(long)]
    pub approve: bool,
    /// Name of the request [default: one that the server makes up].
    #[arg(long, value_name = "NAME", value_parser = values::object_name)]
    pub name: Option<String>,
    /// How long to wait for the certificate; 0 for as long as it takes.
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = values::duration)]
    pub timeout: Duration,
    /// Directory for tls.key, tls.crt and ca.crt. Made if it is not there.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Replace the certificate in --out by a new one for the same names, with a new key.
    #[arg(long, conflicts_with_all = ["cn", "org", "dns", "ip", "uri", "email"])]
    pub renew: bool,
    /// Also write a kubeconfig that uses the certificate with this server. It must not exist.
    #[arg(long, value_name = "FILE")]
    pub write_kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    pub server: ApiServerArgs,
}

/// Who a certificate is for.
#[derive(Debug, Args)]
pub struct NameArgs {
    /// Common name: of a client, the user.
    #[arg(long, value_name = "NAME", value_parser = values::user_name)]
    pub cn: Option<String>,
    /// Organization: of a client, a group. May be given several times.
    #[arg(long, value_name = "NAME", value_parser = values::user_name)]
    pub org: Vec<String>,
    /// DNS name. May be given several times, as all of these.
    #[arg(long, value_name = "NAME", value_parser = values::user_name)]
    pub dns: Vec<String>,
    /// IP address; may be given several times.
    #[arg(long, value_name = "ADDRESS")]
    pub ip: Vec<IpAddr>,
    /// URI, for example spiffe://example.com/web; may be given several times.
    #[arg(long, value_name = "URI", value_parser = values::user_name)]
    pub uri: Vec<String>,
    /// E-mail address; may be given several times.
    #[arg(long, value_name = "ADDRESS", value_parser = values::user_name)]
    pub email: Vec<String>,
}

/// What can be done with requests for certificates.
#[derive(Debug, Subcommand)]
pub enum CsrCommand {
    /// List certificate signing requests and their state.
    List(CsrListArgs),
    /// Show a request for a certificate: what is asked for, by whom, and what became of it.
    Show(CsrShowArgs),
    /// Approve requests, as kubectl certificate approve does.
    #[command(after_help = APPROVE_EXAMPLE)]
    Approve(CsrDecideArgs),
    /// Deny requests, as kubectl certificate deny does.
    #[command(after_help = DENY_EXAMPLE)]
    Deny(CsrDecideArgs),
}

/// Flags of `windlass csr list`.
#[derive(Debug, Args)]
#[command(after_help = LIST_EXAMPLE)]
pub struct CsrListArgs {
    /// Only requests to this signer.
    #[arg(long, value_name = "SIGNER", value_parser = values::signer_name)]
    pub signer: Option<String>,
    /// Only requests that are neither approved nor denied.
    #[arg(long)]
    pub pending: bool,
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    pub server: ApiServerArgs,
}

/// Flags of `windlass csr show`.
#[derive(Debug, Args)]
#[command(after_help = SHOW_EXAMPLE)]
pub struct CsrShowArgs {
    /// Name of the certificate signing request.
    #[arg(value_name = "NAME", value_parser = values::csr_name)]
    pub name: String,
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    pub server: ApiServerArgs,
}

/// Flags of `windlass csr approve` and `windlass csr deny`.
#[derive(Debug, Args)]
pub struct CsrDecideArgs {
    /// Names of the certificate signing requests.
    #[arg(value_name = "NAME", required = true, value_parser = values::csr_name)]
    pub names: Vec<String>,
    /// Why, in one word, to be kept on the request.
    #[arg(long, value_name = "WORD")]
    pub reason: Option<String>,
    /// Explanation for people, stored in the request's condition.
    #[arg(long, value_name = "TEXT")]
    pub message: Option<String>,
    #[command(flatten)]
    pub output: ResultArgs,
    #[command(flatten)]
    pub server: ApiServerArgs,
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, CliCommand};

    fn parse(line: &str) -> Result<CliCommand, clap::Error> {
        // Underscores are the spaces in words.
        let words = line.split_whitespace().map(|word| word.replace('_', " "));
        Cli::try_parse_from(words).map(|cli| cli.command)
    }

    #[test]
    fn takes_names_usages_and_a_lifetime() {
        let line = "windlass issue --signer example.com/a --out d --dns a --dns b --ip ::1 --org x \
                    --usage server_auth,client_auth --usage any --duration 1d12h --timeout 0 -o yaml";
        let CliCommand::Issue(issue) = parse(line).unwrap() else { panic!() };
        assert_eq!(issue.names.dns, ["a", "b"]);
        assert_eq!(issue.usage, ["server auth", "client auth", "any"]);
        assert_eq!(issue.duration, Some(Duration::from_secs(36 * 60 * 60)));
        assert!(issue.timeout.is_zero() && issue.key_type.is_none() && !issue.renew);
        assert_eq!(issue.output.format, Some(OutputFormat::Yaml));
        let CliCommand::Issue(issue) = parse("windlass issue --renew --out d").unwrap() else {
            panic!()
        };
        assert_eq!(issue.timeout, Duration::from_secs(120));
        let CliCommand::Csr(CsrCommand::Deny(deny)) = parse("windlass csr deny a b").unwrap()
        else {
            panic!()
        };
        assert_eq!(deny.names, ["a", "b"]);
    }

    #[test]
    fn refuses_what_no_signer_could_take() {
        for flags in [
            "issue --out d --cn a",
            "issue --signer example.com/a --cn a",
            "issue --renew --out d --cn a",
            "issue --signer people --cn a --out d",
            "issue --signer example.com/a --out d --ip 1.2.3",
            "issue --signer example.com/a --out d --usage swimming",
            "issue --signer example.com/a --out d --duration 5m",
            "issue --signer example.com/a --out d --duration 100000d",
            "issue --signer example.com/a --out d --duration 2027-01-01",
            "issue --signer example.com/a --out d --key-type dsa",
            "issue --signer example.com/a --out d --cn a_",
            "issue --signer example.com/a --out d -o xml",
            "csr",
            "csr show",
            "csr approve",
        ] {
            assert!(parse(&format!("windlass {flags}")).is_err(), "{flags}");
        }
    }
}
