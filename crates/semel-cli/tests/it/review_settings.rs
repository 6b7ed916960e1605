//! Settings, and what operators are told: nothing is ignored, nothing is shown, nothing is claimed that is
//! not so.

mod demo;

use std::{
    ffi::OsStr,
    fs,
    net::SocketAddr,
    os::unix::ffi::OsStrExt,
    path::Path,
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use tempfile::TempDir;

use crate::harness::{Answer, Ask, Setup, Upstream, Wire, run, until};

/// No text in any language.
const NO_TEXT: &[u8] = b"\xff";
const SECRET: &str = "a secret that is long enough for HS256, surely";

fn semel(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_semel"));
    command.env_clear().current_dir(folder);
    command
}

fn folder_with(files: &[(&str, &str)]) -> TempDir {
    let folder = TempDir::new().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Where a process writes that nobody listens to any more.
fn nobody() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

/// A process that is killed when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn ask(address: SocketAddr, ask: Ask) -> Answer {
    let mut wire = Wire::to(address).await;
    wire.say(ask.bytes()).await;
    wire.hear().await.unwrap()
}

// Routes

const HEAD: &str = "listen = '127.0.0.1:0'\nstore = 'memory:'\nprincipal = 'anonymous'\n";

fn with_routes(upstream: &Upstream, routes: &str) -> Setup {
    Setup::to(upstream).config(routes)
}

/// Who routes the reads of one path elsewhere has said nothing about its writes.
#[tokio::test]
async fn a_route_for_reads_takes_no_protection_from_writes() {
    let upstream = Upstream::counting().await;
    let routes = "[[routes]]\nmatch = 'POST /{*rest}'\nrequire_key = true\n\
                  [[routes]]\nmatch = 'GET /orders'\n";
    let gateway = with_routes(&upstream, routes).start().await;
    gateway.ask(Ask::post("/pay").body("x")).await.assert_problem(400, "key-missing");
    gateway.ask(Ask::post("/orders").body("x")).await.assert_problem(400, "key-missing");
}

/// RFC 3986 §6.2.2.1: the digits of an escape have no case.
#[tokio::test]
async fn another_spelling_of_an_escape_is_no_way_around_a_route() {
    let upstream = Upstream::counting().await;
    let routes = "[[routes]]\nmatch = 'POST /a%2Fb'\nrequire_key = true\n";
    let gateway = with_routes(&upstream, routes).start().await;
    gateway.ask(Ask::post("/a%2Fb").body("x")).await.assert_problem(400, "key-missing");
    gateway.ask(Ask::post("/a%2fb").body("x")).await.assert_problem(400, "key-missing");
}

#[tokio::test]
async fn a_template_is_matched_or_refused() {
    for (template, path) in [("/%7Euser", "/%7Euser"), ("/%7Euser", "/~user"), ("/é", "/%C3%A9")] {
        let upstream = Upstream::counting().await;
        let routes = format!("[[routes]]\nmatch = 'POST {template}'\nrequire_key = true\n");
        let setup = with_routes(&upstream, &routes);
        let file = format!("{HEAD}upstream = 'http://a:1'\n{routes}");
        let folder = folder_with(&[("semel.toml", &file)]);
        if run(folder.path(), &["config", "check"]).await.code == Some(2) {
            continue;
        }
        let answer = setup.start().await.ask(Ask::post(path).body("x")).await;
        assert_eq!(answer.status, 400, "{path} is not a {template}");
    }
}

/// "An entry of [[routes]] may set each of these anew."
#[tokio::test]
async fn a_route_can_compare_bytes_again() {
    let upstream = Upstream::counting().await;
    let settings = "leave_out = ['/sent_at']\n\
                    [[routes]]\nmatch = 'POST /orders'\ncanonical_json = false\n";
    let setup = Setup::to(&upstream).config(settings);
    let check = ["config", "check", "--upstream", "http://a:1", "--principal", "anonymous"];
    let folder = folder_with(&[("semel.toml", settings)]);
    if run(folder.path(), &check).await.code == Some(2) {
        return; // Refused, because the two contradict each other.
    }
    let gateway = setup.start().await;
    let json = |body: &str| {
        Ask::post("/orders").key("k").header("Content-Type", "application/json").body(body)
    };
    gateway.ask(json(r#"{"a":1,"sent_at":1}"#)).await.assert_ran("run 1");
    let answer = gateway.ask(json(r#"{"a":1,"sent_at":2}"#)).await;
    answer.assert_problem(409, "fingerprint-mismatch");
}

// What `config check` says is so

#[tokio::test]
async fn a_check_shows_that_bodies_are_compared_as_json() {
    let file = format!("{HEAD}upstream = 'http://a:1'\nleave_out = ['/sent_at']\n");
    let folder = folder_with(&[("semel.toml", &file)]);
    let summary = run(folder.path(), &["config", "check"]).await.stdout;
    let row = summary.lines().find(|line| line.contains("canonical_json")).unwrap();
    assert!(row.contains("true"), "{row}");
}

#[tokio::test]
async fn a_check_refuses_what_the_gateway_would_refuse() {
    let file = |more: &str| {
        format!(
            "listen = '127.0.0.1:0'\nstore = 'memory:'\nupstream = 'http://a:1'\n\
             principal = 'jwt:keys'\n{more}"
        )
    };
    for (keys, more, line) in [
        (SECRET, "[jwt]\nleeway = '2h'\n", "semel.toml:6:"),
        ("short", "", "semel.toml:4:"),
        ("{\"keys\": []}", "", "semel.toml:4:"),
    ] {
        let folder = folder_with(&[("semel.toml", &file(more)), ("keys", keys)]);
        run(folder.path(), &["config", "check"]).await.assert_says(&[2], &[line]);
    }
}

#[tokio::test]
async fn one_address_for_clients_and_operators_is_refused() {
    let folder = TempDir::new().unwrap();
    let flags = "config check --upstream http://a:1 --principal anonymous \
                 --listen 127.0.0.1:8080 --admin 127.0.0.1:8080";
    let flags: Vec<_> = flags.split_whitespace().collect();
    run(folder.path(), &flags).await.assert_says(&[2], &["--admin", "--listen"]);
}

#[tokio::test]
async fn an_upstream_that_is_the_gateway_itself_is_refused() {
    let flags = "config check --upstream http://127.0.0.1:8080 --principal anonymous";
    let flags: Vec<_> = flags.split_whitespace().collect();
    run(TempDir::new().unwrap().path(), &flags).await.assert_says(&[2], &["--upstream"]);
}

// Secrets

/// It may be a pipe, such as the shell makes of `<(pass show jwt)`.
#[tokio::test]
async fn a_key_file_is_read_once() {
    let (key, mut writer) = std::io::pipe().unwrap();
    std::io::Write::write_all(&mut writer, SECRET.as_bytes()).unwrap();
    drop(writer);
    let folder = TempDir::new().unwrap();
    let log = fs::File::create(folder.path().join("err")).unwrap();
    let mut command = semel(folder.path());
    command.args(["gateway", "--upstream", "http://127.0.0.1:9", "--listen", "127.0.0.1:0"]);
    command.args(["--store", "memory:", "--principal", "jwt:/dev/stdin"]).stdin(key).stderr(log);
    let mut process = Running(command.spawn().unwrap());
    let log = || fs::read_to_string(folder.path().join("err")).unwrap();
    until("it listens or ends", async || {
        log().contains(" listening on ") || process.0.try_wait().unwrap().is_some()
    })
    .await;
    assert!(log().contains(" listening on "), "{}", log());
}

/// A credential is kept as a keyed hash, whatever it is called.
#[tokio::test]
async fn a_credential_by_another_name_is_not_kept_in_the_clear() {
    for header in ["Authorization", "Proxy-Authorization", "Cookie"] {
        let who = format!("header:{header}");
        let check = ["config", "check", "--upstream", "http://a:1", "--principal", &who];
        if run(TempDir::new().unwrap().path(), &check).await.code == Some(2) {
            continue; // Refused.
        }
        let upstream = Upstream::counting().await;
        let setup = Setup::to(&upstream).embedded().flag("--principal", &who);
        let gateway = setup.start().await;
        let charge = Ask::charge("k").header(header, "in-the-clear");
        gateway.ask(charge).await.assert_ran("run 1");
        for file in fs::read_dir(setup.folder().join("data")).unwrap() {
            let bytes = fs::read(file.unwrap().path()).unwrap();
            assert!(!bytes.windows(12).any(|part| part == b"in-the-clear"), "{who}");
        }
    }
}

/// Every earlier key is forgotten by this: whoever did not mean it must hear of it.
#[tokio::test]
async fn another_hash_secret_for_a_store_is_told() {
    let upstream = Upstream::counting().await;
    let setup = Setup::to(&upstream).embedded();
    let mut gateway = setup.start().await;
    gateway.ask(Ask::charge("k")).await.assert_ran("run 1");
    gateway.sigterm();
    gateway.wait_exit(crate::harness::PATIENCE).await;
    fs::write(setup.folder().join("secret"), "0123456789abcdef").unwrap();
    let gateway = setup.flag("--hash-secret-file", "secret").start().await;
    let answer = gateway.ask(Ask::charge("k")).await;
    assert!(answer.is_replay() || gateway.stderr().contains("secret"), "run twice, and not told");
}

// What operators see

#[tokio::test]
async fn a_store_that_fails_is_logged_and_not_ready() {
    let upstream = Upstream::counting().await;
    let setup = Setup::to(&upstream).embedded().flag("--wait", "0s").flag("--admin", "127.0.0.1:0");
    let mut gateway = setup.start().await;
    let admin = gateway.admin().await;
    gateway.ask(Ask::charge("k")).await.assert_ran("run 1");
    fs::remove_dir_all(setup.folder().join("data")).unwrap();
    gateway.ask(Ask::charge("k")).await.assert_problem(503, "store-unavailable");
    assert_eq!(ask(admin, Ask::get("/readyz")).await.status, 503);
    assert!(gateway.stderr().contains("WARN") || gateway.stderr().contains("ERROR"));
}

/// What kills the process when it is late counts from the signal on.
#[tokio::test]
async fn the_grace_of_a_shutdown_is_spent_once() {
    let upstream = Upstream::gated().await;
    let mut gateway = Setup::to(&upstream).config("shutdown_grace = '2s'\n").start().await;
    let _wire = gateway.send(Ask::charge("k")).await;
    until("it runs", async || upstream.count() == 1).await;
    gateway.sigterm();
    assert_eq!(gateway.wait_exit(Duration::from_secs(3)).await, Some(1));
}

/// `semel_gateway_requests_total` is a "counter of answers".
#[tokio::test]
async fn answers_to_what_cannot_be_read_are_counted() {
    let upstream = Upstream::counting().await;
    let mut gateway = Setup::to(&upstream).flag("--admin", "127.0.0.1:0").start().await;
    let admin = gateway.admin().await;
    let mut wire = gateway.wire().await;
    wire.say("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n").await;
    assert_eq!(wire.hear().await.unwrap().status, 400);
    let metrics = ask(admin, Ask::get("/metrics")).await.text();
    assert!(metrics.contains("semel_gateway_requests_total{status=\"4xx\"} 1\n"), "{metrics}");
}

/// Outcomes are worth more than log lines.
#[tokio::test]
async fn a_log_that_nobody_reads_holds_up_no_request() {
    let upstream = Upstream::counting().await;
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (_unread, stderr) = std::io::pipe().unwrap();
    let folder = TempDir::new().unwrap();
    let mut command = semel(folder.path());
    command.args(["gateway", "--principal", "anonymous", "--store", "memory:"]);
    command.args(["--listen", &address.to_string()]);
    command.args(["--upstream", &format!("http://{}", upstream.address)]).stderr(stderr);
    let _process = Running(command.spawn().unwrap());
    until("it listens", async || std::net::TcpStream::connect(address).is_ok()).await;
    let mut wire = Wire::to(address).await;
    for number in 0..2000 {
        wire.say(Ask::charge("k").bytes()).await;
        let answer = tokio::time::timeout(Duration::from_secs(5), wire.hear()).await;
        assert!(answer.is_ok(), "no answer to request {number}");
    }
}

#[tokio::test]
async fn a_store_that_cannot_be_made_is_told_once_and_with_the_fix() {
    let folder = folder_with(&[("data", "a file")]);
    let flags = "gateway --listen 127.0.0.1:0 --upstream http://a:1 --principal anonymous \
                 --store file:data";
    let flags: Vec<_> = flags.split_whitespace().collect();
    let ended = run(folder.path(), &flags).await;
    ended.assert_says(&[1], &["data", "--store"]);
    assert_eq!(ended.stderr.matches("os error 20").count(), 1, "{}", ended.stderr);
}

// Output that nobody takes, and input that is no text

#[test]
fn a_check_that_nobody_reads_is_no_panic() {
    let folder = TempDir::new().unwrap();
    let mut command = semel(folder.path());
    let output =
        command.args(["config", "check", "--demo"]).stdout(nobody()).stderr(Stdio::piped());
    let output = output.output().unwrap();
    assert!(!stderr(&output).contains("panicked"), "{}", stderr(&output));
    assert_ne!(output.status.code(), Some(101));
}

#[test]
fn an_error_that_nobody_reads_keeps_its_exit_code() {
    let folder = TempDir::new().unwrap();
    let status = semel(folder.path()).arg("gateway").stderr(nobody()).status().unwrap();
    assert_eq!(status.code(), Some(2));
}

#[test]
fn a_bad_value_beside_an_argument_that_is_no_text_is_told() {
    let folder = TempDir::new().unwrap();
    let mut command = semel(folder.path());
    command.args(["gateway".as_ref(), "--config".as_ref(), OsStr::from_bytes(NO_TEXT)]);
    let output = command.env("SEMEL_LEASE", "1x").output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("SEMEL_LEASE"));
}

#[test]
fn a_variable_that_is_no_text_is_named() {
    let folder = TempDir::new().unwrap();
    let mut command = semel(folder.path());
    command.args(["gateway", "--demo"]).env("SEMEL_LEASE", OsStr::from_bytes(NO_TEXT));
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("SEMEL_LEASE"), "{}", stderr(&output));
}

#[tokio::test]
async fn a_field_that_is_there_twice_is_named_with_the_fix() {
    let folder = folder_with(&[("semel.toml", "lease = '1s'\nlease = '2s'\n")]);
    let ended = run(folder.path(), &["config", "check"]).await;
    ended.assert_says(&[2], &["semel.toml:2:1", "lease", "remove"]);
}
