//! Flags of `windlass cert`.

use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use windlass_ledger::{AuthorityId, LedgerChain, RevocationReason, SegmentHash, SerialNumber};

use super::requests::{ApiServerArgs, DocumentArgs, OutputArgs, ResultArgs};
use super::values;

const LIST_EXAMPLE: &str = "Examples:
  Certificates of an old CA that are still in use:
    windlass cert list --outstanding --authority 6f1e0c…

  Everything that a node received:
    windlass cert list --node n1 -o wide

  Certificates that expire within a day and have not been renewed:
    windlass cert list --outstanding --expiring-within 1d";

const SHOW_EXAMPLE: &str = "Examples:
  windlass cert show 4f0c9a7be2d85310
  windlass cert show /etc/web/tls/tls.crt
  windlass cert show web.example.com:443 -o json";

const REVOKE_EXAMPLE: &str = "Examples:
  Revoke the certificate in a file:
    windlass cert revoke tls.crt --reason keyCompromise --comment 'laptop stolen'

  Revoke for now, and withdraw the revocation:
    windlass cert revoke 4f0c9a7be2d85310 --reason certificateHold --yes
    windlass cert revoke 4f0c9a7be2d85310 --undo --yes";

const VERIFY_EXAMPLE: &str = "Examples:
  windlass cert verify-ledger
  windlass cert verify-ledger --expect-head short=sha256:9d2c… --expect-head long=sha256:07af…";

/// Longest comment of a CertificateRevocation, in bytes.
const MAX_COMMENT_BYTES: usize = 1024;

/// Subcommands of `windlass cert`.
#[derive(Debug, Subcommand)]
pub enum CertCommand {
    /// List issued certificates in the ledger by expiry.
    List(Box<CertListArgs>),
    /// Show a certificate: record, request, chain, revocation and delivery of its trust anchor.
    Show(CertShowArgs),
    /// Revoke a certificate, or withdraw the revocation of a certificate on hold.
    ///
    /// Creates a CertificateRevocation. Requires permission to create certificaterevocations and the
    /// verb `sign` on the signer.
    Revoke(Box<CertRevokeArgs>),
    /// Verify the hash chains of the ledger.
    ///
    /// Reports missing, modified, reordered and duplicate segments, and prints the hash of the newest
    /// segment of every chain. Exits with 1 if there are problems.
    VerifyLedger(CertVerifyArgs),
}

/// Flags of `windlass cert list`.
#[derive(Debug, Args)]
#[command(after_help = LIST_EXAMPLE)]
pub struct CertListArgs {
    /// Signer of the certificates.
    #[arg(long, value_name = "SIGNER", value_parser = values::signer_name)]
    pub signer: Option<String>,
    /// CA key that signed: its subject key identifier in hexadecimal.
    #[arg(long, value_name = "ID", value_parser = authority)]
    pub authority: Option<AuthorityId>,
    /// Node that holds the certificate, or that runs the pod that does.
    #[arg(long, value_name = "NAME", value_parser = values::node_name)]
    pub node: Option<String>,
    /// Pod that holds the certificate.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = namespaced)]
    pub pod: Option<NamespacedName>,
    /// Service account of the pod that holds the certificate.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = namespaced)]
    pub service_account: Option<NamespacedName>,
    /// DNS name in the certificate.
    #[arg(long, value_name = "NAME", value_parser = values::user_name)]
    pub dns: Option<String>,
    /// Serial number in hexadecimal.
    #[arg(long, value_name = "SERIAL", value_parser = serial)]
    pub serial: Option<SerialNumber>,
    /// Remaining lifetime at most, for example 12h or 7d; expired certificates are not listed.
    #[arg(long, value_name = "DURATION", value_parser = values::period)]
    pub expiring_within: Option<Duration>,
    /// Certificates that may be in use: neither expired nor superseded, revoked or abandoned.
    #[arg(long)]
    pub outstanding: bool,
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    pub server: ApiServerArgs,
}

