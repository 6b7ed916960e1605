//! Tests of key sets.

use jsonwebtoken::jwk::Jwk;

use super::*;

/// The public half of a key, as a member of a set.
fn member(kid: Option<&str>, alg: Algorithm, key: &EncodingKey) -> Value {
    let jwk = serde_json::to_value(Jwk::from_encoding_key(key, alg).unwrap()).unwrap();
    let mut jwk = jwk.as_object().unwrap().clone();
    jwk.remove("alg");
    jwk.extend(kid.map(|kid| ("kid".to_owned(), kid.into())));
    Value::Object(jwk)
}

fn of(kid: Option<&str>, alg: Algorithm) -> Value {
    member(kid, alg, &private(alg))
}

fn set(keys: &[Value]) -> String {
    json!({ "keys": keys }).to_string()
}

#[test]
fn a_token_is_verified_with_the_key_it_names() {
    use Algorithm::*;
    let other = EncodingKey::from_ec_pem(&read("other.private.pem")).unwrap();
    let jwt = open(set(&[
        of(Some("rsa"), RS256),
        of(Some("ec"), ES256),
        member(Some("old"), ES256, &other),
        of(Some("ec384"), ES384),
        of(Some("ed"), EdDSA),
    ]));
    for (kid, alg) in
        [("rsa", RS256), ("rsa", PS512), ("ec", ES256), ("ec384", ES384), ("ed", EdDSA)]
    {
        assert_eq!(principal_of(&jwt, &with_kid(kid, alg, &private(alg))), Ok(user_7()), "{kid}");
    }
    assert_eq!(principal_of(&jwt, &with_kid("old", ES256, &other)), Ok(user_7()));
    let wrong = "the signature is of another key";
    assert_eq!(principal_of(&jwt, &with_kid("old", ES256, &private(ES256))), Err(wrong));
    let unknown = "no key of the JWKS has this kid and algorithm";
    assert_eq!(principal_of(&jwt, &with_kid("new", ES256, &private(ES256))), Err(unknown));
    assert_eq!(principal_of(&jwt, &with_kid("rsa", ES256, &private(ES256))), Err(unknown));
    assert_eq!(principal_of(&jwt, &with_kid("rsa", HS256, &hs())), Err(unknown));
}

#[test]
fn a_token_without_kid_needs_a_single_key_that_fits() {
    use Algorithm::*;
    let other = EncodingKey::from_ec_pem(&read("other.private.pem")).unwrap();
    let one = open(set(&[of(Some("ec"), ES256), of(Some("rsa"), RS256)]));
    assert_eq!(principal_of(&one, &signed(ES256, &claims())), Ok(user_7()));
    let two = open(set(&[of(Some("ec"), ES256), member(Some("old"), ES256, &other)]));
    let several = "the token has no kid, and several keys fit";
    assert_eq!(principal_of(&two, &signed(ES256, &claims())), Err(several));
    let nameless = open(set(&[of(None, ES256)]));
    assert_eq!(principal_of(&nameless, &signed(ES256, &claims())), Ok(user_7()));
    assert!(principal_of(&nameless, &with_kid("ec", ES256, &private(ES256))).is_err());
}

#[test]
fn a_set_may_narrow_a_key_and_never_widen_it() {
    use Algorithm::*;
    let narrowed = |alg: &str| {
        let mut key = of(Some("rsa"), RS256);
        key["alg"] = alg.into();
        set(&[key])
    };
    let jwt = open(narrowed("RS256"));
    assert_eq!(principal_of(&jwt, &signed(RS256, &claims())), Ok(user_7()));
    assert!(principal_of(&jwt, &signed(RS512, &claims())).is_err());
    for alg in ["HS256", "ES256", "none", "RSA-OAEP"] {
        assert!(refused(narrowed(alg)).contains("no key of the JWKS"), "{alg}");
    }
}

/// Secrets rotate like other keys: the old one beside the new one.
#[test]
fn secrets_have_a_set_of_their_own() {
    let key = |value: &str| json!({ "kty": "oct", "kid": "hs", "k": base64(value) });
    let jwt = open_secret(set(&[key(SECRET)]));
    assert_eq!(principal_of(&jwt, &with_kid("hs", Algorithm::HS256, &hs())), Ok(user_7()));
    assert!(refused_secret(set(&[key("short")])).contains("can be guessed"));
    let public = of(Some("ec"), Algorithm::ES256);
    assert!(refused_secret(set(&[key(SECRET), public.clone()])).contains("jwt:FILE"));
    // Whatever its use is: others may have read it.
    let mut encrypting = key(SECRET);
    encrypting["use"] = "enc".into();
    for secret in [key(SECRET), encrypting] {
        assert!(refused(set(&[public.clone(), secret.clone()])).contains("key 2 of the JWKS"));
        assert!(refused(secret.to_string()).contains("jwt-secret:FILE"));
    }
}

#[test]
fn a_single_key_needs_no_set() {
    let jwt = open(of(Some("ec"), Algorithm::ES256).to_string());
    let es256 = private(Algorithm::ES256);
    assert_eq!(principal_of(&jwt, &with_kid("ec", Algorithm::ES256, &es256)), Ok(user_7()));
    assert!(principal_of(&jwt, &with_kid("other", Algorithm::ES256, &es256)).is_err());
}

#[test]
fn keys_for_another_use_are_ignored() {
    let mut encryption = of(Some("enc"), Algorithm::RS256);
    encryption["use"] = "enc".into();
    let mut wrapping = of(Some("wrap"), Algorithm::RS256);
    wrapping["key_ops"] = json!(["wrapKey"]);
    let foreign = json!({ "kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA" });
    let x25519 = json!({ "kty": "OKP", "crv": "X25519", "x": "AA" });
    let p521 = json!({ "kty": "EC", "crv": "P-521", "x": "AA", "y": "AA" });
    let others = [encryption, wrapping, foreign, x25519, p521, json!({ "kty": "new" })];
    assert!(refused(set(&others)).contains("no key of the JWKS"));
    let jwt = open(set(&[&others[..], &[of(Some("ec"), Algorithm::ES256)]].concat()));
    assert_eq!(principal_of(&jwt, &signed(Algorithm::ES256, &claims())), Ok(user_7()));
}

#[test]
fn a_set_that_cannot_serve_names_the_fix() {
    let mut leaked = of(Some("ec"), Algorithm::ES256);
    leaked["d"] = "AAAA".into();
    assert!(refused(set(&[leaked])).contains("private key"));
    let twice = [of(Some("a"), Algorithm::ES256), of(Some("a"), Algorithm::RS256)];
    assert!(refused(set(&twice)).contains("two keys"));
    for json in ["{}", "[]", "{\"keys\": 7}", "{\"kty\": \"oct\"", "{\"keys\": [7]}"] {
        assert!(refused(json).contains("no JWKS"), "{json}");
    }
    assert!(refused(set(&[])).contains("no key of the JWKS"));
    let short = json!({ "kty": "OKP", "crv": "Ed25519", "x": "AAAA" });
    assert!(refused(set(&[short])).contains("32 bytes"));
    let weak = json!({ "kty": "RSA", "n": of(None, Algorithm::RS256)["n"], "e": "AQ" });
    assert!(refused(set(&[weak])).contains("exponent"));
    let off_curve = json!({ "kty": "EC", "crv": "P-256", "x": "AAAA", "y": "AAAA" });
    assert!(refused(set(&[off_curve])).contains("broken"));
    // What may be a secret is not repeated.
    assert!(!refused("{\"keys\": [\"hunter2\"]}").contains("hunter2"));
}
