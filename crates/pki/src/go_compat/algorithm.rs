//! Algorithm identifiers of keys, signatures and hashes.

use super::der_reader::{DerElement, DerReader, tag};
use super::oid::Oid;

/// `AlgorithmIdentifier` as defined by RFC 5280 §4.1.1.2.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AlgorithmIdentifier<'a> {
    pub oid: Oid<'a>,
    pub parameters: Option<DerElement<'a>>,
}

impl<'a> AlgorithmIdentifier<'a> {
    /// Parses the contents. Ignores data after the parameters, as Go does.
    pub(crate) fn read(contents: DerReader<'a>) -> Option<Self> {
        Self::with(contents, DerReader::next_element)
    }

    /// Parses the contents in a request, where the parameters may have any type.
    pub(crate) fn in_request(contents: DerReader<'a>) -> Option<Self> {
        Self::with(contents, DerReader::next_wide_element)
    }

    fn with(
        mut contents: DerReader<'a>,
        next: fn(&mut DerReader<'a>) -> Option<DerElement<'a>>,
    ) -> Option<Self> {
        let oid = contents.oid()?;
        let parameters = if contents.is_empty() { None } else { Some(next(&mut contents)?) };
        Some(Self { oid, parameters })
    }

    /// Returns true if the parameters are absent or NULL.
    pub(super) fn has_no_parameters(&self) -> bool {
        self.parameters.is_none_or(|parameters| parameters.whole == [tag::NULL, 0])
    }
}
