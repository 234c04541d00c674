//! ASN.1 structures of certificates, for parsing and encoding.
//!
//! Names and keys stay raw bytes: an issuer must equal the CA's subject byte for byte, and a key is
//! certified exactly as given. Decoding and re-encoding would change input that is almost, but not
//! quite, DER.

use der::asn1::{AnyRef, BitStringRef, UintRef};
use der::{
    Decode, DecodeValue, EncodeValue, FixedTag, Header, Length, Reader, Sequence, SliceReader, Tag, Writer,
};
use x509_cert::certificate::Version;
use x509_cert::ext::Extension;
use x509_cert::spki::AlgorithmIdentifierRef;
use x509_cert::time::Validity;

use crate::Error;

/// `Certificate` as defined by RFC 5280 §4.1.
#[derive(Sequence)]
pub(crate) struct SignedFields<'a> {
    pub tbs: AnyRef<'a>,
    pub algorithm: AlgorithmIdentifierRef<'a>,
    pub signature: BitStringRef<'a>,
}

/// `TBSCertificate` as defined by RFC 5280 §4.1.
#[derive(Sequence)]
pub(crate) struct TbsFields<'a> {
    #[asn1(context_specific = "0", default = "Default::default")]
    pub version: Version,
    pub serial: UintRef<'a>,
    pub algorithm: AlgorithmIdentifierRef<'a>,
    pub issuer: AnyRef<'a>,
    pub validity: Validity,
    pub subject: AnyRef<'a>,
    pub public_key: AnyRef<'a>,
    #[asn1(context_specific = "1", tag_mode = "IMPLICIT", optional = "true")]
    pub issuer_unique_id: Option<BitStringRef<'a>>,
    #[asn1(context_specific = "2", tag_mode = "IMPLICIT", optional = "true")]
    pub subject_unique_id: Option<BitStringRef<'a>>,
    #[asn1(context_specific = "3", tag_mode = "EXPLICIT", optional = "true")]
    pub extensions: Option<Vec<Extension>>,
}

/// The contents of a SEQUENCE OF, whose elements are decoded one by one.
#[derive(Clone, Copy)]
pub(crate) struct RawSequence<'a>(pub &'a [u8]);

impl FixedTag for RawSequence<'_> {
    const TAG: Tag = Tag::Sequence;
}

impl<'a> DecodeValue<'a> for RawSequence<'a> {
    type Error = der::Error;

    fn decode_value<R: Reader<'a>>(reader: &mut R, header: Header) -> der::Result<Self> {
        reader.read_slice(header.length()).map(Self)
    }
}

impl EncodeValue for RawSequence<'_> {
    fn value_len(&self) -> der::Result<Length> {
        Length::try_from(self.0.len())
    }

    fn encode_value(&self, writer: &mut impl Writer) -> der::Result<()> {
        writer.write(self.0)
    }
}

/// Iterates over the elements in the value of a SEQUENCE or SET.
pub(crate) fn elements<'a>(
    value: &'a [u8],
    what: &'static str,
) -> impl Iterator<Item = Result<AnyRef<'a>, Error>> {
    let mut reader = SliceReader::new(value).ok();
    std::iter::from_fn(move || {
        let open = reader.as_mut().filter(|reader| !reader.is_finished())?;
        let element = AnyRef::decode(open).map_err(Error::malformed(what));
        if element.is_err() {
            reader = None;
        }
        Some(element)
    })
}

/// Encodes one DER element, for structures that must match Go's bytes exactly.
pub(crate) fn encode_tlv(tag: u8, contents: &[u8]) -> Vec<u8> {
    let mut element = Vec::with_capacity(contents.len().saturating_add(10));
    element.push(tag);
    let length = contents.len().to_be_bytes();
    let digits = length.iter().skip_while(|digit| **digit == 0).copied().collect::<Vec<_>>();
    match digits.as_slice() {
        [] => element.push(0),
        [short @ ..=0x7f] => element.push(*short),
        digits => {
            // A usize has at most eight octets.
            element.push(0x80 | u8::try_from(digits.len()).unwrap_or_default());
            element.extend_from_slice(digits);
        }
    }
    element.extend_from_slice(contents);
    element
}
