mod jwks;

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Mutex,
};

use http::Request;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode, get_current_timestamp};
use semel_service::settings::jwt::JwtKeyKind;
use serde_json::{Value, json};
use tempfile::NamedTempFile;

use super::*;

const SECRET: &str = "c2VjcmV0LXRoYXQtaXMtbG9uZy1lbm91Z2gtZm9yLUhTMjU2";

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/jwt").join(name)
}

fn read(name: &str) -> Vec<u8> {
    fs::read(fixture(name)).unwrap()
}

fn file(content: impl AsRef<[u8]>) -> NamedTempFile {
    let file = NamedTempFile::new().unwrap();
    fs::write(&file, content).unwrap();
    file
}

fn settings(kind: JwtKeyKind, file: impl AsRef<Path>) -> JwtSettings {
    JwtSettings {
        file: file.as_ref().to_owned(),
        kind,
        keys: kind.parse(&fs::read(file).unwrap()).unwrap(),
        issuers: Vec::new(),
        audiences: Vec::new(),
        leeway: Duration::from_secs(60),
    }
}

/// A verifier for `jwt:FILE` with this content.
fn open(content: impl AsRef<[u8]>) -> JwtVerifier {
    JwtVerifier::new(&settings(JwtKeyKind::Public, file(content)))
}

/// A verifier for `jwt-secret:FILE` with this content.
fn open_secret(content: impl AsRef<[u8]>) -> JwtVerifier {
    JwtVerifier::new(&settings(JwtKeyKind::Secret, file(content)))
}

/// The whole text of the error of `jwt:FILE`.
fn refused(content: impl AsRef<[u8]>) -> String {
    format!("{:#}", JwtKeyKind::Public.parse(content.as_ref()).unwrap_err())
}

/// The whole text of the error of `jwt-secret:FILE`.
fn refused_secret(content: impl AsRef<[u8]>) -> String {
    format!("{:#}", JwtKeyKind::Secret.parse(content.as_ref()).unwrap_err())
}

fn hs() -> EncodingKey {
    EncodingKey::from_secret(SECRET.as_bytes())
}

/// The private key that belongs to these algorithms.
fn private(alg: Algorithm) -> EncodingKey {
    use Algorithm::*;
    match alg {
        HS256 | HS384 | HS512 => hs(),
        ES256 => EncodingKey::from_ec_pem(&read("p256.private.pem")).unwrap(),
        ES384 => EncodingKey::from_ec_pem(&read("p384.private.pem")).unwrap(),
        EdDSA => EncodingKey::from_ed_pem(&read("ed25519.private.pem")).unwrap(),
        _ => EncodingKey::from_rsa_pem(&read("rsa.private.pem")).unwrap(),
    }
}

fn claims() -> Value {
    json!({ "iss": "https://id.test", "sub": "user-7", "exp": get_current_timestamp() + 600 })
}

/// The good claims with some of them changed; `null` takes one out.
fn changed(changes: Value) -> Value {
    let mut claims = claims();
    let members = claims.as_object_mut().unwrap();
    for (name, value) in changes.as_object().unwrap() {
        members.insert(name.clone(), value.clone());
    }
    members.retain(|_, value| !value.is_null());
    claims
}

fn signed(alg: Algorithm, claims: &Value) -> String {
    encode(&Header::new(alg), claims, &private(alg)).unwrap()
}

fn with_kid(kid: &str, alg: Algorithm, key: &EncodingKey) -> String {
    encode(&Header { kid: Some(kid.into()), ..Header::new(alg) }, &claims(), key).unwrap()
}

fn parts(headers: &[&str]) -> Parts {
    let request = Request::builder();
    let request =
        headers.iter().fold(request, |request, value| request.header("authorization", *value));
    request.body(()).unwrap().into_parts().0
}

fn principal_of(jwt: &JwtVerifier, token: &str) -> Result<Principal, TokenError> {
    jwt.principal(&parts(&[&format!("Bearer {token}")]))
}

