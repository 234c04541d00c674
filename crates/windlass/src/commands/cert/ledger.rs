//! Reads the ledger of a server: LedgerSegments page by page, decoded while the next page arrives, and
//! CertificateRevocations.

use anyhow::{Error, Result, anyhow, bail};
use kube::api::ListParams;
use kube::core::{ApiResource, NotUsed, Object};
use kube::{Api, Client, ResourceExt as _};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use windlass_api::custom_resource::CustomResource;
use windlass_api::ledger_segment::{self, LedgerSegmentSpec};
use windlass_api::revocation::{self, CertificateRevocationSpec, CertificateRevocationStatus};
use windlass_api::timestamp;
use windlass_ledger::{
    CertificateIndex, EntryPosition, IssuanceRecord, LedgerChain, LedgerEntry, RevocationReason,
    RevocationRecord, SegmentHash, SegmentHeader, SegmentSummary, StoredSegment, decode_entries,
};

use crate::commands::{api_client, print};

/// Segments per page: at most 6 MiB of JSON.
const PAGE: u32 = 64;
/// Revocations per page, which are small.
const REVOCATION_PAGE: u32 = 500;
/// Pages that are decoded at the same time.
const DECODED_PAGES: usize = 4;

/// A LedgerSegment, decoded without an intermediate document because there are many.
pub type SegmentObject = Object<LedgerSegmentSpec, NotUsed>;
/// A CertificateRevocation with its status.
pub type RevocationObject = Object<CertificateRevocationSpec, CertificateRevocationStatus>;

/// Everything that the server knows about issued certificates.
pub struct LedgerContents {
    /// All records, with the revocations of the ledger and of objects.
    pub index: CertificateIndex,
    /// Objects that revoke certificates; the ledger may not contain them yet. `None` if the kind is not served.
    pub revocations: Option<Vec<RevocationObject>>,
}

/// Builds the description of a custom kind for the client.
pub fn api_resource(resource: &CustomResource) -> ApiResource {
    ApiResource {
        group: resource.group.into(),
        version: resource.version.into(),
        api_version: resource.api_version.into(),
        kind: resource.kind.into(),
        plural: resource.plural.into(),
    }
}

/// Returns the API of CertificateRevocations.
pub fn revocation_api(client: &Client) -> Api<RevocationObject> {
    Api::all_with(client.clone(), &api_resource(&revocation::RESOURCE))
}

fn segment_api(client: &Client) -> Api<SegmentObject> {
    Api::all_with(client.clone(), &api_resource(&ledger_segment::RESOURCE))
}

/// The error for a server without a kind of the ledger.
pub fn not_served(resource: &CustomResource) -> Error {
    anyhow!(
        "the server does not serve {}s, so it has no ledger; install the definitions with \
         windlass crds | kubectl apply -f -",
        resource.kind
    )
}

/// Reads all certificates. Segments that cannot be decoded are reported on standard error.
pub async fn read_contents(client: &Client) -> Result<LedgerContents> {
    let revocations = tokio::spawn(list_revocations(revocation_api(client)));
    let mut index = CertificateIndex::new();
    let decode = |object: &SegmentObject| {
        let stored = parse_segment(object)?;
        SegmentSummary::decode(&stored.header, &stored.data)
            .map_err(|error| format!("segment {} cannot be decoded: {error}", stored.header.name()))
    };
    let mut unreadable = Vec::new();
    read_segments(client, decode, |segment| match segment {
        Ok(segment) => index.add_summary(&segment),
        Err(error) => unreadable.push(error),
    })
    .await?;
    for error in unreadable {
        eprintln!("windlass: {}; run windlass cert verify-ledger", print::plain(&error));
    }
    let revocations = revocations.await??;
    add_revocations(&mut index, revocations.as_deref().unwrap_or_default());
    Ok(LedgerContents { index, revocations })
}

/// Converts every segment and passes the results on in the order of names. While a page is converted, the next one is
/// fetched.
pub async fn read_segments<T: Send + 'static>(
    client: &Client,
    convert: impl Fn(&SegmentObject) -> T + Clone + Send + Sync + 'static,
    mut take: impl FnMut(T),
) -> Result<()> {
    let (sender, mut pages) = mpsc::channel(DECODED_PAGES);
    let fetched = tokio::spawn(fetch_pages(segment_api(client), convert, sender));
    while let Some(page) = pages.recv().await {
        page.await?.into_iter().for_each(&mut take);
    }
    fetched.await?
}

async fn fetch_pages<T: Send + 'static>(
    api: Api<SegmentObject>,
    convert: impl Fn(&SegmentObject) -> T + Clone + Send + Sync + 'static,
    pages: mpsc::Sender<JoinHandle<Vec<T>>>,
) -> Result<()> {
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let page = api_client::with_timeout(api.list(&params)).await?;
        let page = page.map_err(|error| explain(error, &ledger_segment::RESOURCE))?;
        let (items, convert) = (page.items, convert.clone());
        let converted = tokio::task::spawn_blocking(move || items.iter().map(convert).collect());
        if pages.send(converted).await.is_err() {
            return Ok(());
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(()),
        }
    }
}

async fn list_revocations(api: Api<RevocationObject>) -> Result<Option<Vec<RevocationObject>>> {
    let mut params = ListParams::default().limit(REVOCATION_PAGE);
    let mut found = Vec::new();
    loop {
        let page = match api_client::with_timeout(api.list(&params)).await? {
            Ok(page) => page,
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(None),
            Err(error) => return Err(api_client::explain(error)),
        };
        found.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(Some(found)),
        }
    }
}

