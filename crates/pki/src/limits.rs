//! Limits on attacker-controlled work, each with its reason.

/// Maximum PEM text, checked before parsing. Debian's whole `ca-certificates` bundle is 0.2 MiB,
/// and the largest trust bundle in an API object is below 2 MiB.
pub const MAX_PEM_BYTES: usize = 4 << 20;

/// Maximum PEM blocks in one text. Public root programmes together have some 400.
pub const MAX_PEM_BLOCKS: usize = 4096;

/// Maximum label length; the longest in RFC 7468 has 21 characters.
pub const MAX_PEM_LABEL_BYTES: usize = 64;

/// Maximum DER of one certificate. Chains are sent in TLS handshakes, where 64 KiB is already
/// absurd; a certificate with a post-quantum signature has 6 KiB.
pub const MAX_CERTIFICATE_BYTES: usize = 64 << 10;

/// Maximum DER of one private key. RSA with 8192 bits takes 5 KiB.
pub const MAX_PRIVATE_KEY_BYTES: usize = 16 << 10;

/// Maximum DER of one public key, by the same reasoning.
pub const MAX_PUBLIC_KEY_BYTES: usize = 8 << 10;

/// Smallest RSA key that may sign: NIST SP 800-131A, and Go's TLS since 1.24.
pub const MIN_RSA_BITS: usize = 2048;

/// Smallest RSA key that may be certified, as in Kubernetes. Keys below [`MIN_RSA_BITS`] cause a
/// warning.
pub const MIN_CERTIFIED_RSA_BITS: usize = 1024;

/// Largest RSA key: the cost of one signature grows with the cube of this.
pub const MAX_RSA_BITS: usize = 8192;

/// Maximum extensions in one certificate. A dozen is common; Go has no limit.
pub const MAX_EXTENSIONS: usize = 64;

/// Maximum attributes in one distinguished name. Each group of a Kubernetes user is one attribute.
pub const MAX_NAME_ATTRIBUTES: usize = 256;

/// Maximum bytes of one name attribute: enough for `system:node:` with a DNS name of 253, and for a
/// service account's user name.
pub const MAX_ATTRIBUTE_BYTES: usize = 1024;

/// Maximum subject alternative names in one certificate. Public CAs stop at 100.
pub const MAX_ALT_NAMES: usize = 1024;

/// Maximum length of a DNS name (RFC 1035).
pub const MAX_DNS_NAME_BYTES: usize = 253;

/// Maximum length of a URI in a subject alternative name; SPIFFE allows 2048.
pub const MAX_URI_BYTES: usize = 2048;

/// Maximum URLs of CRLs in one certificate. One is usual; clients try them in turn.
pub const MAX_DISTRIBUTION_POINTS: usize = 8;

/// Maximum octets of a serial number (RFC 5280 §4.1.2.2).
pub const MAX_SERIAL_BYTES: usize = 20;

/// Maximum entries of one CRL, with room above the 100,000 that an authority is designed for.
pub const MAX_CRL_ENTRIES: usize = 200_000;

/// Maximum DER of one CRL. An entry with a serial number of 16 octets and a reason takes 50 bytes.
pub const MAX_CRL_BYTES: usize = 16 << 20;

/// Maximum PEM text of one CRL: [`MAX_CRL_BYTES`] in base64 with line ends, and some text around it.
pub const MAX_CRL_PEM_BYTES: usize = 22 << 20;

/// Largest subject key identifier that is used as the id of an authority. RFC 5280 suggests 20 bytes;
/// the id in hexadecimal is part of object names, which are limited to 253 characters.
pub const MAX_KEY_IDENTIFIER_BYTES: usize = 64;

/// Maximum extended key usages in one certificate.
pub const MAX_PURPOSES: usize = 64;

/// Maximum text of one trust bundle, as in Kubernetes.
pub const MAX_TRUST_BUNDLE_BYTES: usize = 1 << 20;

/// Maximum DER of one request or certificate that is only inspected and passed on. Go has no limit;
/// this is the size of the largest object that can carry one, and parsing takes linear time.
pub const MAX_FOREIGN_BYTES: usize = 1 << 20;

/// Maximum DER of a pod's public key, Kubernetes' limit for the field.
pub const MAX_SUBJECT_KEY_BYTES: usize = 10 << 10;

/// Maximum text of a pod's certificate chain, as in Kubernetes.
pub const MAX_CHAIN_BYTES: usize = 100 << 10;

/// Maximum characters of a keystore password, as in trust-manager.
pub const MAX_PASSWORD_CHARACTERS: usize = 128;

/// Maximum characters of a keystore alias; longer subjects are truncated. JKS has room for 65535
/// bytes, and a lower-case character takes at most nine in its encoding.
pub const MAX_ALIAS_CHARACTERS: usize = 4096;
