//! What a cluster has stored, change by change, as etcd itself reports it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::{EtcdCluster, EtcdMember};

/// How long a member that is well takes to answer at most.
const LIMIT: Duration = Duration::from_secs(1);

/// One change of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyChange {
    /// The revision of the change.
    pub revision: u64,
    /// Key that was written or deleted.
    pub key: String,
    /// The new value; `None` when the key was deleted.
    pub value: Option<Vec<u8>>,
}

impl EtcdCluster {
    /// All changes of all keys after a revision, with the newest revision, as a member tells them that
    /// has a leader. Only without TLS.
    pub fn changes(&self, after: u64) -> Result<(Vec<KeyChange>, u64)> {
        let mut members = self.members().iter();
        let (member, newest) = members
            .find_map(|member| Some((member, member.current_revision()?)))
            .context("no member answers")?;
        Ok((member.watch_changes(after, newest)?, newest))
    }
}

impl EtcdMember {
    /// The cluster's newest revision, as a quorum confirms it.
    fn current_revision(&self) -> Option<u64> {
        // Of the first key there can be, which is not there.
        let body = self.post("/v3/kv/range", r#"{"key":"AA==","count_only":true}"#, LIMIT)?;
        parse_number(body.pointer("/header/revision")?)
    }

    fn watch_changes(&self, after: u64, newest: u64) -> Result<Vec<KeyChange>> {
        let (mut found, mut delivered) = (Vec::new(), after);
        if delivered >= newest {
            return Ok(found);
        }
        // From the first key there can be to the last.
        let order = format!(
            r#"{{"create_request":{{"key":"AA==","range_end":"AA==","start_revision":"{}"}}}}"#,
            after + 1
        );
        let mut lines = self.open_stream("/v3/watch", &order)?.lines();
        while delivered < newest {
            let line = lines.next().context("the watch ended")??;
            let answer: Value = serde_json::from_str(&line)?;
            let result = answer.get("result").with_context(|| format!("etcd said {line}"))?;
            ensure!(result.get("canceled").is_none(), "etcd ended the watch: {line}");
            for event in result.get("events").and_then(Value::as_array).into_iter().flatten() {
                let change = parse_event(event).with_context(|| format!("an event is {event}"))?;
                delivered = change.revision;
                found.push(change);
            }
        }
        // What came after is for the next time.
        found.retain(|change| change.revision <= newest);
        Ok(found)
    }

    /// The body of an answer, line by line.
    fn open_stream(&self, path: &str, body: &str) -> Result<BufReader<TcpStream>> {
        let address = self.url().trim_start_matches("http://").parse()?;
        let mut stream = TcpStream::connect_timeout(&address, LIMIT)?;
        stream.set_read_timeout(Some(LIMIT))?;
        let length = body.len();
        let request = format!("POST {path} HTTP/1.0\r\nContent-Length: {length}\r\n\r\n{body}");
        stream.write_all(request.as_bytes())?;
        let mut answer = BufReader::new(stream);
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            ensure!(answer.read_line(&mut line)? > 0, "{path}: no answer");
        }
        Ok(answer)
    }
}

fn parse_event(event: &Value) -> Option<KeyChange> {
    let kv = event.get("kv")?;
    let bytes = |name: &str| STANDARD.decode(kv.get(name).and_then(Value::as_str)?).ok();
    let put = event.get("type").is_none_or(|kind| kind == "PUT");
    Some(KeyChange {
        revision: parse_number(kv.get("mod_revision")?)?,
        key: String::from_utf8(bytes("key")?).ok()?,
        // What is empty is left out.
        value: put.then(|| bytes("value").unwrap_or_default()),
    })
}

fn parse_number(value: &Value) -> Option<u64> {
    value.as_str()?.parse().ok()
}
