//! docs/semel.toml is right and complete.

use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::settings::field_names::fields_of;

/// docs/semel.toml, which people copy.
const EXAMPLE: &str = include_str!("../../../../../docs/semel.toml");

#[test]
fn the_example_is_the_defaults() {
    let example = load(EXAMPLE, &[]).unwrap();
    assert_eq!(shown(&example), shown(&good("")));
}

#[test]
fn the_example_is_valid_with_every_setting_and_has_all_of_them() {
    let everything: String = EXAMPLE
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(setting) if setting.starts_with(|c: char| c == '[' || c.is_ascii_lowercase()) => {
                setting
            }
            _ => line,
        })
        .filter(|line| !line.starts_with("token ="))
        // Not with a folder, and not together.
        .filter(|line| !["front", "failover", "allow"].iter().any(|it| line.starts_with(it)))
        .map(|line| format!("{line}\n"))
        .collect();
    let folder = TempDir::new().unwrap();
    let secret = folder.path().join("secret");
    fs::write(&secret, "0123456789abcdef").unwrap();
    let secret = secret.to_str().unwrap();
    let everything = everything.replace("\"hash-secret\"", &format!("{secret:?}"));
    let everything = everything.replace("\"admin-token\"", &format!("{secret:?}"));
    let keys = folder.path().join("keys");
    fs::write(&keys, &*semel::SealKey::random("a").unwrap().line()).unwrap();
    fs::set_permissions(&keys, fs::Permissions::from_mode(0o600)).unwrap();
    let everything = everything.replace("\"seal-keys\"", &format!("{:?}", keys.to_str().unwrap()));
    let config = load(&everything, &[]).unwrap();
    assert_eq!((config.upstreams.len(), config.routes.len()), (2, 1));

    let sections = [
        fields_of::<raw::GatewayFields>(),
        fields_of::<store::StoreFields>(),
        fields_of::<policy::PolicyFields>(),
        fields_of::<raw::TimeoutFields>(),
        fields_of::<raw::ClientFields>(),
        fields_of::<raw::AdminFields>(),
        fields_of::<raw::JwtFields>(),
        fields_of::<raw::LogFields>(),
        fields_of::<raw::UpstreamFields>(),
        fields_of::<raw::RouteTarget>(),
    ];
    for field in sections.concat() {
        let written = |line: &str| line.trim_start_matches('#').starts_with(&format!("{field} = "));
        assert!(EXAMPLE.lines().any(written), "{field}");
    }
}
