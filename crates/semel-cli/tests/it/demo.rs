//! `--demo` shows what it says.

use std::{fs, path::Path};

use crate::harness::{Answer, Ask, Gateway, PATIENCE, Setup, Wire, until};

/// Every other flag comes from the demo itself.
fn setup() -> Setup {
    let flags = ["--store", "--principal"];
    let bare = flags.into_iter().fold(Setup::new(), Setup::without);
    bare.switch("--demo").flag("--admin", "127.0.0.1:0")
}

/// The commands it prints, to be pasted into a shell as they are.
async fn commands(gateway: &Gateway) -> Vec<String> {
    until("the demo explains itself", async || gateway.stdout().contains("Ctrl-C")).await;
    let text = gateway.stdout();
    let lines = text.lines().filter_map(|line| line.find("curl ").map(|at| line[at..].to_owned()));
    lines.collect()
}

/// Does what curl does with the words the demo uses, and with no others.
async fn pasted(command: &str) -> Answer {
    let (url, options) = command.split_once(" -H ").unwrap_or((command, ""));
    let url = url.trim_start_matches("curl ").trim_start_matches("-i ");
    let (address, path) = url.trim_start_matches("http://").split_once('/').expect("a path");
    let target = format!("/{path}");
    let mut ask = if options.is_empty() { Ask::get(&target) } else { Ask::post(&target) };
    let mut option = "-H";
    for (place, word) in options.split('\'').enumerate().skip(1) {
        ask = match (place % 2, option) {
            (0, _) => {
                option = word.trim();
                ask
            }
            (_, "-H") => {
                let (name, value) = word.split_once(": ").expect("a header");
                ask.header(name, value)
            }
            (_, "-d") => ask.body(word),
            _ => panic!("{option} in {command}"),
        };
    }
    let mut wire = Wire::to(address.parse().expect("an address")).await;
    wire.say(ask.bytes()).await;
    wire.hear().await.expect("an answer")
}

#[tokio::test]
async fn three_pasted_commands_show_a_charge_a_replay_and_a_mismatch() {
    let gateway = setup().start().await;
    let [first, again, other, charges, metrics] = <[String; 5]>::try_from(commands(&gateway).await)
        .expect("three commands, and where to look");
    let charge = "{\"id\":\"ch_1\",\"amount\":500}\n";
    let first = pasted(&first).await;
    assert_eq!((first.status, first.is_replay(), first.text().as_str()), (201, false, charge));
    let again = pasted(&again).await;
    assert_eq!((again.status, again.is_replay(), again.text().as_str()), (201, true, charge));
    pasted(&other).await.assert_problem(409, "fingerprint-mismatch");
    assert_eq!(pasted(&charges).await.text().matches("ch_").count(), 1, "one charge");
    let metrics = pasted(&metrics).await.text();
    assert!(metrics.contains("idempotency_cache_hit_total{tier=\"store\"} 1"), "{metrics}");
}

#[tokio::test]
async fn the_demo_leaves_nothing_behind() {
    let temporary = tempfile::tempdir().unwrap();
    let mut gateway = setup().variable("TMPDIR", temporary.path()).start().await;
    assert_eq!(entries(temporary.path()), 1, "its store is there");
    gateway.sigint();
    assert_eq!(gateway.wait_exit(PATIENCE).await, Some(0));
    assert_eq!(entries(temporary.path()), 0, "and gone");
}

fn entries(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}
