//! `windlass cert list`.

use std::borrow::Cow;

use anyhow::Result;
use serde::Serialize;
use time::OffsetDateTime;
use windlass_ledger::{CertificateFilter, CertificateIndex, CertificateView};

use super::ledger;
use super::view::{self, CertificateSequence};
use crate::cli::{CertListArgs, NamespacedName, OutputFormat};
use crate::commands::api_client;
use crate::commands::print::{self, plain, sanitize_word, words};

#[derive(Serialize)]
struct CertificateListing<'a> {
    items: CertificateSequence<'a>,
}

/// Lists the certificates that match all flags.
pub async fn run(arguments: CertListArgs) -> Result<()> {
    let format = arguments.output.format;
    let client = api_client::connect(&arguments.server).await?;
    let contents = ledger::read_contents(&client).await?;
    let now = OffsetDateTime::now_utc().unix_timestamp();
    let filter = filter(arguments);
    let certificates = select(&contents.index, &filter, now);
    if certificates.is_empty() && matches!(format, None | Some(OutputFormat::Wide)) {
        match contents.index.is_empty() {
            true => eprintln!("windlass: the ledger is empty"),
            false => eprintln!("windlass: no certificates found"),
        }
        return Ok(());
    }
    match format {
        Some(OutputFormat::Json | OutputFormat::Yaml) => {
            let items = CertificateSequence { certificates: &certificates, now };
            print::show(&CertificateListing { items }, format, |_| String::new())
        }
        Some(OutputFormat::Name) => print::write_lines(certificates.iter().map(view::certificate_name)),
        None => print::write_table(|| rows(&certificates, now, false)),
        Some(OutputFormat::Wide) => print::write_table(|| rows(&certificates, now, true)),
    }
}

fn filter(arguments: CertListArgs) -> CertificateFilter {
    let pair = |of: NamespacedName| (of.namespace, of.name);
    CertificateFilter {
        signer: arguments.signer,
        authority: arguments.authority,
        node: arguments.node,
        pod: arguments.pod.map(pair),
        service_account: arguments.service_account.map(pair),
        dns_name: arguments.dns,
        serial: arguments.serial,
        expiring_within: arguments
            .expiring_within
            .map(|period| i64::try_from(period.as_secs()).unwrap_or(i64::MAX)),
        outstanding: arguments.outstanding,
    }
}

/// Selects certificates and sorts them by expiry; those that expire together, by serial number.
fn select<'a>(
    index: &'a CertificateIndex,
    filter: &'a CertificateFilter,
    now: i64,
) -> Vec<CertificateView<'a>> {
    let mut found: Vec<CertificateView<'a>> = index.select(filter, now).collect();
    found.sort_unstable_by_key(|view| (view.not_after(), view.serial()));
    found
}

/// Formats a table of certificates, header first, row by row.
pub fn rows<'a>(
    certificates: &'a [CertificateView<'a>],
    now: i64,
    wide: bool,
) -> impl Iterator<Item = Vec<Cow<'a, str>>> + 'a {
    let mut head = vec!["SERIAL", "SIGNER", "HOLDER", "STATE", "EXPIRES"];
    if wide {
        head.extend(["AUTHORITY", "NODE", "SERVICEACCOUNT", "SUBJECT", "NAMES", "RECORDED"]);
    }
    let head = head.into_iter().map(Cow::Borrowed).collect();
    std::iter::once(head).chain(certificates.iter().map(move |view| row(view, now, wide)))
}

fn row<'a>(view: &CertificateView<'a>, now: i64, wide: bool) -> Vec<Cow<'a, str>> {
    let mut row = vec![
        view.serial().to_string().into(),
        sanitize_word(view.signer()),
        view::holder(view).into(),
        view::state(view, now).into(),
        view::format_time(view.not_after()).into(),
    ];
    if wide {
        let or_none = |text: String| if text.is_empty() { "<none>".into() } else { text.into() };
        let of = view.holder();
        let name = |text: &'a str| if text.is_empty() { "<none>".into() } else { sanitize_word(text) };
        row.extend([
            view::authority(view).into(),
            name(of.node),
            name(of.service_account),
            or_none(plain(view.subject())),
            or_none(words(&view.names().collect::<Vec<_>>())),
            view::format_time(view.recorded()).into(),
        ]);
    }
    row
}

#[cfg(test)]
mod tests;