/// Explains a failed request for a kind, and what to do where the server does not have it.
pub fn explain(error: kube::Error, resource: &CustomResource) -> Error {
    match error {
        kube::Error::Api(status) if status.code == 404 => not_served(resource),
        error => api_client::explain(error),
    }
}

/// Adds the revocations of objects to an index.
pub fn add_revocations(index: &mut CertificateIndex, objects: &[RevocationObject]) {
    let entries: Vec<LedgerEntry> = objects.iter().filter_map(revocation_entry).collect();
    // No stored segment has this number: they count from 1.
    let header = SegmentHeader { chain: LedgerChain::Long, sequence: 0, previous_hash: SegmentHash::NONE };
    index.add_segment(&header, &entries);
}

fn revocation_entry(object: &RevocationObject) -> Option<LedgerEntry> {
    let seconds = |text: &str| timestamp::parse(text).ok().map(time::OffsetDateTime::unix_timestamp);
    let status = object.status.as_ref();
    let revoked = status.and_then(|status| status.revoked_time.as_deref()).and_then(seconds);
    let created = object.metadata.creation_timestamp.as_ref().map(|time| time.0.as_second());
    Some(LedgerEntry::Revoked(Box::new(RevocationRecord {
        authority: object.spec.authority_id.parse().ok()?,
        serial: object.spec.serial_number.parse().ok()?,
        reason: RevocationReason::from_name(&object.spec.reason)?,
        requester: status.and_then(|status| status.requester.clone()).unwrap_or_default(),
        time: revoked.or(created)?,
        not_after: seconds(&object.spec.not_after)?,
    })))
}

/// Parses an object, whose name must be that of its chain and sequence number; the error names the object.
pub fn parse_segment(object: &SegmentObject) -> Result<StoredSegment, String> {
    windlass_controllers::ledger::parse_segment(&object.name_any(), &object.spec)
}

/// Reads the whole record at a position.
pub async fn read_record(
    client: &Client,
    (chain, position): (LedgerChain, EntryPosition),
) -> Result<IssuanceRecord> {
    let name = chain.segment_name(position.sequence);
    let object = api_client::with_timeout(segment_api(client).get(&name)).await?;
    let object = object.map_err(|error| explain(error, &ledger_segment::RESOURCE))?;
    let stored = parse_segment(&object).map_err(Error::msg)?;
    let entries = decode_entries(&stored.header, &stored.data)?;
    let entry = usize::try_from(position.index).ok().and_then(|index| entries.into_iter().nth(index));
    match entry {
        Some(LedgerEntry::Issuance(record)) => Ok(*record),
        _ => bail!("segment {name} has no record {}; run windlass cert verify-ledger", position.index),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use windlass_testkit::scripted_client;

    use super::*;

    #[tokio::test]
    async fn a_missing_ledger_is_explained() {
        let client =
            scripted_client(async |_| (404, json!({"kind": "Status", "code": 404, "status": "Failure"})));
        let error = read_contents(&client).await.err().unwrap().to_string();
        let wanted = "the server does not serve LedgerSegments, so it has no ledger; install the definitions with \
                      windlass crds | kubectl apply -f -";
        assert_eq!(error, wanted);
    }

    #[tokio::test]
    async fn segments_count_without_revocations() {
        let client = scripted_client(async |call| match call.path.ends_with("/ledgersegments") {
            true => (
                200,
                json!({"kind": "LedgerSegmentList", "metadata": {}, "items": [segment("AQ=="), segment("x")]}),
            ),
            false => (404, json!({"kind": "Status", "code": 404, "status": "Failure"})),
        });
        let contents = read_contents(&client).await.unwrap();
        assert!(contents.index.is_empty() && contents.revocations.is_none());
    }

    fn segment(entries: &str) -> serde_json::Value {
        json!({"metadata": {"name": "short-0000000001"}, "spec": {
            "chain": "short", "sequence": 1, "previousHash": format!("sha256:{}", "0".repeat(64)),
            "entries": entries, "entryCount": 0, "latestExpiry": "2026-01-01T00:00:00Z",
        }})
    }

    #[test]
    fn invalid_objects_are_named() {
        let parse = |pointer: &str, value: serde_json::Value| {
            let mut object = segment("AQ==");
            *object.pointer_mut(pointer).unwrap() = value;
            parse_segment(&serde_json::from_value(object).unwrap()).map(|stored| stored.header.name())
        };
        for (pointer, value, wanted) in [
            ("/spec/sequence", json!(1), Ok("short-0000000001")),
            (
                "/spec/sequence",
                json!(2),
                Err("segment short-0000000001 is invalid: its name should be short-0000000002"),
            ),
            (
                "/spec/entries",
                json!("x"),
                Err("segment short-0000000001 is invalid: the entries are not base64"),
            ),
            (
                "/spec/chain",
                json!("tiny"),
                Err(
                    "segment short-0000000001 is invalid: invalid chain \"tiny\"; it must be one of: short, medium, long",
                ),
            ),
        ] {
            assert_eq!(parse(pointer, value), wanted.map(str::to_owned).map_err(str::to_owned), "{pointer}");
        }
    }
}