fn user_7() -> Principal {
    Principal::from(r#"["https://id.test","user-7"]"#)
}

/// Base64url without padding, of text.
fn base64(text: &str) -> String {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut out = String::new();
    for chunk in text.as_bytes().chunks(3) {
        let bits =
            (0..3).fold(0_u32, |bits, at| bits << 8 | u32::from(*chunk.get(at).unwrap_or(&0)));
        for at in 0..=chunk.len() {
            out.push(char::from(ALPHABET[(bits >> (18 - 6 * at)) as usize & 63]));
        }
    }
    out
}

#[test]
fn each_algorithm_is_accepted_with_its_key() {
    use Algorithm::*;
    let keys: [(Vec<u8>, &[Algorithm]); 5] = [
        (SECRET.into(), &[HS256, HS384, HS512]),
        (read("rsa.pem"), &[RS256, RS384, RS512, PS256, PS384, PS512]),
        (read("p256.pem"), &[ES256]),
        (read("p384.pem"), &[ES384]),
        (read("ed25519.pem"), &[EdDSA]),
    ];
    let every =
        [HS256, HS384, HS512, RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, EdDSA];
    for (file, own) in keys {
        let jwt = if file == SECRET.as_bytes() { open_secret(file) } else { open(file) };
        for alg in every {
            let result = principal_of(&jwt, &signed(alg, &claims()));
            match own.contains(&alg) {
                true => assert_eq!(result, Ok(user_7()), "{alg:?}"),
                false => assert_eq!(result, Err("another algorithm than the key's"), "{alg:?}"),
            }
        }
    }
}

#[test]
fn a_public_key_is_no_secret() {
    for name in ["rsa.pem", "p256.pem", "ed25519.pem"] {
        let pem = read(name);
        let jwt = open(&pem);
        for secret in [&pem[..], pem.trim_ascii_end()] {
            let key = EncodingKey::from_secret(secret);
            let forged = encode(&Header::new(Algorithm::HS256), &claims(), &key).unwrap();
            assert!(principal_of(&jwt, &forged).is_err(), "{name}");
        }
    }
    // Without its PEM armour, it is no secret either.
    let text = String::from_utf8(read("rsa.pem")).unwrap();
    let bare: String = text.lines().filter(|line| !line.starts_with('-')).collect();
    let ssh = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ user@host";
    let der = [&[0x30, 0x2a][..], &[7; 42]].concat();
    for key in [bare.as_bytes(), ssh.as_bytes(), &der] {
        for error in [refused(key), refused_secret(key)] {
            assert!(error.contains("looks like a public key"), "{error}");
        }
    }
}

/// If a saved error page were accepted as a secret, readers of the page could sign tokens.
#[test]
fn a_file_of_public_keys_is_a_jwks_or_pem_and_nothing_else() {
    let page = "<!DOCTYPE html>\n<html><body><h1>404 Not Found</h1></body></html>\n";
    let text = "upstream connect error or disconnect/reset before headers. reset reason: timeout";
    let token = signed(Algorithm::HS256, &claims());
    for (content, found) in [
        (page, "HTML"),
        ("<html><head><title>x</title></head></html>", "HTML"),
        ("<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code></Error>", "HTML or XML"),
        (text, "80 bytes of something else"),
        (SECRET, "jwt-secret:FILE"),
        (&token, "a token"),
        ("{\"error\": \"not found, and longer than thirty-two bytes\"}", "no JWKS"),
        ("", "empty"),
        (" \n", "empty"),
    ] {
        let error = refused(content);
        assert!(error.contains(found), "{content}: {error}");
        assert!(content.trim().is_empty() || !error.contains(content.trim()), "{error}");
    }
}

#[test]
fn public_text_is_refused_as_a_shared_secret() {
    for (content, found) in [
        (read("p256.pem"), "jwt:FILE"),
        (read("p256.private.pem"), "PEM"),
        (read("certificate.pem"), "PEM"),
        (b"<!DOCTYPE html><html>an error page, longer than 32 bytes</html>".to_vec(), "jwt:FILE"),
        (signed(Algorithm::HS256, &claims()).into_bytes(), "a token"),
        (b"{\"error\": \"not found, and longer than thirty-two bytes\"}".to_vec(), "no JWKS"),
        (TIMEOUT.into(), "white space"),
        (b"HTTP/1.1 502 Bad Gateway\r\nServer: x\r\n\r\n".to_vec(), "an HTTP answer"),
        (b"HTTP/1.1-502-Bad-Gateway-and-thirty-two-bytes".to_vec(), "an HTTP answer"),
        (b"Der Dienst ist nicht verf\xfcgbar (Latin-1)".to_vec(), "white space"),
        (utf_16(&read("p256.pem"), true), "UTF-16"),
        (utf_16(&read("p256.pem"), false), "UTF-16"),
        (b"c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0\nc2VjcmV0c2VjcmV0".to_vec(), "in one line"),
    ] {
        let error = refused_secret(content);
        assert!(error.contains(found), "{found}: {error}");
    }
}

/// The response of a proxy that was saved in place of a file.
const TIMEOUT: &str =
    "upstream connect error or disconnect/reset before headers. reset reason: connection timeout";

fn utf_16(ascii: &[u8], mark: bool) -> Vec<u8> {
    let mark: &[u8] = if mark { &[0xff, 0xfe] } else { &[] };
    mark.iter().copied().chain(ascii.iter().flat_map(|byte| [*byte, 0])).collect()
}

#[test]
fn a_random_secret_is_accepted_as_base64_hex_or_raw_bytes() {
    let base64 = "4Zbq0G3uKv+E0Bz5sVqkq1gQn9o/7pWJ1dPq8xk2Yb6fS3mWcH5tRj0LwUeXaN==";
    let raw: Vec<u8> = (0..48).map(|n: u8| n.wrapping_mul(151)).collect();
    for good in
        [base64.as_bytes(), format!("{base64}\n").as_bytes(), "0f".repeat(32).as_bytes(), &raw]
    {
        JwtKeyKind::Secret.parse(good).unwrap();
    }
}

#[test]
fn keys_are_replaced_and_no_token_of_the_former_is_remembered() {
    let jwt = open(read("p256.pem"));
    let (old, new) = (signed(Algorithm::ES256, &claims()), signed(Algorithm::EdDSA, &claims()));
    assert_eq!(principal_of(&jwt, &old), Ok(user_7()));
    assert!(principal_of(&jwt, &new).is_err());
    jwt.clone().replace(JwtKeyKind::Public.parse(&read("ed25519.pem")).unwrap());
    assert_eq!(principal_of(&jwt, &new), Ok(user_7()));
    assert_eq!(principal_of(&jwt, &old), Err("another algorithm than the key's"));
    // What tokens must claim stays as it was.
    let expired = signed(Algorithm::EdDSA, &changed(json!({ "exp": 1 })));
    assert_eq!(principal_of(&jwt, &expired), Err("the token has expired"));
}

#[test]
fn unsigned_tokens_are_refused() {
    let jwt = open_secret(SECRET);
    for alg in ["none", "None", "NONE", "nOnE", "", "HS1"] {
        let header = base64(&json!({ "alg": alg, "typ": "JWT" }).to_string());
        let body = base64(&claims().to_string());
        for token in [format!("{header}.{body}."), format!("{header}.{body}")] {
            assert!(principal_of(&jwt, &token).is_err(), "{alg}");
        }
    }
    let token = signed(Algorithm::HS256, &claims());
    let unsigned = token.rsplit_once('.').unwrap().0;
    assert!(principal_of(&jwt, &format!("{unsigned}.")).is_err());
}

#[test]
fn a_key_inside_the_token_is_not_trusted() {
    let jwt = open(read("p256.pem"));
    let other = EncodingKey::from_ec_pem(&read("other.private.pem")).unwrap();
    let mut header = Header::new(Algorithm::ES256);
    let jwk = jsonwebtoken::jwk::Jwk::from_encoding_key(&other, Algorithm::ES256).unwrap();
    header.jwk = Some(jwk);
    header.jku = Some("https://evil.test/keys".into());
    let forged = encode(&header, &claims(), &other).unwrap();
    assert_eq!(principal_of(&jwt, &forged), Err("the signature is of another key"));
}

#[test]
fn another_key_or_changed_claims_are_refused() {
    let jwt = open_secret(SECRET);
    let key = EncodingKey::from_secret(b"another secret of more than 32 bytes..");
    let token = encode(&Header::new(Algorithm::HS256), &claims(), &key).unwrap();
    assert_eq!(principal_of(&jwt, &token), Err("the signature is of another key"));

    let token = signed(Algorithm::HS256, &claims());
    let [header, _, signature] = token.split('.').collect::<Vec<_>>()[..] else { panic!() };
    let body = base64(&changed(json!({ "sub": "root" })).to_string());
    let forged = format!("{header}.{body}.{signature}");
    assert_eq!(principal_of(&jwt, &forged), Err("the signature is of another key"));
}

#[test]
fn time_counts_with_leeway() {
    let jwt = open_secret(SECRET);
    let now = get_current_timestamp();
    let cases = [
        (json!({ "exp": now - 30 }), None),
        (json!({ "exp": now - 90 }), Some("the token has expired")),
        (json!({ "exp": 0 }), Some("the token has expired")),
        (json!({ "nbf": now + 30 }), None),
        (json!({ "nbf": now + 600 }), Some("the token is not valid yet")),
        (json!({ "nbf": now - 600 }), None),
    ];
    for (changes, refusal) in cases {
        let result = principal_of(&jwt, &signed(Algorithm::HS256, &changed(changes.clone())));
        assert_eq!(result.err(), refusal, "{changes}");
    }
    let text = signed(Algorithm::HS256, &changed(json!({ "nbf": "tomorrow" })));
    assert!(principal_of(&jwt, &text).is_err());
}

#[test]
fn a_token_that_was_good_is_refused_once_it_has_expired() {
    let file = file(SECRET);
    let jwt = JwtVerifier::new(&JwtSettings {
        leeway: Duration::ZERO,
        ..settings(JwtKeyKind::Secret, &file)
    });
    let token = signed(Algorithm::HS256, &changed(json!({ "exp": get_current_timestamp() + 2 })));
    assert_eq!(principal_of(&jwt, &token), Ok(user_7()));
    assert!(jwt.0.verified.find(&token).is_some(), "it is not verified twice");
    let expired = Err("the token has expired");
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while principal_of(&jwt, &token) != expired {
        assert!(std::time::Instant::now() < deadline, "a remembered token expires");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_refused_token_is_not_remembered() {
    let jwt = open_secret(SECRET);
    let forged = format!("{}x", signed(Algorithm::HS256, &claims()));
    for _ in 0..2 {
        assert!(principal_of(&jwt, &forged).is_err());
        assert!(jwt.0.verified.find(&forged).is_none());
    }
}

#[test]
fn a_claim_that_is_missing_or_odd_is_refused() {
    let jwt = open_secret(SECRET);
    let odd = [
        json!({ "exp": null }),
        json!({ "exp": "soon" }),
        json!({ "exp": -1 }),
        json!({ "iss": null }),
        json!({ "iss": "" }),
        json!({ "iss": 7 }),
        json!({ "iss": ["https://id.test"] }),
        json!({ "sub": null }),
        json!({ "sub": "" }),
        json!({ "sub": 7 }),
        json!({ "sub": "a\u{0}b" }),
        json!({ "sub": "a\u{7f}b" }),
        json!({ "sub": "x".repeat(Principal::MAX_BYTES) }),
    ];
    for changes in odd {
        assert!(
            principal_of(&jwt, &signed(Algorithm::HS256, &changed(changes.clone()))).is_err(),
            "{changes}"
        );
    }
}

#[test]
fn issuer_and_audience_are_checked_when_configured() {
    let file = file(SECRET);
    let strict = JwtVerifier::new(&JwtSettings {
        issuers: vec!["https://id.test".into(), "https://second.test".into()],
        audiences: vec!["payments".into()],
        ..settings(JwtKeyKind::Secret, &file)
    });
    let good = json!({ "aud": "payments" });
    let cases = [
        (good, None),
        (json!({ "aud": ["orders", "payments"] }), None),
        (json!({ "aud": "payments", "iss": "https://second.test" }), None),
        (json!({ "aud": "payments", "iss": "https://id.test.evil" }), Some("another issuer")),
        (json!({ "aud": "orders" }), Some("another audience")),
        (json!({ "aud": [] }), Some("another audience")),
        (json!({}), Some("aud is missing or no text")),
    ];
    for (changes, refusal) in cases {
        let result = principal_of(&strict, &signed(Algorithm::HS256, &changed(changes.clone())));
        assert_eq!(result.err(), refusal, "{changes}");
    }
    let token = signed(Algorithm::HS256, &changed(json!({ "aud": "anybody" })));
    assert_eq!(principal_of(&open_secret(SECRET), &token), Ok(user_7()));
}

#[test]
fn two_pairs_never_share_a_name() {
    let jwt = open_secret(SECRET);
    let pairs =
        [("a", "bc"), ("ab", "c"), ("a\",\"b", "c"), ("a", "b\",\"c"), ("a\\", "bc"), ("a|b", "c")];
    let names: std::collections::HashSet<_> = pairs
        .map(|(iss, sub)| {
            let token = signed(Algorithm::HS256, &changed(json!({ "iss": iss, "sub": sub })));
            let Principal::Named(name) = principal_of(&jwt, &token).unwrap() else {
                panic!("not named")
            };
            name
        })
        .into();
    assert_eq!(names.len(), pairs.len());
}

#[test]
fn only_one_bearer_token_is_taken() {
    let jwt = open_secret(SECRET);
    let token = signed(Algorithm::HS256, &claims());
    let extract = |headers: &[&str]| jwt.extract(&parts(headers));
    for scheme in ["Bearer", "bearer", "BEARER", "Bearer  "] {
        assert_eq!(extract(&[&format!("{scheme} {token}")]), Some(user_7()));
    }
    let bearer = format!("Bearer {token}");
    assert_eq!(extract(&[]), None);
    assert_eq!(extract(&[&bearer, &bearer]), None);
    assert_eq!(extract(&[&bearer, "Basic eDp5"]), None);
    for other in
        ["", "Bearer", "Bearer ", &token, &format!("Basic {token}"), &format!("{bearer} x")]
    {
        assert_eq!(extract(&[other]), None, "{other}");
    }
}

#[test]
fn junk_is_refused() {
    let jwt = open_secret(SECRET);
    let long = "x".repeat(JwtVerifier::MAX_BYTES + 1);
    for junk in ["a", "a.b", "a.b.c", "..", "....", "ä.b.c", "e30.e30.e30", &long] {
        assert!(principal_of(&jwt, junk).is_err(), "{junk}");
    }
    let mut header = Header::new(Algorithm::HS256);
    header.crit = Some(vec!["b64".into()]);
    let token = encode(&header, &claims(), &hs()).unwrap();
    assert_eq!(principal_of(&jwt, &token), Err("the token demands an extension (crit)"));
}

/// What `work` logs.
fn logged(work: impl FnOnce()) -> String {
    #[derive(Clone, Default)]
    struct CapturedLines(Arc<Mutex<Vec<u8>>>);
    impl io::Write for CapturedLines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let lines = CapturedLines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, work);
    String::from_utf8(lines.0.lock().unwrap().clone()).unwrap()
}

#[test]
fn a_refusal_is_logged_without_the_token() {
    let jwt = open_secret(SECRET);
    let token = signed(Algorithm::HS256, &changed(json!({ "exp": 1, "sub": ["hunter2"] })));
    let expired = signed(Algorithm::HS256, &changed(json!({ "exp": 1, "sub": "hunter2" })));
    for (token, reason) in [(token, "a claim is not as it should be"), (expired, "has expired")] {
        let refused = || assert_eq!(jwt.extract(&parts(&[&format!("Bearer {token}")])), None);
        let text = logged(refused);
        assert!(text.contains("INFO") && text.contains(reason), "{text}");
        assert!(token.split('.').all(|part| !text.contains(part)), "{text}");
        assert!(!text.contains("hunter2") && !text.contains("id.test"), "{text}");
    }
}

#[test]
fn a_key_file_that_cannot_serve_names_the_fix() {
    let private = ["rsa", "p256", "p384", "ed25519"].map(|key| read(&format!("{key}.private.pem")));
    for key in private {
        assert!(refused(key).contains("-pubout"));
    }
    let both = [read("p256.pem"), read("p256.private.pem")].concat();
    assert!(refused(both).contains("private key"));
    assert!(refused(read("certificate.pem")).contains("openssl x509"));
    assert!(refused([read("p256.pem"), read("rsa.pem")].concat()).contains("JWKS"));
    assert!(refused(read("rsa1024.pem")).contains("1024 bits"));
    for curve in ["p521.pem", "secp256k1.pem"] {
        assert!(refused(read(curve)).contains("P-256, P-384"), "{curve}");
    }
    assert!(
        refused("-----BEGIN PUBLIC KEY-----\nnonsense\n-----END PUBLIC KEY-----").contains("read")
    );
    assert!(refused_secret("short").contains("openssl rand"));
    assert!(refused_secret("").contains("0 bytes"));
}

#[test]
fn one_newline_at_the_end_is_not_part_of_the_secret() {
    let token = signed(Algorithm::HS256, &claims());
    assert!(principal_of(&open_secret(format!("{SECRET}\n")), &token).is_ok());
    assert!(principal_of(&open_secret(format!("{SECRET}\r\n")), &token).is_ok());
    assert!(refused_secret(format!("{SECRET}\n\n")).contains("white space"));
    assert!(refused_secret(format!("{}\n", "x".repeat(31))).contains("31 bytes"));
}
