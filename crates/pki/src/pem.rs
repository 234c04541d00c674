//! Strict PEM parser and encoder.
//!
//! Go's `encoding/pem` skips what it cannot parse, so a damaged certificate in the middle of a file
//! disappears silently. This parser is stricter: text around the blocks is allowed (RFC 7468 §5.2;
//! often comments), but every boundary must be at the start of a line, every block must end and
//! decode, and headers inside a block are rejected. Nothing is dropped silently.
//!
//! Each byte is visited a constant number of times, whatever the input.

use base64ct::{Base64, Encoding};
use rustls_pki_types::CertificateDer;
use zeroize::Zeroizing;

use crate::limits::{
    MAX_CERTIFICATE_BYTES, MAX_CRL_BYTES, MAX_PEM_BLOCKS, MAX_PEM_BYTES, MAX_PEM_LABEL_BYTES,
    MAX_PRIVATE_KEY_BYTES,
};

/// Label of an X.509 certificate.
pub const CERTIFICATE: &str = "CERTIFICATE";
/// Label of a PKCS#8 private key.
pub const PRIVATE_KEY: &str = "PRIVATE KEY";
/// Label of a SEC 1 private key, as `openssl ecparam -genkey` and client-go write it.
pub const EC_PRIVATE_KEY: &str = "EC PRIVATE KEY";
/// Label of a PKCS#1 private key, as kubeadm writes it.
pub const RSA_PRIVATE_KEY: &str = "RSA PRIVATE KEY";
/// PEM label of a SubjectPublicKeyInfo.
pub const PUBLIC_KEY: &str = "PUBLIC KEY";
/// Label of a certificate revocation list.
pub const X509_CRL: &str = "X509 CRL";

/// Block that OpenSSL writes before an EC key. It is redundant with the key.
pub(crate) const EC_PARAMETERS: &str = "EC PARAMETERS";

const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
const DASHES: &str = "-----";
const LINE_WIDTH: usize = 64;

/// One PEM block. The contents may be a private key, so they are wiped when dropped.
pub struct PemBlock {
    /// Label between `-----BEGIN ` and the trailing dashes.
    pub label: String,
    /// Decoded contents of the block; wiped from memory when dropped.
    pub contents: Zeroizing<Vec<u8>>,
}

