use serde_json::{Value, json};
use windlass_pki::PrivateKey;

use super::*;
use crate::tokens::TokenSigner;

const ISSUER: &str = "https://issuer.example";

fn claims() -> Value {
    json!({
        "iss": ISSUER, "sub": "system:serviceaccount:ns:sa", "aud": ["a"], "exp": 2_000_000_000,
        "jti": "j", "kubernetes.io": {"namespace": "ns", "serviceaccount": {"name": "sa", "uid": "u"}},
    })
}

fn encoded(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

/// Returns a token with any header and claims, signed by `key` whatever the header says.
fn forged(key: &PrivateKey, header: &Value, claims: &Value) -> String {
    signed(key, &encoded(header), &encoded(claims))
}

fn signed(key: &PrivateKey, header: &str, payload: &str) -> String {
    let message = format!("{header}.{payload}");
    let signature = key.sign_jws(message.as_bytes()).unwrap();
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
}

fn verifier(keys: &[&PrivateKey]) -> TokenVerifier {
    let keys: Vec<PublicKey> = keys.iter().map(|key| key.public_key().clone()).collect();
    TokenVerifier::new(vec![ISSUER.into()], Vec::new(), &keys).unwrap()
}

#[test]
fn a_token_is_taken_by_any_of_the_keys() {
    let (old, new) = (PrivateKey::generate().unwrap(), PrivateKey::generate().unwrap());
    let verifier = verifier(&[&old, &new]);
    for key in [&old, &new] {
        let id = key_id(key.public_key());
        for header in
            [json!({"alg": "ES256", "kid": id}), json!({"alg": "ES256"}), json!({"alg": "ES256", "kid": ""})]
        {
            let token = forged(key, &header, &claims());
            assert_eq!(verifier.verify(&token).ok().unwrap().subject, "system:serviceaccount:ns:sa");
        }
    }
    let own = TokenSigner::new(new, ISSUER).unwrap().sign(claims()).unwrap();
    assert!(verifier.verify(&own).is_ok());
}

#[test]
fn a_single_audience_may_stand_alone() {
    let key = PrivateKey::generate().unwrap();
    let mut said = claims();
    said["aud"] = json!("alone");
    let token = forged(&key, &json!({"alg": "ES256"}), &said);
    assert_eq!(verifier(&[&key]).verify(&token).ok().unwrap().audiences, ["alone"]);
}

#[test]
fn the_header_cannot_weaken_the_check() {
    let (key, other) = (PrivateKey::generate().unwrap(), PrivateKey::generate().unwrap());
    let verifier = verifier(&[&key, &other]);
    let id = key_id(key.public_key());
    let message = |header: Value| format!("{}.{}", encoded(&header), encoded(&claims()));
    let hmac = {
        let text = message(json!({"alg": "HS256", "kid": id}));
        let secret = key.public_key().to_pem();
        let secret = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, secret.as_bytes());
        let tag = aws_lc_rs::hmac::sign(&secret, text.as_bytes());
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(tag.as_ref()))
    };
    let none = format!("{}.", message(json!({"alg": "none", "kid": id})));
    let wrong_id = json!({"alg": "ES256", "kid": key_id(other.public_key())});
    for (token, why) in [
        (none, TokenRejection::Signature),
        (hmac, TokenRejection::Signature),
        (forged(&key, &json!({"alg": "none"}), &claims()), TokenRejection::Signature),
        (forged(&key, &json!({"alg": "ES384", "kid": id}), &claims()), TokenRejection::Signature),
        (forged(&key, &json!({"alg": "es256", "kid": id}), &claims()), TokenRejection::Signature),
        (forged(&key, &wrong_id, &claims()), TokenRejection::Signature),
        (forged(&key, &json!({"alg": "ES256", "kid": "unknown"}), &claims()), TokenRejection::NoKey),
        (forged(&key, &json!({"kid": id}), &claims()), TokenRejection::NotOurs),
        (forged(&key, &json!({"alg": "ES256", "crit": ["b64"]}), &claims()), TokenRejection::NotOurs),
        (forged(&key, &json!(["ES256"]), &claims()), TokenRejection::NotOurs),
    ] {
        assert_eq!(verifier.verify(&token).err(), Some(why), "{token}");
    }
}

