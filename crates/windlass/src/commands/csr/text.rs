//! Certificate signing requests as text.

use windlass_api::age::human_duration;

use super::CsrObject;
use super::view::{ConditionView, CsrView, DecodeOutcome, IssuedCertificate, SubjectNames};
use crate::cli::OutputFormat;
use crate::commands::print::{plain, table, word, words};

/// Formats the name of a request as `-o name` prints it.
pub fn object(name: &str) -> String {
    format!("certificatesigningrequest.certificates.k8s.io/{name}")
}

/// Summarizes a request on one line.
pub fn summarize(view: &CsrView) -> String {
    let names = match &view.request {
        DecodeOutcome::Read(asked) => names_summary(&asked.names),
        DecodeOutcome::Unreadable { error } => format!("unreadable ({})", plain(error)),
    };
    let usages = words_or(&view.usages, "no usage");
    let (signer, who) = (word(&view.signer_name), word(&view.requester.username));
    format!("{names} from {signer} for {usages}, {}, requested by {who}", duration(view))
}

/// Lists requests with the columns of kubectl, whose spelling of REQUESTOR is kept.
pub fn list(views: &[CsrView], format: Option<OutputFormat>) -> String {
    if format == Some(OutputFormat::Name) {
        return views.iter().map(|view| object(&view.name) + "\n").collect();
    }
    let wide = format == Some(OutputFormat::Wide);
    let mut head = vec!["NAME", "AGE", "SIGNERNAME", "REQUESTOR", "REQUESTEDDURATION", "CONDITION"];
    if wide {
        head.extend(["NAMES", "KEY", "CERTIFICATE"]);
    }
    let mut rows = vec![head.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    rows.extend(views.iter().map(|view| {
        let mut row = vec![
            word(&view.name),
            view.age.clone(),
            word(&view.signer_name),
            word(&view.requester.username),
            requested_duration(view).unwrap_or_else(|| "<none>".into()),
            view.state.clone(),
        ];
        if wide {
            row.extend(match &view.request {
                DecodeOutcome::Read(asked) => [names_summary(&asked.names), asked.key.clone()],
                DecodeOutcome::Unreadable { .. } => ["<unreadable>".into(), "<unreadable>".into()],
            });
            row.push(match &view.certificate {
                Some(DecodeOutcome::Read(issued)) => issued.validity.clone(),
                Some(DecodeOutcome::Unreadable { .. }) => "<unreadable>".into(),
                None => "<none>".into(),
            });
        }
        row
    }));
    table(&rows)
}

/// Describes one request with its certificate, if it has one, as text.
pub fn show(view: &CsrView, request: &CsrObject, format: Option<OutputFormat>) -> String {
    if format == Some(OutputFormat::Name) {
        return object(&view.name) + "\n";
    }
    let mut text = DescriptionWriter::default();
    text.field("Name", word(&view.name));
    text.field("Signer", word(&view.signer_name));
    let groups = words_or(&view.requester.groups, "none");
    let who = word(&view.requester.username);
    text.field("Requested by", format!("{who} (groups: {groups}), {} ago", view.age));
    text.field("Usages", words_or(&view.usages, "none"));
    text.field("Duration", duration(view));
    text.field("State", view.state.clone());
    text.heading("Request");
    match &view.request {
        DecodeOutcome::Read(asked) => {
            text.names(&asked.names);
            text.field("Key", asked.key.clone());
            text.field(
                "Proof of possession",
                match &asked.proof_error {
                    None => "verified".into(),
                    Some(error) => format!("FAILED: {}", plain(error)),
                },
            );
            text.list("Extensions", &asked.other_extensions);
        }
        DecodeOutcome::Unreadable { error } => text.field("Unreadable", plain(error)),
    }
    text.heading("Certificate");
    match &view.certificate {
        Some(DecodeOutcome::Read(issued)) => text.certificate(issued),
        Some(DecodeOutcome::Unreadable { error }) => text.field("Unreadable", plain(error)),
        None => text.line("none"),
    }
    text.heading("Conditions");
    if view.conditions.is_empty() {
        text.line("none");
    }
    view.conditions.iter().for_each(|each| text.line(&condition(each)));
    let mut text = text.0;
    if format == Some(OutputFormat::Wide) {
        text.push('\n');
        text.push_str(&sanitized_pem(&request.spec.request.0));
        if let Some(certificate) = request.status.as_ref().and_then(|s| s.certificate.as_ref()) {
            text.push_str(&sanitized_pem(&certificate.0));
        }
    }
    text
}

/// Accumulates aligned `label: value` lines of a description.
#[derive(Default)]
pub struct DescriptionWriter(pub String);

impl DescriptionWriter {
    pub fn heading(&mut self, heading: &str) {
        self.0.push_str(&format!("\n{heading}\n"));
    }

    pub fn line(&mut self, line: &str) {
        self.0.push_str(&format!("  {line}\n"));
    }

    pub fn field(&mut self, label: &str, value: String) {
        let label = format!("{label}:");
        self.0.push_str(&format!("  {label:<20} {value}\n"));
    }

    pub fn list(&mut self, label: &str, values: &[String]) {
        if !values.is_empty() {
            self.field(label, words(values));
        }
    }

    fn names(&mut self, names: &SubjectNames) {
        let none = names.subject.is_empty();
        self.field("Subject", if none { "none".into() } else { plain(&names.subject) });
        self.list("DNS names", &names.dns_names);
        self.list("Addresses", &names.ip_addresses);
        self.list("URIs", &names.uris);
        self.list("E-mail", &names.email_addresses);
    }

    fn certificate(&mut self, issued: &IssuedCertificate) {
        self.field("Serial", issued.serial.clone());
        self.names(&issued.names);
        let (from, until) = (&issued.not_before, &issued.not_after);
        self.field("Validity", format!("{from} to {until}, {}", issued.validity));
        self.field("Issuer", plain(&issued.issuer));
        let belongs = match issued.key_matches {
            Some(true) => "matches the request",
            Some(false) => "DOES NOT MATCH the request",
            None => "request unreadable",
        };
        self.field("Key", format!("{}, {belongs}", issued.key));
        if issued.chain_length > 1 {
            self.field("Chain", format!("{} certificates", issued.chain_length));
        }
    }
}

fn condition(view: &ConditionView) -> String {
    let (kind, status) = (word(&view.kind), word(&view.status));
    let reason = if view.reason.is_empty() { "no reason".into() } else { plain(&view.reason) };
    format!("{kind} {status}, {} ago, {reason}: {}", view.age, plain(&view.message))
}

/// Formats subject and alternative names on one line.
pub fn names_summary(names: &SubjectNames) -> String {
    let kinds = [
        ("DNS", &names.dns_names),
        ("IP", &names.ip_addresses),
        ("URI", &names.uris),
        ("email", &names.email_addresses),
    ];
    let mut parts = Vec::new();
    if !names.subject.is_empty() {
        parts.push(plain(&names.subject));
    }
    for (kind, values) in kinds {
        parts.extend(values.iter().map(|value| format!("{kind}:{}", word(value))));
    }
    if parts.is_empty() { "no names".into() } else { parts.join(", ") }
}

fn words_or(all: &[String], none: &str) -> String {
    // Usages contain single spaces.
    let shown = all.iter().map(|text| {
        if text.contains(' ') && !text.starts_with(' ') && !text.contains("  ") {
            text.split(' ').map(word).collect::<Vec<_>>().join(" ")
        } else {
            word(text)
        }
    });
    if all.is_empty() { none.into() } else { shown.collect::<Vec<_>>().join(", ") }
}

fn duration(view: &CsrView) -> String {
    match requested_duration(view) {
        Some(requested) => format!("{requested} requested"),
        None => "signer's default lifetime".into(),
    }
}

fn requested_duration(view: &CsrView) -> Option<String> {
    view.expiration_seconds.map(|seconds| human_duration(seconds.into()))
}

/// Removes control characters: PEM may have any text around it.
fn sanitized_pem(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    text.lines().map(|line| plain(line) + "\n").collect()
}

#[cfg(test)]
mod tests;
