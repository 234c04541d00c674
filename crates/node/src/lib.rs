//! The node agent: keeps the certificates, keys and trust bundles of a machine's pods current on disk.
//!
//! Nothing is here yet. What belongs here: projecting volumes into directories (planned by a pure
//! function, written so that a reader sees all of the old files or all of the new ones), asking for
//! pod certificates and rotating them, and reporting the node.
//!
//! What it must never do: hold the key of an authority, open the store, or speak to the server in
//! any way but the Kubernetes API. It makes its own private keys, and they never leave the machine.
