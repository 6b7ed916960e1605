//! `--demo` does what its explanation says.

use std::{fs, path::Path, process::Stdio, time::Duration};

use tempfile::TempDir;

use crate::harness::{
    ClientConnection, ClientResponse, GatewayProcess, KillOnDrop, PATIENCE, Setup, TestRequest,
    closed_pipe, command, request_to, run, until,
};

const TOKEN: &str = "an-admin-token-0123456789abcdef";

/// The demo sets all other flags itself.
fn setup() -> Setup {
    let flags = ["--store", "--principal"];
    let bare = flags.into_iter().fold(Setup::new(), Setup::without);
    // A demo that is killed leaves its store behind.
    let place = bare.folder().to_owned();
    bare.switch("--demo").flag("--admin", "127.0.0.1:0").variable("TMPDIR", place)
}

/// The commands it prints, to be pasted into a shell as they are.
async fn commands(gateway: &GatewayProcess) -> Vec<String> {
    until("the demo explains itself", async || gateway.stdout().contains("Ctrl-C")).await;
    let text = gateway.stdout();
    let lines = text.lines().filter_map(|line| line.find("curl ").map(|at| line[at..].to_owned()));
    lines.collect()
}

/// Does what curl does with the options that the demo uses, and with no others.
async fn pasted(command: &str) -> ClientResponse {
    let (url, options) = command.split_once(" -H ").unwrap_or((command, ""));
    let url = url.trim_start_matches("curl ").trim_start_matches("-i ");
    let (address, path) = url.trim_start_matches("http://").split_once('/').expect("a path");
    let target = format!("/{path}");
    let mut request =
        if options.is_empty() { TestRequest::get(&target) } else { TestRequest::post(&target) };
    let mut option = "-H";
    for (place, word) in options.split('\'').enumerate().skip(1) {
        request = match (place % 2, option) {
            (0, _) => {
                option = word.trim();
                request
            }
            (_, "-H") => {
                let (name, value) = word.split_once(": ").expect("a header");
                request.header(name, value)
            }
            (_, "-d") => request.body(word),
            _ => panic!("{option} in {command}"),
        };
    }
    let mut connection = ClientConnection::to(address.parse().expect("an address")).await;
    connection.write(request.bytes()).await;
    connection.read_response().await.expect("a response")
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

/// A second signal ends the demo at once, and its folder is removed, too.
#[tokio::test]
async fn a_demo_that_ends_at_once_leaves_nothing_behind() {
    let temporary = tempfile::tempdir().unwrap();
    let mut gateway = setup().variable("TMPDIR", temporary.path()).start().await;
    let charge = |key: &str| TestRequest::post("/charges").key(key).body(r#"{"amount": 1}"#);
    for key in ["a", "b"] {
        gateway.request(charge(key)).await;
    }
    // The third charge takes two seconds.
    let _wire = gateway.send(charge("c")).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    gateway.sigint();
    until("it shuts down", async || gateway.stderr().contains("shutting down")).await;
    gateway.sigint();
    assert_eq!(gateway.wait_exit(PATIENCE).await, Some(1));
    assert_eq!(entries(temporary.path()), 0);
}

#[tokio::test]
async fn the_demo_runs_on_when_its_stdout_is_closed() {
    let folder = TempDir::new().unwrap();
    let mut command = command(folder.path());
    command.args(["gateway", "--demo", "--listen", "127.0.0.1:0"]);
    command.env("TMPDIR", folder.path()).stdout(closed_pipe()).stderr(Stdio::piped());
    let mut process = KillOnDrop(command.spawn().unwrap());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let ended = process.0.try_wait().unwrap();
    assert_eq!(ended.map(|status| status.code()), None);
}

/// With another upstream, the explanation would not be true.
#[tokio::test]
async fn the_demo_refuses_an_upstream_and_a_principal() {
    for (flag, value) in [("--upstream", "http://127.0.0.1:9"), ("--principal", "authorization")] {
        let flags = ["gateway", "--demo", "--listen", "127.0.0.1:0", flag, value];
        let ended = run(TempDir::new().unwrap().path(), &flags).await;
        ended.assert_stderr(&[2], &[flag, "--demo"]);
    }
}

/// A semel.toml in the folder is for another service.
#[tokio::test]
async fn the_demo_reads_no_settings_that_happen_to_be_there() {
    let gateway = setup().config("upstream = 'http://127.0.0.1:9'\nmode = 'off'\n").start().await;
    let charge = TestRequest::post("/charges").key("order-42").body(r#"{"amount": 500}"#);
    assert_eq!(gateway.request(charge).await.status, 201);
}

#[tokio::test]
async fn the_demo_keeps_the_admin_token_and_does_not_show_it() {
    let setup = setup().without("--admin").variable("SEMEL_ADMIN_TOKEN", TOKEN);
    let mut gateway = setup.start().await;
    let admin = gateway.admin().await;
    let metrics = commands(&gateway).await.pop().expect("where metrics are");
    assert!(metrics.contains(" -H 'Authorization: Bearer "), "{metrics}");
    assert!(!gateway.stdout().contains(TOKEN));
    assert_eq!(request_to(admin, TestRequest::get("/metrics")).await.status, 401);
    let with_token =
        TestRequest::get("/metrics").header("Authorization", &format!("Bearer {TOKEN}"));
    assert_eq!(request_to(admin, with_token).await.status, 200);
}

fn entries(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}
