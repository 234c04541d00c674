//! What a cluster has stored, change by change, as etcd itself tells it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::{Cluster, Member};

/// How long a member that is well takes to answer at most.
const LIMIT: Duration = Duration::from_secs(1);

/// One change of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The revision of the change.
    pub revision: u64,
    /// The changed key.
    pub key: String,
    /// The new value; `None` when the key was deleted.
    pub value: Option<Vec<u8>>,
}

impl Cluster {
    /// All changes of all keys after a revision, with the newest revision, as a member tells them that
    /// has a leader. Only without TLS.
    pub fn changes(&self, after: u64) -> Result<(Vec<Change>, u64)> {
        let mut members = self.members().iter();
        let (member, newest) = members
            .find_map(|member| Some((member, member.revision()?)))
            .context("no member answers")?;
        Ok((member.changes(after, newest)?, newest))
    }
}

impl Member {
    /// The cluster's newest revision, as a quorum confirms it.
    fn revision(&self) -> Option<u64> {
        // Of the first key there can be, which is not there.
        let body = self.post("/v3/kv/range", r#"{"key":"AA==","count_only":true}"#, LIMIT)?;
        number(body.pointer("/header/revision")?)
    }

    fn changes(&self, after: u64, newest: u64) -> Result<Vec<Change>> {
        let (mut found, mut told) = (Vec::new(), after);
        if told >= newest {
            return Ok(found);
        }
        // From the first key there can be to the last.
        let order = format!(
            r#"{{"create_request":{{"key":"AA==","range_end":"AA==","start_revision":"{}"}}}}"#,
            after + 1
        );
        let mut lines = self.stream("/v3/watch", &order)?.lines();
        while told < newest {
            let line = lines.next().context("the watch ended")??;
            let answer: Value = serde_json::from_str(&line)?;
            let result = answer.get("result").with_context(|| format!("etcd said {line}"))?;
            ensure!(result.get("canceled").is_none(), "etcd ended the watch: {line}");
            for event in result.get("events").and_then(Value::as_array).into_iter().flatten() {
                let change = read(event).with_context(|| format!("an event is {event}"))?;
                told = change.revision;
                found.push(change);
            }
        }
        // What came after is for the next time.
        found.retain(|change| change.revision <= newest);
        Ok(found)
    }

    /// The body of an answer, line by line.
    fn stream(&self, path: &str, body: &str) -> Result<BufReader<TcpStream>> {
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

fn read(event: &Value) -> Option<Change> {
    let kv = event.get("kv")?;
    let bytes = |name: &str| STANDARD.decode(kv.get(name).and_then(Value::as_str)?).ok();
    let put = event.get("type").is_none_or(|kind| kind == "PUT");
    Some(Change {
        revision: number(kv.get("mod_revision")?)?,
        key: String::from_utf8(bytes("key")?).ok()?,
        // What is empty is left out.
        value: put.then(|| bytes("value").unwrap_or_default()),
    })
}

fn number(value: &Value) -> Option<u64> {
    value.as_str()?.parse().ok()
}
