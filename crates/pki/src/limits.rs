//! Limits on attacker-controlled work, each with its reason.

/// PEM text larger than this is refused unread. Debian's whole `ca-certificates` bundle is 0.2 MiB,
/// and the largest trust bundle an API object can carry is below 2 MiB.
pub const MAX_PEM_BYTES: usize = 4 << 20;

/// More PEM blocks than this in one text are refused. Public root programmes together have some 400.
pub const MAX_PEM_BLOCKS: usize = 4096;

/// A label longer than this is not one that anybody uses; the longest in RFC 7468 has 21 characters.
pub const MAX_PEM_LABEL_BYTES: usize = 64;

/// DER of one certificate. A chain is sent in a TLS handshake, where 64 KiB is already absurd; a
/// certificate with a post-quantum signature has 6 KiB.
pub const MAX_CERTIFICATE_BYTES: usize = 64 << 10;

/// DER of one private key. RSA with 8192 bits takes 5 KiB.
pub const MAX_PRIVATE_KEY_BYTES: usize = 16 << 10;

/// DER of one public key, by the same reasoning.
pub const MAX_PUBLIC_KEY_BYTES: usize = 8 << 10;

/// Smallest RSA key that may sign: NIST SP 800-131A, and Go's TLS since 1.24.
pub const MIN_RSA_BITS: usize = 2048;

/// Smallest RSA key of others that may be certified, as in Kubernetes. Below [`MIN_RSA_BITS`] with a
/// warning.
pub const MIN_CERTIFIED_RSA_BITS: usize = 1024;

/// Largest RSA key: the cost of one signature grows with the cube of this.
pub const MAX_RSA_BITS: usize = 8192;

/// Extensions in one certificate. A dozen is common, Go stops nowhere.
pub const MAX_EXTENSIONS: usize = 64;

/// Attributes in one distinguished name. Every group of a Kubernetes user is one of them.
pub const MAX_NAME_ATTRIBUTES: usize = 256;

/// Characters of one attribute of a name: `system:node:` and a DNS name of 253 fit, a service
/// account's user name too.
pub const MAX_ATTRIBUTE_BYTES: usize = 1024;

/// Subject alternative names in one certificate. Public CAs stop at 100.
pub const MAX_ALT_NAMES: usize = 1024;

/// Characters of a DNS name (RFC 1035).
pub const MAX_DNS_NAME_BYTES: usize = 253;

/// Characters of a URI in a subject alternative name; SPIFFE allows 2048.
pub const MAX_URI_BYTES: usize = 2048;

/// Extended key usages in one certificate.
pub const MAX_PURPOSES: usize = 64;

/// Text of one trust bundle: what Kubernetes allows.
pub const MAX_TRUST_BUNDLE_BYTES: usize = 1 << 20;

/// DER of one request or certificate that others made and that is only looked at and handed on. Go
/// stops nowhere; this is as much as the largest object that can carry one, and reading it takes
/// linear time.
pub const MAX_FOREIGN_BYTES: usize = 1 << 20;

/// DER of one public key that a pod presents: what Kubernetes allows for the field.
pub const MAX_SUBJECT_KEY_BYTES: usize = 10 << 10;

/// Text of the chain that a pod's certificate comes with: what Kubernetes allows.
pub const MAX_CHAIN_BYTES: usize = 100 << 10;

/// Characters of a keystore's password: what trust-manager allows.
pub const MAX_PASSWORD_CHARACTERS: usize = 128;

/// Characters of a keystore's alias; of a longer subject the rest is cut off. JKS has room for 65535
/// bytes, and in lower case in its encoding a character takes nine at most.
pub const MAX_ALIAS_CHARACTERS: usize = 4096;