/// Error of parsing PEM. Line numbers count from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PemError {
    /// The text is longer than [`MAX_PEM_BYTES`].
    #[error("PEM text exceeds {MAX_PEM_BYTES} bytes")]
    TextTooLarge,
    /// There are more than [`MAX_PEM_BLOCKS`] blocks.
    #[error("PEM text has more than {MAX_PEM_BLOCKS} blocks")]
    TooManyBlocks,
    /// A block decodes to more than its kind allows.
    #[error("line {line}: PEM block exceeds {limit} bytes")]
    BlockTooLarge {
        /// Line number of the block's `BEGIN` line, counted from 1.
        line: usize,
        /// Maximum size of the block in bytes.
        limit: usize,
    },
    /// A `BEGIN` or `END` line is malformed or misplaced.
    #[error("line {line}: misplaced or malformed PEM boundary")]
    Boundary {
        /// Number of the malformed line, counted from 1.
        line: usize,
    },
    /// The block has no `END` line.
    #[error("line {line}: PEM block does not end")]
    Unterminated {
        /// Line number of the block's `BEGIN` line, counted from 1.
        line: usize,
    },
    /// The block has headers, for example those of an encrypted key.
    #[error("line {line}: PEM headers are not supported")]
    Headers {
        /// Line number of the first header, counted from 1.
        line: usize,
    },
    /// The block's contents are not base64.
    #[error("line {line}: PEM block is not valid base64")]
    Base64 {
        /// Line number of the block's `BEGIN` line, counted from 1.
        line: usize,
    },
    /// A block has an unexpected label, which is printable ASCII.
    #[error("unexpected PEM block {found:?}, expected {expected}")]
    UnexpectedLabel {
        /// Label of the block that was found.
        found: String,
        /// Label or kind of block that was expected.
        expected: &'static str,
    },
    /// There is no block of the expected kind.
    #[error("no {0} found in PEM text")]
    Missing(&'static str),
    /// There is more than one block where one is expected.
    #[error("more than one {0} found in PEM text")]
    Several(&'static str),
}

/// Extracts at least one certificate; other blocks are an error. The certificates are not parsed
/// yet.
pub fn certificates(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, PemError> {
    let mut certificates = Vec::new();
    for block in blocks(text)? {
        if block.label != CERTIFICATE {
            return Err(PemError::UnexpectedLabel { found: block.label, expected: CERTIFICATE });
        }
        certificates.push(CertificateDer::from(block.contents.to_vec()));
    }
    if certificates.is_empty() {
        return Err(PemError::Missing("certificate"));
    }
    Ok(certificates)
}

/// Extracts at least one certificate from a text that may contain other blocks.
pub(crate) fn certificates_in_mixed_pem(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, PemError> {
    let blocks = blocks(text)?.into_iter().filter(|block| block.label == CERTIFICATE);
    let found = blocks.map(|block| CertificateDer::from(block.contents.to_vec()));
    let found = found.collect::<Vec<_>>();
    if found.is_empty() { Err(PemError::Missing("certificate")) } else { Ok(found) }
}

/// Extracts the one private key from a text that may contain other blocks.
pub(crate) fn private_key_in_mixed_pem(text: &[u8]) -> Result<PemBlock, PemError> {
    let is_key =
        |block: &PemBlock| [PRIVATE_KEY, EC_PRIVATE_KEY, RSA_PRIVATE_KEY].contains(&block.label.as_str());
    let mut keys = blocks(text)?.into_iter().filter(is_key);
    match (keys.next(), keys.next()) {
        (Some(key), None) => Ok(key),
        (Some(_), Some(_)) => Err(PemError::Several("private key")),
        (None, _) => Err(PemError::Missing("private key")),
    }
}

/// Extracts exactly one private key in any of the three encodings in use; other blocks are an
/// error.
pub fn private_key(text: &[u8]) -> Result<PemBlock, PemError> {
    let mut found = None;
    for block in blocks(text)? {
        match block.label.as_str() {
            EC_PARAMETERS => {}
            PRIVATE_KEY | EC_PRIVATE_KEY | RSA_PRIVATE_KEY if found.is_none() => {
                found = Some(block);
            }
            PRIVATE_KEY | EC_PRIVATE_KEY | RSA_PRIVATE_KEY => {
                return Err(PemError::Several("private key"));
            }
            _ => {
                return Err(PemError::UnexpectedLabel { found: block.label, expected: "a private key" });
            }
        }
    }
    found.ok_or(PemError::Missing("private key"))
}

/// Extracts exactly one CRL; other blocks are an error. The caller has limited the size of the text.
pub(crate) fn revocation_list(text: &[u8]) -> Result<PemBlock, PemError> {
    let mut blocks = parse_blocks(text)?.into_iter();
    match (blocks.next(), blocks.next()) {
        (Some(block), None) if block.label == X509_CRL => Ok(block),
        (Some(block), None) => Err(PemError::UnexpectedLabel { found: block.label, expected: X509_CRL }),
        (Some(_), Some(_)) => Err(PemError::Several("certificate revocation list")),
        (None, _) => Err(PemError::Missing("certificate revocation list")),
    }
}

/// Parses all blocks of a text.
pub fn blocks(text: &[u8]) -> Result<Vec<PemBlock>, PemError> {
    if text.len() > MAX_PEM_BYTES {
        return Err(PemError::TextTooLarge);
    }
    parse_blocks(text)
}

fn parse_blocks(text: &[u8]) -> Result<Vec<PemBlock>, PemError> {
    let mut blocks = Vec::new();
    let mut open: Option<PartialBlock> = None;
    for (index, line) in text.split(|&byte| byte == b'\n').enumerate() {
        let number = index.saturating_add(1);
        let line = line.trim_ascii_end();
        match open.take() {
            None => open = parse_begin(line, number)?,
            Some(mut block) => {
                if block.push_line(line, number)? {
                    open = Some(block);
                } else if blocks.len() == MAX_PEM_BLOCKS {
                    return Err(PemError::TooManyBlocks);
                } else {
                    blocks.push(block.decode()?);
                }
            }
        }
    }
    match open {
        Some(block) => Err(PemError::Unterminated { line: block.line }),
        None => Ok(blocks),
    }
}

/// A block whose `END` line has not been parsed.
struct PartialBlock {
    label: String,
    line: usize,
    base64: Zeroizing<Vec<u8>>,
}

/// Parses a line outside blocks: text, or the start of a block.
fn parse_begin(line: &[u8], number: usize) -> Result<Option<PartialBlock>, PemError> {
    let Some(label) = boundary(line, BEGIN) else {
        // A boundary with something before it would be treated as text, and its block lost.
        let lost = contains(line, BEGIN.as_bytes()) || contains(line, END.as_bytes());
        return if lost { Err(PemError::Boundary { line: number }) } else { Ok(None) };
    };
    let printable = label.iter().all(|byte| (b' '..=b'~').contains(byte) && *byte != b'-');
    if label.is_empty() || label.len() > MAX_PEM_LABEL_BYTES || !printable {
        return Err(PemError::Boundary { line: number });
    }
    let label = String::from_utf8_lossy(label).into_owned();
    // Capacity for the largest key, so that growing leaves no copies of a key behind.
    let room = if label == CERTIFICATE { 0 } else { encoded_len(MAX_PRIVATE_KEY_BYTES) };
    let base64 = Zeroizing::new(Vec::with_capacity(room));
    Ok(Some(PartialBlock { label, line: number, base64 }))
}

impl PartialBlock {
    /// Adds one line to the block; returns false at its end.
    fn push_line(&mut self, line: &[u8], number: usize) -> Result<bool, PemError> {
        if line.starts_with(DASHES.as_bytes()) {
            return match boundary(line, END) {
                Some(label) if label == self.label.as_bytes() => Ok(false),
                _ => Err(PemError::Boundary { line: number }),
            };
        }
        if line.contains(&b':') {
            return Err(PemError::Headers { line: number });
        }
        let line = line.trim_ascii_start();
        if self.base64.len().saturating_add(line.len()) > encoded_len(self.limit()) {
            return Err(PemError::BlockTooLarge { line: self.line, limit: self.limit() });
        }
        self.base64.extend_from_slice(line);
        Ok(true)
    }

    fn limit(&self) -> usize {
        match self.label.as_str() {
            CERTIFICATE => MAX_CERTIFICATE_BYTES,
            X509_CRL => MAX_CRL_BYTES,
            _ => MAX_PRIVATE_KEY_BYTES,
        }
    }

    fn decode(self) -> Result<PemBlock, PemError> {
        let invalid = PemError::Base64 { line: self.line };
        if self.base64.is_empty() {
            return Err(invalid);
        }
        // Decodes in place: the key overwrites its text, and both are wiped together.
        let mut contents = self.base64;
        let Ok(length) = Base64::decode_in_place(&mut contents).map(|decoded| decoded.len()) else {
            return Err(invalid);
        };
        contents.truncate(length);
        Ok(PemBlock { label: self.label, contents })
    }
}

fn boundary<'a>(line: &'a [u8], start: &str) -> Option<&'a [u8]> {
    line.strip_prefix(start.as_bytes())?.strip_suffix(DASHES.as_bytes())
}

fn contains(line: &[u8], needle: &[u8]) -> bool {
    line.windows(needle.len()).any(|window| window == needle)
}

/// Returns the base64 length of so many bytes.
const fn encoded_len(bytes: usize) -> usize {
    bytes.div_ceil(3).saturating_mul(4)
}

/// Encodes one block with lines of 64 characters.
pub fn encode(label: &str, contents: &[u8]) -> Zeroizing<String> {
    let base64 = Zeroizing::new(Base64::encode_string(contents));
    let lines = base64.len().div_ceil(LINE_WIDTH);
    let boundaries = BEGIN.len() + END.len() + 2 * (DASHES.len() + label.len() + 1);
    let mut text = Zeroizing::new(String::with_capacity(base64.len() + lines + boundaries));
    for part in [BEGIN, label, DASHES, "\n"] {
        text.push_str(part);
    }
    for (index, character) in base64.chars().enumerate() {
        if index > 0 && index.is_multiple_of(LINE_WIDTH) {
            text.push('\n');
        }
        text.push(character);
    }
    if !base64.is_empty() {
        text.push('\n');
    }
    for part in [END, label, DASHES, "\n"] {
        text.push_str(part);
    }
    text
}

/// Encodes a certificate chain, in order.
pub fn encode_certificates<'a>(chain: impl IntoIterator<Item = &'a [u8]>) -> String {
    chain.into_iter().map(|der| encode(CERTIFICATE, der).to_string()).collect()
}

#[cfg(test)]
mod tests;
