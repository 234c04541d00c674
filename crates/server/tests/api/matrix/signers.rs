//! Signers, the ledger and revocations in the matrix.

use serde_json::{Value, json};

use super::callers::{CANARY, MatrixFixture, create_object};
use super::requests::{MatrixRequest, ResourceLocation, collection, object, view};
use windlass_testkit::TestServer;

const SIGNERS: &str = "/apis/windlass.dev/v1alpha1/signers";
const ROTATIONS: &str = "/apis/windlass.dev/v1alpha1/carotations";
const SEGMENTS: &str = "/apis/windlass.dev/v1alpha1/ledgersegments";
const REVOCATIONS: &str = "/apis/windlass.dev/v1alpha1/certificaterevocations";
const LISTS: &str = "/apis/windlass.dev/v1alpha1/certificaterevocationlists";

/// Creates one object of each kind.
pub async fn prepare(server: &TestServer) {
    create_object(server, SIGNERS, signer("x")).await;
    create_object(server, ROTATIONS, rotation("x")).await;
    create_object(server, SEGMENTS, segment(1)).await;
    create_object(server, REVOCATIONS, revocation("01")).await;
    create_object(server, LISTS, list("0a")).await;
}

/// Returns the requests on these kinds.
pub async fn requests(world: &MatrixFixture) -> Vec<MatrixRequest> {
    let place = |collection, name, shown, new| ResourceLocation { collection, name, shown, new };
    let mut all = Vec::new();
    for place in [
        place(SIGNERS, "x", "signers x", signer("xy")),
        place(ROTATIONS, "x", "carotations x", rotation("xy")),
        place(SEGMENTS, "short-0000000001", "ledgersegments short-1", segment(2)),
        place(REVOCATIONS, "0a-01", "certificaterevocations x", revocation("02")),
        place(LISTS, "0a", "certificaterevocationlists 0a", list("0b")),
    ] {
        all.extend(collection(&place));
        all.extend(object(world, &place).await);
    }
    all.extend(view(world, &format!("{SIGNERS}/x/status"), "signers/status x").await);
    all.extend(view(world, &format!("{ROTATIONS}/x/status"), "carotations/status x").await);
    all.extend(view(world, &format!("{REVOCATIONS}/0a-01/status"), "certificaterevocations/status x").await);
    all
}

fn metadata(name: &str) -> Value {
    json!({"name": name, "annotations": {"example.com/c": CANARY}})
}

fn signer(name: &str) -> Value {
    json!({"metadata": metadata(name), "spec": {
        "signerName": format!("example.com/{name}"), "ca": {"selfSigned": {}}, "pods": {"serviceNames": true},
    }})
}

fn rotation(name: &str) -> Value {
    json!({"metadata": metadata(name), "spec": {"signerName": format!("example.com/{name}")}})
}

fn segment(sequence: u64) -> Value {
    json!({"metadata": metadata(&format!("short-{sequence:010}")), "spec": {
        "chain": "short", "sequence": sequence, "previousHash": format!("sha256:{}", "0".repeat(64)),
        "entries": "YQ==", "entryCount": 1, "latestExpiry": "2999-01-01T00:00:00Z",
    }})
}

fn revocation(serial: &str) -> Value {
    json!({"metadata": metadata(&format!("0a-{serial}")), "spec": {
        "signerName": "example.com/x", "authorityID": "0a", "serialNumber": serial,
        "reason": "certificateHold", "notAfter": "2999-01-01T00:00:00Z",
    }})
}

fn list(authority: &str) -> Value {
    json!({"metadata": metadata(authority), "spec": {
        "signerName": "example.com/x", "authorityID": authority, "crl": "YQ==", "number": 1,
        "thisUpdate": "2026-01-01T00:00:00Z", "nextUpdate": "2026-01-02T00:00:00Z",
    }})
}
