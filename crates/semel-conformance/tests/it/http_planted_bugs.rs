//! Tests of the HTTP suite: a target with a planted bug fails the case for that bug, and passes it without the bug.

use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
};

use crate::flawed_layer::{FlawedTarget, HttpFlaw};
use semel_conformance::{
    Promise,
    http::{ALL, HttpCase},
    sources::SourcePromise,
};
use tokio::runtime::Runtime;

/// A target with this bug fails this case.
const CAUGHT: [(HttpFlaw, &str); 15] = [
    (HttpFlaw::ProtectsNothing, "replay::a_retry_is_replayed_byte_for_byte"),
    (HttpFlaw::ProtectsNothing, "running::a_hang_up_does_not_end_the_work"),
    (HttpFlaw::ClaimsNothing, "running::one_of_many_runs"),
    (HttpFlaw::ClaimsNothing, "running::waiters_share_a_failure"),
    (HttpFlaw::LeavesThePrincipalOut, "scope::another_principal_has_its_own_outcome"),
    (HttpFlaw::LowersKeys, "keys::keys_are_case_sensitive"),
    (HttpFlaw::IgnoresTheBody, "fingerprint::another_body_is_refused"),
    (HttpFlaw::ComparesSizedBodiesOnly, "fingerprint::chunked_bodies_are_compared"),
    (HttpFlaw::ReplaysCookies, "headers::cookies_are_for_the_first_caller"),
    (HttpFlaw::KeepsTheLastOfRepeatedHeaders, "headers::repeated_headers_are_replayed"),
    (HttpFlaw::ReadsBodiesAsText, "replay::a_binary_body_is_replayed"),
    (HttpFlaw::RunsAgainOnEmptyBodies, "replay::an_empty_body_is_replayed"),
    (HttpFlaw::KeepsServerErrors, "verdicts::server_errors_run_again"),
    (HttpFlaw::DropsTheWorkOnHangUp, "running::a_hang_up_does_not_end_the_work"),
    (HttpFlaw::RecordsItsOwnAnswers, "fingerprint::another_query_is_refused"),
];

fn named(name: &str) -> HttpCase {
    *ALL.iter().find(|case| case.name() == name).unwrap_or_else(|| panic!("no case {name}"))
}

fn passes(flaw: HttpFlaw, name: &str) -> bool {
    let run = || {
        Runtime::new().unwrap().block_on(async {
            let target = FlawedTarget::open(flaw).await;
            named(name).check(&target).await;
        })
    };
    catch_unwind(AssertUnwindSafe(run)).is_ok()
}

#[test]
fn every_planted_bug_fails_its_case() {
    for (flaw, name) in CAUGHT {
        assert!(!passes(flaw, name), "{name} does not find the bug {flaw:?}");
    }
}

#[test]
fn a_target_without_the_bug_passes_the_case() {
    for (_, name) in CAUGHT {
        assert!(passes(HttpFlaw::None, name), "{name} fails a target without a bug");
    }
}

/// Cases that an upstream without a layer passes.
const NEEDS_NO_LAYER: [&str; 9] = [
    "scope::equal_bodies_under_two_keys_both_run",
    "scope::safe_methods_pass",
    "keys::a_request_without_key_passes",
    "verdicts::answers_without_effect_free_the_key",
    "streams::a_stream_passes_while_it_runs",
    "streams::a_broken_body_is_not_recorded",
    "modes::off_mode_changes_nothing",
    "request::the_handler_gets_the_request_as_sent",
    "request::request_trailers_reach_the_handler",
];

#[test]
fn an_upstream_without_a_layer_passes_only_the_cases_that_need_none() {
    Runtime::new().unwrap().block_on(async {
        let target = FlawedTarget::bare().await;
        let report = semel_conformance::http(&target).await;
        let kept: Vec<_> = report.kept.iter().map(HttpCase::name).collect();
        for name in NEEDS_NO_LAYER {
            assert!(kept.contains(&name), "{name} needs a layer: {report}");
        }
        assert!(report.broken.len() > kept.len(), "most cases need a layer: {report}");
        assert_eq!(report.not_shown.len(), 4, "what cannot be shown is reported: {report}");
    });
}

#[test]
fn the_list_names_every_case() {
    let sources =
        std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/http/cases")).unwrap();
    let sources = sources.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
    let written: usize = sources.map(|text| text.matches("\npub(super) async fn ").count()).sum();
    assert_eq!(ALL.len(), written);
}

const PEERS: &str = include_str!("../../../../docs/PEERS.md");

/// The names in backticks that begin with `kind`.
fn named_in_peers(kind: &str) -> BTreeSet<&'static str> {
    PEERS.split('`').filter_map(|word| word.strip_prefix(kind)).collect()
}

#[test]
fn every_name_on_the_peers_page_exists() {
    let cases: BTreeSet<_> = ALL.iter().map(HttpCase::name).collect();
    let promises: BTreeSet<_> = semel_conformance::ALL.iter().map(Promise::name).collect();
    let unknown = |named: &BTreeSet<_>, known: &BTreeSet<_>| {
        named.difference(known).copied().collect::<Vec<&str>>()
    };
    let of_sources: BTreeSet<_> =
        semel_conformance::sources::ALL.iter().map(SourcePromise::name).collect();
    let (http, store) = (named_in_peers("http:"), named_in_peers("store:"));
    let source = named_in_peers("source:");
    let is_named = [&http, &store, &source].iter().all(|named| !named.is_empty());
    assert!(is_named, "the page names cases and promises");
    assert_eq!(unknown(&http, &cases), [""; 0], "no such case");
    assert_eq!(unknown(&store, &promises), [""; 0], "no such promise");
    assert_eq!(unknown(&source, &of_sources), [""; 0], "no such promise of a source");
}

#[test]
fn every_peer_in_a_case_is_on_the_page() {
    let named = named_in_peers("http:");
    for case in ALL.iter().filter(|case| !case.peers().is_empty()) {
        assert!(named.contains(case.name()), "docs/PEERS.md leaves out {case:?}");
        for bug in case.peers() {
            let (peer, _) = bug.split_once(": ").unwrap();
            let known = peer.split(" and ").any(|peer| PEERS.contains(peer));
            assert!(known, "docs/PEERS.md leaves out {peer}");
        }
    }
}

#[test]
fn every_case_on_the_page_names_its_peers() {
    for name in named_in_peers("http:") {
        assert!(!named(name).peers().is_empty(), "{name} is on the page and names no peer");
    }
}
