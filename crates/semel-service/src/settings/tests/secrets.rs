//! Tokens, secrets and files with keys.

use super::*;

#[test]
fn a_public_admin_listener_needs_a_token() {
    let public = problem("", &["--admin=0.0.0.0:9090"]);
    assert!(public.starts_with("--admin: 0.0.0.0:9090 is not on loopback"), "{public}");
    assert!(public.contains("SEMEL_ADMIN_TOKEN") && public.contains("127.0.0.1:9090"), "{public}");
    for loopback in ["127.0.0.1:1", "127.8.8.8:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
        let config = load(LEAST, &["--admin", loopback]).unwrap();
        assert!(config.admin.unwrap().token.is_none(), "{loopback}");
    }
    let config = load(LEAST, &["--admin=0.0.0.0:1", "--admin-token=0123456789abcdef"]).unwrap();
    assert!(config.admin.as_ref().unwrap().token.as_ref().unwrap().is(b"0123456789abcdef"));
    assert!(!shown(&config).contains("0123456789abcdef"));
    assert!(
        problem("", &["--admin=0.0.0.0:1", "--admin-token="])
            .starts_with("--admin-token: the token")
    );
    let short = ["--admin=0.0.0.0:1", "--admin-token=0123456789abcde"];
    let short = problem("", &short);
    assert!(short.starts_with("--admin-token: the token is shorter than 16"), "{short}");
    assert!(load(LEAST, &["--admin=127.0.0.1:1", "--admin-token=short"]).is_ok());
    let config = load(LEAST, &["--admin-token=0123456789abcdef"]).unwrap();
    assert!(
        config.admin.is_none() && config.warnings[0].contains("set --admin"),
        "{:?}",
        config.warnings
    );
}

#[test]
fn secrets_come_from_files() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    // A secret may be any bytes.
    fs::write(path("hash"), b"0123456789abcdef-\xff\n").unwrap();
    fs::write(path("token"), "0123456789abcdef-token\n").unwrap();
    fs::write(path("empty"), "\n").unwrap();
    let file = |text: String| fs::write(path(FILE), format!("{LEAST}{text}")).unwrap();

    let admin = "[admin]\nlisten = '0.0.0.0:1'\ntoken_file";
    file(format!("hash_secret_file = {:?}\n{admin} = {:?}", path("hash"), path("token")));
    let config = load_in(&folder, &[]).unwrap();
    let secret = semel::HashSecret::from_bytes(b"0123456789abcdef-\xff").unwrap();
    assert_eq!(config.store_options.hash_secret, Some(secret));
    assert!(config.admin.unwrap().token.unwrap().is(b"0123456789abcdef-token"));
    let config = load_in(&folder, &["--admin-token=from-the-command-line"]).unwrap();
    assert!(config.admin.unwrap().token.unwrap().is(b"from-the-command-line"));

    file(format!("hash_secret_file = {:?}\n{admin} = {:?}", path("no"), path("empty")));
    let problems = load_in(&folder, &[]).unwrap_err();
    assert!(
        problems[0].starts_with("semel.toml:3:1: hash_secret_file: no does not exist"),
        "{problems:?}"
    );
    assert!(
        problems[1].starts_with("semel.toml:6:1: admin.token_file: the token is empty"),
        "{problems:?}"
    );

    file(format!("{admin} = {:?}\ntoken = '0123456789abcdef'", path("token")));
    let problems = load_in(&folder, &[]).unwrap_err();
    assert_eq!(
        problems,
        ["semel.toml:5:1: admin.token_file: is set beside token; keep one of them"]
    );
}

#[test]
fn a_jwt_principal_has_a_file_that_is_there() {
    let folder = TempDir::new().unwrap();
    let keys = folder.path().join("keys.json");
    let principal = format!("jwt:{}", keys.display());
    let jwt = "[jwt]\nissuers = ['a']\naudiences = ['b', 'c']\nleeway = '5s'";
    fs::write(folder.path().join(FILE), format!("{LEAST}{jwt}")).unwrap();
    let problems = load_in(&folder, &["--principal", &principal]).unwrap_err();
    assert!(
        problems[0].starts_with("--principal: keys.json does not exist; name the file"),
        "{problems:?}"
    );

    fs::create_dir(&keys).unwrap();
    let problems = load_in(&folder, &["--principal", &principal]).unwrap_err();
    assert!(problems[0].starts_with("--principal: keys.json is a folder"), "{problems:?}");
    fs::remove_dir(&keys).unwrap();
    fs::write(&keys, "{}").unwrap();
    let problems = load_in(&folder, &["--principal", &principal]).unwrap_err();
    assert!(problems[0].starts_with("--principal: keys.json: this is JSON"), "{problems:?}");
    fs::write(&keys, "x".repeat(2 << 20)).unwrap();
    let problems = load_in(&folder, &["--principal", &principal]).unwrap_err();
    assert!(problems[0].starts_with("--principal: keys.json has more than 1 MiB"), "{problems:?}");
    fs::write(&keys, "c2VjcmV0LXRoYXQtaXMtbG9uZy1lbm91Z2gtZm9yLUhTMjU2").unwrap();
    let problems = load_in(&folder, &["--principal", &principal]).unwrap_err();
    assert!(problems[0].contains("jwt-secret:FILE"), "{problems:?}");
    let principal = format!("jwt-secret:{}", keys.display());
    let config = load_in(&folder, &["--principal", &principal]).unwrap();
    let PrincipalSource::Jwt(settings) = config.principal else { panic!("{:?}", config.principal) };
    assert_eq!((settings.file, settings.leeway), (keys, Duration::from_secs(5)));
    assert_eq!(
        (settings.issuers, settings.audiences),
        (vec!["a".into()], vec!["b".into(), "c".into()])
    );
    assert!(config.warnings.is_empty());
    for (leeway, word) in [("2h", "at most 1h"), ("1500ms", "whole seconds")] {
        let jwt = format!("{LEAST}[jwt]\nleeway = '{leeway}'");
        fs::write(folder.path().join(FILE), jwt).unwrap();
        let problems = load_in(&folder, &["--principal", &principal]).unwrap_err();
        assert!(problems[0].starts_with("semel.toml:4:1: jwt.leeway: "), "{problems:?}");
        assert!(problems[0].contains(word), "{problems:?}");
    }
    // Elsewhere they do nothing.
    fs::write(folder.path().join(FILE), format!("{LEAST}{jwt}")).unwrap();
    assert!(load_in(&folder, &[]).unwrap().warnings[0].contains("[jwt]"));
}