/// Flags of `windlass cert show`.
#[derive(Debug, Args)]
#[command(after_help = SHOW_EXAMPLE)]
pub struct CertShowArgs {
    /// Serial number in hexadecimal, file (PEM or DER), or server that presents the certificate.
    #[arg(value_name = "SERIAL|FILE|HOST:PORT")]
    pub target: String,
    #[command(flatten)]
    pub issuer: CertIssuerArgs,
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    pub server: ApiServerArgs,
}

/// Flags that tell certificates with the same serial number apart.
#[derive(Debug, Args)]
pub struct CertIssuerArgs {
    /// Signer of the certificate, if several issued this serial number.
    #[arg(long, value_name = "SIGNER", value_parser = values::signer_name)]
    pub signer: Option<String>,
    /// CA key that signed, if several issued this serial number: its subject key identifier in hexadecimal.
    #[arg(long, value_name = "ID", value_parser = authority)]
    pub authority: Option<AuthorityId>,
}

/// Flags of `windlass cert revoke`.
#[derive(Debug, Args)]
#[command(after_help = REVOKE_EXAMPLE)]
pub struct CertRevokeArgs {
    /// Serial number in hexadecimal, or file (PEM or DER).
    #[arg(value_name = "SERIAL|FILE")]
    pub target: String,
    #[command(flatten)]
    pub issuer: CertIssuerArgs,
    /// Reason: unspecified, keyCompromise, cACompromise, affiliationChanged, superseded, cessationOfOperation,
    /// certificateHold, privilegeWithdrawn or aACompromise. Only certificateHold can be withdrawn.
    #[arg(long, value_name = "REASON", value_parser = reason(), hide_possible_values = true)]
    #[arg(required_unless_present = "undo", conflicts_with = "undo")]
    pub reason: Option<RevocationReason>,
    /// Explanation for people, of at most 1024 bytes.
    #[arg(long, value_name = "TEXT", value_parser = comment, conflicts_with = "undo")]
    pub comment: Option<String>,
    /// Withdrawal of a revocation with reason certificateHold.
    #[arg(long)]
    pub undo: bool,
    /// No confirmation; required where standard input is not a terminal.
    #[arg(long, short)]
    pub yes: bool,
    #[command(flatten)]
    pub output: ResultArgs,
    #[command(flatten)]
    pub server: ApiServerArgs,
}

/// Flags of `windlass cert verify-ledger`.
#[derive(Debug, Args)]
#[command(after_help = VERIFY_EXAMPLE)]
pub struct CertVerifyArgs {
    /// Hash that an earlier verification printed for the newest segment of a chain; may be repeated. The chain
    /// must contain it, or segments at its end were removed.
    #[arg(long, value_name = "CHAIN=HASH", value_parser = expected_head)]
    pub expect_head: Vec<ExpectedHead>,
    #[command(flatten)]
    pub output: DocumentArgs,
    #[command(flatten)]
    pub server: ApiServerArgs,
}

/// Namespace and name of an object, from `NAMESPACE/NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespacedName {
    pub namespace: String,
    pub name: String,
}

/// Hash that a chain must contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpectedHead {
    pub chain: LedgerChain,
    pub hash: SegmentHash,
}

fn namespaced(text: &str) -> Result<NamespacedName, &'static str> {
    const FORM: &str = "must be NAMESPACE/NAME";
    let (namespace, name) = text.split_once('/').ok_or(FORM)?;
    let (namespace, name) = (values::object_name(namespace), values::object_name(name));
    Ok(NamespacedName { namespace: namespace.map_err(|_| FORM)?, name: name.map_err(|_| FORM)? })
}

fn authority(text: &str) -> Result<AuthorityId, String> {
    text.replace(':', "").parse::<AuthorityId>().map_err(|error| error.to_string())
}

fn serial(text: &str) -> Result<SerialNumber, String> {
    text.parse::<SerialNumber>().map_err(|error| error.to_string())
}

