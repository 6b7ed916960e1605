//! The demo shows what it says.

use std::{fs, net::SocketAddr, process::Stdio, time::Duration};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::{Running, ask, nobody, semel};
use crate::harness::{Ask, Wire, until};

const TOKEN: &str = "an-admin-token-0123456789abcdef";

/// A demo on ports of its own, and what it wrote.
struct Demo {
    process: Running,
    stdout: String,
    log: String,
    _folder: TempDir,
}

impl Demo {
    async fn start(flags: &[&str], variables: &[(&str, &str)]) -> Self {
        let folder = TempDir::new().unwrap();
        let file = |name: &str| fs::File::create(folder.path().join(name)).unwrap();
        let mut command = semel(folder.path());
        command.args(["gateway", "--demo", "--listen", "127.0.0.1:0"]).args(flags);
        command.envs(variables.iter().copied()).stdout(file("out")).stderr(file("err"));
        let mut process = Running(command.spawn().unwrap());
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        until("the demo is there, or gone", async || {
            read("out").contains("Ctrl-C") || process.0.try_wait().unwrap().is_some()
        })
        .await;
        let (stdout, log) = (read("out"), read("err"));
        Self { process, stdout, log, _folder: folder }
    }

    fn address_after(&self, words: &str) -> SocketAddr {
        let (_, rest) = self.log.split_once(words).unwrap_or_else(|| panic!("{}", self.log));
        rest.split_whitespace().next().unwrap().parse().unwrap()
    }
}

#[tokio::test]
async fn a_demo_whose_words_nobody_reads_goes_on() {
    let folder = TempDir::new().unwrap();
    let mut command = semel(folder.path());
    command.args(["gateway", "--demo", "--listen", "127.0.0.1:0"]);
    command.stdout(nobody()).stderr(Stdio::piped());
    let mut process = Running(command.spawn().unwrap());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let ended = process.0.try_wait().unwrap();
    assert_eq!(ended.map(|status| status.code()), None);
}

/// It shows what it says, or says why it cannot.
#[tokio::test]
async fn the_demo_promises_only_what_its_commands_show() {
    for flags in [["--upstream", "http://127.0.0.1:9"], ["--principal", "authorization"]] {
        let demo = Demo::start(&flags, &[]).await;
        if !demo.stdout.contains("A payments service is behind the gateway") {
            continue;
        }
        let charge = Ask::post("/charges").key("order-42").body(r#"{"amount": 500}"#);
        let answer = ask(demo.address_after(" listening on http://"), charge).await;
        assert_eq!(answer.status, 201, "{flags:?}: {}", answer.text());
    }
}

#[tokio::test]
async fn the_demo_does_not_forget_the_admin_token() {
    let demo = Demo::start(&[], &[("SEMEL_ADMIN_TOKEN", TOKEN)]).await;
    let admin = demo.address_after("admin on http://");
    assert_eq!(ask(admin, Ask::get("/metrics")).await.status, 401, "{}", demo.log);
}

/// Also when it is told to hurry.
#[tokio::test]
async fn the_demo_leaves_no_folder_behind() {
    let place = TempDir::new().unwrap();
    let demo = Demo::start(&[], &[("TMPDIR", place.path().to_str().unwrap())]).await;
    let address = demo.address_after(" listening on http://");
    for key in ["a", "b"] {
        ask(address, Ask::post("/charges").key(key).body(r#"{"amount": 1}"#)).await;
    }
    // The third takes two seconds.
    let mut wire = Wire::to(address).await;
    wire.say(Ask::post("/charges").key("c").body(r#"{"amount": 1}"#).bytes()).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let process = Pid::from_child(&demo.process.0);
    for _ in 0..2 {
        kill_process(process, Signal::INT).unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
}
