//! Names for objects that come with a `generateName` only.

use rand::Rng as _;
use serde_json::{Value, json};
use windlass_api::meta::ObjectMetaView;

use super::metadata_mut;

/// Kubernetes' characters of generated names: no vowels, and none that look alike.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX: usize = 5;
const MAX_NAME_BYTES: usize = 63;

/// Whether the server has to name the object.
pub(super) fn is_needed(object: &Value) -> bool {
    let meta = ObjectMetaView::from_object(object);
    meta.name().is_empty() && !meta.generate_name().is_empty()
}

/// Sets a new name that begins with the object's `generateName`.
pub(super) fn assign(object: &mut Value) {
    let name = generate_name(ObjectMetaView::from_object(object).generate_name());
    metadata_mut(object).insert("name".into(), json!(name));
}

/// Returns a random name that begins with `base`, cut to the length of a DNS label.
pub(crate) fn generate_name(base: &str) -> String {
    let mut end = base.len().min(MAX_NAME_BYTES - SUFFIX);
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    let mut random = rand::rng();
    let suffix = (0..SUFFIX).map(|_| ALPHABET[random.random_range(0..ALPHABET.len())] as char);
    base[..end].chars().chain(suffix).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_names_keep_58_bytes_of_the_base() {
        let name = generate_name(&"a".repeat(100));
        assert_eq!(name.len(), 63);
        assert!(name.bytes().skip(58).all(|b| ALPHABET.contains(&b)));
        assert!(generate_name("x-").starts_with("x-"));
        assert_eq!(generate_name(&"é".repeat(40)).chars().filter(|c| *c == 'é').count(), 29);
    }
}
