//! Upstreams and routes.

use super::*;

#[test]
fn upstreams_have_names() {
    let config = good(
        "[upstreams.billing]\nurl = 'http://b:1/v1/'\npreserve_host = true\n[upstreams.a]\nurl = 'http://a'",
    );
    let names: Vec<_> = config.upstreams.iter().map(|upstream| upstream.name.as_str()).collect();
    assert_eq!(names, ["default", "a", "billing"]);
    assert!(config.upstreams[2].preserve_host && config.upstreams[2].base == "/v1");

    // The default one may be written at length, and its url overridden.
    let long =
        "principal = 'anonymous'\n[upstreams.default]\nurl = 'http://a'\npreserve_host = true";
    let config = load(long, &[]).unwrap();
    assert!(config.default_upstream == Some(0) && config.upstreams[0].preserve_host);
    let config = load(long, &["--upstream=http://b"]).unwrap();
    assert!(config.upstreams[0].authority.as_str() == "b" && config.upstreams[0].preserve_host);

    for (text, expected) in [
        ("[upstreams.b]", "semel.toml:3:12: upstreams.b: has no url"),
        (
            "[upstreams]\nb = 1\n[[routes]]\nmatch = '/a'\nupstream = 'b'",
            "semel.toml:4:5: upstreams.b: is a TOML integer",
        ),
        ("[upstreams.b]\nurl = 5", "semel.toml:4:7: upstreams.b.url: not text"),
        (
            "[upstreams.b]\nurl = 'b:1'",
            "semel.toml:4:1: upstreams.b.url: does not start with http://",
        ),
        ("[upstreams.default]\nurl = 'http://b'", "semel.toml:1:1: upstream: is set beside"),
    ] {
        let problem = problem(text, &[]);
        assert!(problem.starts_with(expected), "{problem}");
    }
}

#[test]
fn routes_take_the_policy_of_all_and_their_own() {
    let config = good(
        "require_key = true\nretention = '2h'\n[upstreams.b]\nurl = 'http://b'\n\
         [[routes]]\nmatch = 'POST /refunds/{id}'\nupstream = 'b'\npreset = 'financial'\n\
         [[routes]]\nmatch = '/files/{*path}'\nupstream = 'b'\n\
         [[routes]]\nmatch = 'GET /quotes'\nlease = '5s'\n\
         [[routes]]\nmatch = 'GET /plain'\n\
         [[routes]]\nmatch = 'PURGE /plain'",
    );
    let [refunds, files, quotes, plain, purge] = &config.routes[..] else { panic!() };
    assert_eq!((refunds.method.clone(), refunds.upstream), (Some(http::Method::POST), Some(1)));
    let expected = RoutePolicy::financial().require_key();
    assert_eq!(format!("{:?}", refunds.policy.as_ref().unwrap()), format!("{expected:?}"));
    // Routing only: protected like every path.
    assert!(files.method.is_none() && files.policy.is_none() && files.template == "/files/{*path}");
    // A safe method is protected if its route sets a policy.
    assert!(quotes.policy.is_some() && quotes.upstream.is_none() && plain.policy.is_none());
    // The layer protects an unusual method only by name.
    assert_eq!(format!("{:?}", purge.policy.as_ref().unwrap()), format!("{:?}", config.policy));
}

#[test]
fn a_bad_route_is_reported_with_its_line() {
    for (text, expected) in [
        ("[[routes]]\nlease = '1s'", "semel.toml:3:1: the route has no match; add match ="),
        (
            "[[routes]]\nmatch = 'post /a'",
            "semel.toml:4:9: match: methods are in capitals; write POST",
        ),
        ("[[routes]]\nmatch = '/a'\nlease = '1ms'", "semel.toml:5:1: lease: is 1ms; it must be"),
        (
            "[[routes]]\nmatch = '/a'\nupstream = 'b'",
            "semel.toml:5:1: there is no upstream \"b\"; add a section",
        ),
        (
            "[upstreams.billing]\nurl = 'http://b'\n[[routes]]\nmatch = '/a'\nupstream = 'biling'",
            "semel.toml:7:1: there is no upstream \"biling\"; did you mean \"billing\"?",
        ),
        (
            "[[routes]]\nmatch = 'POST /a'\n[[routes]]\nmatch = 'POST /a'",
            "semel.toml:6:1: the route POST /a is there twice; remove one",
        ),
        (
            "[[routes]]\nmatch = 'POST /a/{id}'\n[[routes]]\nmatch = 'GET /a/{name}'",
            "semel.toml:6:1: /a/{name} and /a/{id} match the same paths",
        ),
        ("[[routes]]\nmatch = '/a/{*rest}/b'", "semel.toml:4:1: {*name} stands for the rest"),
        ("[[routes]]\nmatch = '/a/{id}{b}'", "semel.toml:4:1: a segment has one parameter"),
        ("[[routes]]\nmatch = '/a/{}'", "semel.toml:4:1: "),
        ("[[routes]]\nmatch = '/a/{id'", "semel.toml:4:1: "),
    ] {
        let problem = problem(text, &[]);
        assert!(problem.starts_with(expected), "{text}: {problem}");
    }
    good("[[routes]]\nmatch = 'POST /a'\n[[routes]]\nmatch = 'GET /a'\n[[routes]]\nmatch = '/a'");
}

#[test]
fn a_route_needs_an_upstream_from_somewhere() {
    let routes =
        "principal = 'anonymous'\n[upstreams.b]\nurl = 'http://b'\n[[routes]]\nmatch = '/a'\n";
    let config = load(&format!("{routes}upstream = 'b'"), &[]).unwrap();
    assert!(config.default_upstream.is_none() && config.routes[0].upstream == Some(0));
    let problems = load(routes, &[]).unwrap_err();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].starts_with("semel.toml:4:1: the route has no upstream"), "{problems:?}");
}
