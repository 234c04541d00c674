//! `windlass cert show`.

use anyhow::{Result, bail};
use serde::Serialize;
use time::OffsetDateTime;
use windlass_api::age::human_duration;
use windlass_ledger::CertificateView;
use windlass_pki::ForeignCertificate;

use super::anchors::{self, AnchorDelivery};
use super::ledger;
use super::lookup::{CertificateQuery, FoundCertificate};
use super::request::{self, RequestSummary};
use super::target::CertificateTarget;
use super::view::{self, CertificateSummary};
use crate::cli::{CertShowArgs, OutputFormat};
use crate::commands::csr::DescriptionWriter;
use crate::commands::csr::view::IssuedCertificate;
use crate::commands::print::{plain, word, words};
use crate::commands::{api_client, csr, print};

/// Maximum number of nodes that are listed unless all are requested.
const FEW: usize = 10;

/// A certificate with everything that is known about it, as `-o json` prints it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CertificateDetails<'a> {
    /// Absent if the ledger does not contain the certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<RecordDetails<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<RequestSummary>,
    /// Certificates, leaf first; empty if nothing but the record is left.
    chain: Vec<IssuedCertificate>,
    /// Bundles that contain the trust anchor.
    trust_bundles: Vec<AnchorDelivery>,
    /// Why delivery of the trust anchor is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    trust_error: Option<String>,
    #[serde(skip)]
    now: i64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RecordDetails<'a> {
    #[serde(flatten)]
    summary: CertificateSummary<'a>,
    usages: Vec<String>,
    public_key_hash: String,
    /// Alternative names of the certificate that the record does not list.
    #[serde(skip_serializing_if = "is_zero")]
    omitted_names: u32,
    /// LedgerSegment and index of the entry that is the record.
    segment: String,
    entry: u32,
    #[serde(skip)]
    view: CertificateView<'a>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