fn reason() -> impl TypedValueParser<Value = RevocationReason> {
    let names = (0..=10).filter_map(RevocationReason::from_number);
    // Written by controllers when a revocation is withdrawn; nobody asks for it.
    let names = names.filter(|reason| *reason != RevocationReason::RemoveFromCrl).map(RevocationReason::name);
    PossibleValuesParser::new(names)
        .try_map(|name| RevocationReason::from_name(&name).ok_or("must be a reason of RFC 5280"))
}

fn comment(text: &str) -> Result<String, &'static str> {
    match text.len() {
        0 => Err("must not be empty"),
        1..=MAX_COMMENT_BYTES => Ok(text.to_owned()),
        _ => Err("must have at most 1024 bytes"),
    }
}

fn expected_head(text: &str) -> Result<ExpectedHead, String> {
    let (chain, hash) = text.split_once('=').ok_or("must be CHAIN=HASH, for example short=sha256:…")?;
    let chain = chain.parse::<LedgerChain>().map_err(|error| error.to_string())?;
    let hash = hash.parse::<SegmentHash>().map_err(|error| error.to_string())?;
    Ok(ExpectedHead { chain, hash })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, CliCommand};

    fn parse(line: &str) -> Result<CertCommand, clap::Error> {
        let words = ["windlass", "cert"].into_iter().chain(line.split_whitespace());
        match Cli::try_parse_from(words)?.command {
            CliCommand::Cert(command) => Ok(command),
            _ => panic!("{line}"),
        }
    }

    #[test]
    fn flags_are_read() {
        let line = "list --signer example.com/a --authority 0A:ff --node n1 --pod shop/web-0 --serial 0:1 \
                    --service-account shop/web --dns *.example.com --expiring-within 7d12h --outstanding -o wide";
        let Ok(CertCommand::List(list)) = parse(line) else { panic!() };
        assert_eq!(list.authority.unwrap().to_string(), "0aff");
        assert_eq!(list.pod, Some(NamespacedName { namespace: "shop".into(), name: "web-0".into() }));
        assert_eq!(list.serial.unwrap().to_string(), "01");
        assert_eq!(list.expiring_within, Some(Duration::from_secs(180 * 60 * 60)));
        let Ok(CertCommand::Revoke(revoke)) = parse("revoke 0a --reason cACompromise -y") else { panic!() };
        assert_eq!((revoke.reason, revoke.yes), (Some(RevocationReason::CaCompromise), true));
        assert!(matches!(parse("revoke 0a --undo"), Ok(CertCommand::Revoke(revoke)) if revoke.undo));
        let zeros = "0".repeat(64);
        let line =
            format!("verify-ledger --expect-head long=sha256:{zeros} --expect-head short=sha256:{zeros}");
        let Ok(CertCommand::VerifyLedger(verify)) = parse(&line) else { panic!() };
        assert_eq!(verify.expect_head.len(), 2);
        assert!(matches!(parse("show localhost:6443 -o json"), Ok(CertCommand::Show(_))));
    }

    #[test]
    fn refuses_flags_without_meaning() {
        for line in [
            "",
            "list 0a",
            "list --signer people",
            "list --authority 0g",
            "list --authority abc",
            "list --pod web-0",
            "list --pod shop/",
            "list --pod a/b/c",
            "list --serial 0",
            "list --expiring-within 5",
            "list --expiring-within 2027-01-01",
            "show",
            "revoke 0a",
            "revoke 0a --reason stolen",
            "revoke 0a --reason removeFromCRL",
            "revoke 0a --undo --reason unspecified",
            "revoke 0a --undo --comment x",
            "revoke 0a --reason unspecified -o wide",
            "verify-ledger --expect-head short",
            "verify-ledger --expect-head tiny=sha256:00",
            "verify-ledger --expect-head short=sha256:00",
        ] {
            assert_eq!(parse(line).expect_err(line).exit_code(), 2, "{line}");
        }
    }
}