#[test]
fn a_changed_token_is_no_token() {
    let key = PrivateKey::generate().unwrap();
    let verifier = verifier(&[&key]);
    let good = forged(&key, &json!({"alg": "ES256"}), &claims());
    let parts: Vec<&str> = good.split('.').collect();
    let mut other = claims();
    other["sub"] = json!("system:serviceaccount:kube-system:admin");
    let payload = format!("{}.{}.{}", parts[0], encoded(&other), parts[2]);
    assert_eq!(verifier.verify(&payload).err(), Some(TokenRejection::Signature));
    for at in 0..good.len() {
        let mut bytes = good.clone().into_bytes();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(bytes).unwrap();
        assert!(changed == good || verifier.verify(&changed).is_err(), "byte {at}");
    }
    for broken in [
        format!("{good}.x"),
        format!("{good}="),
        format!(" {good}"),
        parts[..2].join("."),
        format!("{}.{}.", parts[0], parts[1]),
        String::new(),
        "..".into(),
    ] {
        assert!(verifier.verify(&broken).is_err(), "{broken}");
    }
    assert!(verifier.verify(&good).is_ok());
}

#[test]
fn claims_are_complete_and_said_once() {
    let key = PrivateKey::generate().unwrap();
    let verifier = verifier(&[&key]);
    let header = json!({"alg": "ES256"});
    let mut of_others = claims();
    of_others["iss"] = json!("https://other.example");
    assert_eq!(verifier.verify(&forged(&key, &header, &of_others)).err(), Some(TokenRejection::NotOurs));
    for missing in ["sub", "aud", "exp", "kubernetes.io"] {
        let mut less = claims();
        less.as_object_mut().unwrap().remove(missing);
        let token = forged(&key, &header, &less);
        assert_eq!(verifier.verify(&token).err(), Some(TokenRejection::Claims), "{missing}");
    }
    let mut nameless = claims();
    nameless["kubernetes.io"]["serviceaccount"] = json!({"uid": "u"});
    assert!(verifier.verify(&forged(&key, &header, &nameless)).is_err());
    let text = claims().to_string();
    let twice = text.replacen('{', r#"{"sub":"system:serviceaccount:ns:other","#, 1);
    let token = signed(&key, &encoded(&header), &URL_SAFE_NO_PAD.encode(twice));
    assert!(verifier.verify(&token).is_err());
}

#[test]
fn a_token_has_a_greatest_length() {
    let key = PrivateKey::generate().unwrap();
    let mut said = claims();
    said["aud"] = json!(["a".repeat(limits::TOKEN / 4 * 3)]);
    let token = forged(&key, &json!({"alg": "ES256"}), &said);
    assert_eq!(verifier(&[&key]).verify(&token).err(), Some(TokenRejection::NotOurs));
}

#[test]
fn tokens_become_invalid_with_their_signing_key() {
    let (old, new) = (PrivateKey::generate().unwrap(), PrivateKey::generate().unwrap());
    let verifier = verifier(&[&old]);
    let token = forged(&old, &json!({"alg": "ES256"}), &claims());
    assert!(verifier.verify(&token).is_ok());
    assert!(verifier.verify(&token).is_ok());
    verifier.replace_keys(&[new.public_key().clone()]).unwrap();
    assert_eq!(verifier.verify(&token).err(), Some(TokenRejection::Signature));
    assert!(verifier.replace_keys(&[]).is_err());
}

#[test]
fn the_token_cache_is_bounded() {
    let key = PrivateKey::generate().unwrap();
    let verifier = verifier(&[&key]);
    let token = forged(&key, &json!({"alg": "ES256"}), &claims());
    let known = verifier.verify(&token).ok().unwrap();
    let keys = verifier.keys.load();
    for i in 0..limits::VERIFIED_TOKENS {
        keys.cache_claims(sha256(&i.to_string()), known.clone());
    }
    assert_eq!(keys.lock_verified().claims.len(), limits::VERIFIED_TOKENS);
    assert!(keys.cached_claims(&sha256(&token)).is_none(), "the oldest goes first");
}