pub async fn run(arguments: CertShowArgs) -> Result<()> {
    let target = CertificateTarget::parse(&arguments.target, std::path::Path::is_file)?;
    let chain = target.load_chain().await?;
    let query = CertificateQuery::new(&target, chain.as_deref(), &arguments.issuer)?;
    let client = api_client::connect(&arguments.server).await?;
    let now = OffsetDateTime::now_utc();
    let contents = ledger::read_contents(&client).await?;
    let found = query.find(&client, &contents.index, now.unix_timestamp()).await?;
    if found.is_none() && chain.is_none() {
        let serial = query.serial;
        bail!(
            "no certificate with serial number {serial} in the ledger; list certificates with windlass cert list"
        );
    }
    let mut request = None;
    if let Some(found) = &found {
        request = Some(request::find(&client, &found.record).await);
    }
    let requested = request.as_mut().map(|request| std::mem::take(&mut request.chain));
    let chain = chain.or(requested).unwrap_or_default();
    let authority = found.as_ref().map(|found| found.record.authority.as_bytes().to_vec());
    let delivered = anchors::find(client, &chain, authority.as_deref()).await;
    let (trust_bundles, trust_error) = match delivered {
        Ok(bundles) => (bundles, None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    let details = CertificateDetails {
        record: found.map(|found| RecordDetails::new(found, now.unix_timestamp())),
        request,
        chain: describe_chain(&chain, now),
        trust_bundles,
        trust_error,
        now: now.unix_timestamp(),
    };
    print::show(&details, arguments.output.format, |format| text(&details, format))
}

fn describe_chain(chain: &[ForeignCertificate], now: OffsetDateTime) -> Vec<IssuedCertificate> {
    let lengths = (1..=chain.len()).rev();
    let each = chain.iter().zip(lengths);
    each.map(|(certificate, rest)| IssuedCertificate::from_certificate(certificate, rest, None, now))
        .collect()
}

impl<'a> RecordDetails<'a> {
    fn new(found: FoundCertificate<'a>, now: i64) -> Self {
        let (chain, position) = found.view.position();
        Self {
            summary: CertificateSummary::new(&found.view, now),
            usages: found.record.usages,
            public_key_hash: found.record.key_hash.to_string(),
            omitted_names: found.record.omitted_names,
            segment: chain.segment_name(position.sequence),
            entry: position.index,
            view: found.view,
        }
    }
}

fn text(details: &CertificateDetails<'_>, format: Option<OutputFormat>) -> String {
    if format == Some(OutputFormat::Name) {
        let name = details.record.as_ref().map(|record| view::certificate_name(&record.view));
        return name.map(|name| name + "\n").unwrap_or_default();
    }
    let mut text = DescriptionWriter::default();
    match &details.record {
        Some(record) => describe_record(&mut text, record, details.now),
        None => text.field("Record", "none: the certificate is not in the ledger".into()),
    }
    if let Some(request) = &details.request {
        describe_request(&mut text, request);
    }
    text.heading("Chain");
    if details.chain.is_empty() {
        text.line("unknown: the request does not contain it any more; name a file or HOST:PORT");
    }
    for certificate in &details.chain {
        let (names, issuer) = (csr::names_summary(&certificate.names), plain(&certificate.issuer));
        text.line(&format!("{names}, serial {}", certificate.serial.replace(':', "")));
        text.line(&format!("  issued by {issuer}, {}, {}", certificate.key, certificate.validity));
    }
    describe_delivery(&mut text, details, format == Some(OutputFormat::Wide));
    text.0
}

fn describe_record(text: &mut DescriptionWriter, record: &RecordDetails<'_>, now: i64) {
    let summary = &record.summary;
    text.field("Serial", summary.serial_number.clone());
    text.field("Signer", word(summary.signer_name));
    text.field("Authority", summary.authority_id.clone());
    text.field("State", summary.state.to_owned());
    text.field("Holder", view::holder(&record.view));
    for (label, value) in
        [("Node", summary.holder.node_name), ("Service account", summary.holder.service_account_name)]
    {
        if !value.is_empty() {
            text.field(label, word(value));
        }
    }
    let subject = if summary.subject.is_empty() { "none".into() } else { plain(summary.subject) };
    text.field("Subject", subject);
    let names: Vec<String> = summary.names.iter().map(|name| (*name).to_owned()).collect();
    text.list("Names", &names);
    if record.omitted_names > 0 {
        text.field("Omitted names", record.omitted_names.to_string());
    }
    text.field("Usages", plain(&record.usages.join(", ")));
    text.field("Key", record.public_key_hash.clone());
    let left = record.view.not_after() - now;
    let left = match left {
        0.. => format!("expires in {}", human_duration(left)),
        _ => format!("expired {} ago", human_duration(-left)),
    };
    text.field("Validity", format!("{} to {}, {left}", summary.not_before, summary.not_after));
    text.field("Recorded", format!("{}, {} entry {}", summary.recorded_time, record.segment, record.entry));
    let revocation = summary.revocation.as_ref();
    let revocation = revocation.map(|found| format!("{} since {}", found.reason, found.revoked_time));
    text.field("Revocation", revocation.unwrap_or_else(|| "none".into()));
    text.field("Superseded by", summary.superseded_by.clone().unwrap_or_else(|| "none".into()));
}

fn describe_request(text: &mut DescriptionWriter, request: &RequestSummary) {
    text.heading("Request");
    let name = match request.namespace.as_str() {
        "" => word(&request.name),
        namespace => format!("{}/{}", word(namespace), word(&request.name)),
    };
    text.field(request.kind, name);
    text.field("Requested by", word(&request.requester));
    if let Some(approver) = &request.approver {
        text.field("Approved", plain(approver));
    }
    text.field("State", plain(&request.state));
}

fn describe_delivery(text: &mut DescriptionWriter, details: &CertificateDetails<'_>, all: bool) {
    text.heading("Trust anchor");
    if let Some(error) = &details.trust_error {
        return text.line(&format!("unknown: {}", plain(error)));
    }
    if details.trust_bundles.is_empty() {
        text.line("in no ClusterTrustBundle");
    }
    for delivery in &details.trust_bundles {
        text.line(&format!("{}: {}", word(&delivery.name), delivery.summary));
        let nodes = &delivery.delivered_to;
        let shown: Vec<&String> = nodes.iter().take(if all { usize::MAX } else { FEW }).collect();
        let more = match nodes.len() - shown.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        if !shown.is_empty() {
            text.line(&format!("  delivered to {}{more}", words(&shown)));
        }
    }
}
