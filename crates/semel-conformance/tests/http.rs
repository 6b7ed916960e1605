//! The HTTP kit is tested: every flawed door fails the case that is about its flaw, and passes it
//! without the flaw.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod flawed;

use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
};

use flawed::{Flaw, Flawed};
use semel_conformance::{
    Promise,
    http::{ALL, HttpCase},
};
use tokio::runtime::Runtime;

/// A door with this flaw fails this case.
const CAUGHT: [(Flaw, &str); 15] = [
    (Flaw::GuardsNothing, "replay::a_retry_is_replayed_byte_for_byte"),
    (Flaw::GuardsNothing, "running::a_hang_up_does_not_end_the_work"),
    (Flaw::ClaimsNothing, "running::one_of_many_runs"),
    (Flaw::ClaimsNothing, "running::waiters_share_a_failure"),
    (Flaw::LeavesThePrincipalOut, "scope::another_principal_has_its_own_outcome"),
    (Flaw::LowersKeys, "keys::keys_are_case_sensitive"),
    (Flaw::IgnoresTheBody, "fingerprint::another_body_is_refused"),
    (Flaw::ComparesSizedBodiesOnly, "fingerprint::chunked_bodies_are_compared"),
    (Flaw::ReplaysCookies, "headers::cookies_are_for_the_first_caller"),
    (Flaw::KeepsTheLastOfRepeatedHeaders, "headers::repeated_headers_are_replayed"),
    (Flaw::ReadsBodiesAsText, "replay::a_binary_body_is_replayed"),
    (Flaw::RunsAgainOnEmptyBodies, "replay::an_empty_body_is_replayed"),
    (Flaw::KeepsServerErrors, "verdicts::server_errors_run_again"),
    (Flaw::DropsTheWorkOnHangUp, "running::a_hang_up_does_not_end_the_work"),
    (Flaw::RecordsItsOwnAnswers, "fingerprint::another_query_is_refused"),
];

fn named(name: &str) -> HttpCase {
    *ALL.iter().find(|case| case.name() == name).unwrap_or_else(|| panic!("no case {name}"))
}

fn passes(flaw: Flaw, name: &str) -> bool {
    let run = || {
        Runtime::new().unwrap().block_on(async {
            let target = Flawed::open(flaw).await;
            named(name).check(&target).await;
        })
    };
    catch_unwind(AssertUnwindSafe(run)).is_ok()
}

#[test]
fn every_flawed_door_fails_its_case() {
    for (flaw, name) in CAUGHT {
        assert!(!passes(flaw, name), "{name} does not see that a door {flaw:?}");
    }
}

#[test]
fn a_door_without_that_flaw_passes_it() {
    for (_, name) in CAUGHT {
        assert!(passes(Flaw::None, name), "{name} fails a door that has no flaw");
    }
}

/// What a door without any guard keeps by itself.
const NEEDS_NO_GUARD: [&str; 9] = [
    "scope::equal_bodies_under_two_keys_both_run",
    "scope::safe_methods_pass",
    "keys::a_request_without_key_passes",
    "verdicts::answers_without_effect_free_the_key",
    "streams::a_stream_passes_while_it_runs",
    "streams::a_broken_body_is_not_recorded",
    "modes::off_never_interferes",
    "request::the_handler_gets_the_request_as_sent",
    "request::request_trailers_reach_the_handler",
];

#[test]
fn no_door_at_all_passes_what_needs_no_guard() {
    Runtime::new().unwrap().block_on(async {
        let target = Flawed::bare().await;
        let report = semel_conformance::http(&target).await;
        let kept: Vec<_> = report.kept.iter().map(HttpCase::name).collect();
        for name in NEEDS_NO_GUARD {
            assert!(kept.contains(&name), "{name} asks for a guard: {report}");
        }
        assert!(report.broken.len() > kept.len(), "most cases ask for a guard: {report}");
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

const PEERS: &str = include_str!("../../../docs/PEERS.md");

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
    let (http, store) = (named_in_peers("http:"), named_in_peers("store:"));
    assert!(!http.is_empty() && !store.is_empty(), "the page names cases and promises");
    assert_eq!(unknown(&http, &cases), [""; 0], "no such case");
    assert_eq!(unknown(&store, &promises), [""; 0], "no such promise");
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
