//! Wrong uses of the binary, one per line: the input, the exit code, and the words that stderr must contain.

use super::case::{ErrorCase, check, flags, semel, toml, variables};

#[tokio::test]
async fn a_wrong_command_line_is_reported_with_its_flag_and_the_fix() {
    check(COMMAND_LINES).await;
}

#[tokio::test]
async fn a_wrong_file_is_reported_with_its_line_and_the_fix() {
    check(FILES).await;
}

#[tokio::test]
async fn a_wrong_command_for_operators_is_reported_with_the_fix() {
    check(OPERATORS).await;
}

#[rustfmt::skip]
const COMMAND_LINES: &[ErrorCase] = &[
    // The principal and the upstream.
    semel(&["gateway", "--upstream", "http://127.0.0.1:9"], 2, &["--principal", "anonymous", "authorization", "header:", "jwt:"]),
    flags(&["--principal", "everybody"], 2, &["--principal", "anonymous", "authorization", "header:", "jwt:"]),
    flags(&["--principal", "anonymos"], 2, &["--principal", "did you mean anonymous?"]),
    flags(&["--principal", "authorisation"], 2, &["--principal", "did you mean authorization?"]),
    flags(&["--principal", "header"], 2, &["--principal", "header:NAME"]),
    flags(&["--principal", "header:"], 2, &["--principal", "header:NAME"]),
    flags(&["--principal", "header:x y"], 2, &["--principal", "header:NAME"]),
    flags(&["--principal", "jwt:"], 2, &["--principal", "jwt:FILE"]),
    flags(&["--principal", ""], 2, &["--principal", "anonymous"]),
    flags(&["--principal", "jwt:nowhere.pem"], 2, &["nowhere.pem"]),
    flags(&["--principal", "jwt:keys"], 2, &["keys"]).files(&[("keys", "")]),
    flags(&["--principal", "jwt:keys"], 2, &["keys"]).files(&[("keys", "short")]),
    flags(&["--principal", "jwt:keys"], 2, &["keys"]).files(&[("keys", "{\"keys\": []}")]),
    flags(&["--principal", "jwt:keys"], 2, &["keys"]).files(&[("keys", "-----BEGIN PUBLIC KEY-----\nnonsense\n-----END PUBLIC KEY-----\n")]),
    semel(&["gateway", "--principal", "anonymous", "--store", "memory:"], 2, &["--upstream", "--demo"]),
    flags(&["--upstream", "https://shop.example"], 2, &["--upstream", "http", "not in this release"]),
    flags(&["--upstream", "shop.example:80"], 2, &["--upstream"]),
    flags(&["--upstream", "ftp://shop.example"], 2, &["--upstream"]),
    flags(&["--upstream", "http://"], 2, &["--upstream"]),
    flags(&["--upstream", "http://a b"], 2, &["--upstream"]),
    flags(&["--upstream", "/path"], 2, &["--upstream"]),
    flags(&["--upstraem", "http://127.0.0.1:9"], 2, &["--upstraem", "--upstream"]),
    // Addresses.
    flags(&["--listen", "nowhere"], 2, &["--listen", "nowhere", "IP:PORT"]),
    flags(&["--listen", "127.0.0.1"], 2, &["--listen", "IP:PORT"]),
    flags(&["--listen", ":::"], 2, &["--listen", "IP:PORT"]),
    flags(&["--admin", "127.0.0.1:99999"], 2, &["--admin", "IP:PORT"]),
    flags(&["--admin", "0.0.0.0:0"], 2, &["--admin", "SEMEL_ADMIN_TOKEN"]),
    flags(&["--admin", "[::]:0"], 2, &["--admin", "SEMEL_ADMIN_TOKEN"]),
    // Times and sizes, in the units that the flags take.
    flags(&["--lease=soon"], 2, &["--lease", "30s"]),
    flags(&["--lease=5"], 2, &["--lease", "30s"]),
    flags(&["--retention=-5s"], 2, &["--retention", "30s"]),
    flags(&["--failure-retention=5 parsecs"], 2, &["--failure-retention", "30s"]),
    flags(&["--wait="], 2, &["--wait", "30s"]),
    flags(&["--store-timeout=soon"], 2, &["--store-timeout", "30s"]),
    flags(&["--compare-host=maybe"], 2, &["--compare-host", "true", "false"]),
    flags(&["--retention", "0s"], 2, &["--retention: is 0s; it must be from 1ms to 3650d"]).never(&["0ns", "315360000s"]),
    flags(&["--retention", "99999d"], 2, &["--retention: is 99999d; it must be from 1ms to 3650d"]),
    flags(&["--failure-retention", "0s"], 2, &["--failure-retention: is 0s; it must be from 1ms to 3650d"]),
    flags(&["--lease", "0s"], 2, &["--lease: is 0s; it must be from 20ms to 1h"]),
    flags(&["--lease", "9999d"], 2, &["--lease: is 9999d; it must be from 20ms to 1h"]),
    flags(&["--lease", "20m"], 2, &["--lease: is 20m, longer than max_run, which is 10m"]),
    flags(&["--wait", "2h"], 2, &["--wait: is 2h; it must be from 0s to 1h"]),
    flags(&["--max-body", "0"], 2, &["--max-body: is 0; it must be from 1 to 32704KiB"]),
    flags(&["--max-body", "1GiB"], 2, &["--max-body: is 1GiB; it must be from 1 to 32704KiB"]).never(&["33488896"]),
    flags(&["--max-body=large"], 2, &["--max-body", "1MiB"]),
    flags(&["--max-body=-1"], 2, &["--max-body", "1MiB"]),
    flags(&["--max-body=1MB2"], 2, &["--max-body", "1MiB"]),
    flags(&["--max-body="], 2, &["--max-body", "1MiB"]),
    // Choices.
    flags(&["--mode", "200"], 2, &["--mode", "enforce", "observe", "off"]),
    flags(&["--mode", "enforc"], 2, &["--mode", "similar value exists: 'enforce'"]),
    flags(&["--on-lost-owner", "200"], 2, &["--on-lost-owner", "rerun", "hold"]),
    flags(&["--on-lost-owner", "holt"], 2, &["--on-lost-owner", "similar value exists: 'hold'"]),
    flags(&["--mismatch-status", "200"], 2, &["--mismatch-status", "409", "422"]),
    flags(&["--log", "200"], 2, &["--log", "error", "warn", "info", "debug", "trace"]),
    flags(&["--log-format", "xml"], 2, &["--log-format", "text", "json"]),
    // Stores, before anything is connected to.
    flags(&["--store", "mssql://u:secret@h/x"], 2, &["--store", "not in this release"]).never(&["secret"]),
    flags(&["--store", "sqlite:x"], 2, &["--store", "memory:", "file:"]),
    flags(&["--store", "postgre://u:secret@h/x"], 2, &["--store", "did you mean postgres:?"]).never(&["secret"]),
    flags(&["--store", "nats://127.0.0.1:1", "--namespace", "n"], 2, &["--store", "bucket", "nats://HOST:PORT/BUCKET"]),
    flags(&["--store", "nats://u:secret@127.0.0.1:1/", "--namespace", "n"], 2, &["--store", "nats://HOST:PORT/BUCKET"]).never(&["secret"]),
    flags(&["--store", "nats+tls://h?prefix=p", "--namespace", "n"], 2, &["--store", "nats://HOST:PORT/BUCKET"]),
    flags(&["--store", "postgres://u:sec/ret@db/x"], 2, &["--store", "%2F for /"]).never(&["ret@"]),
    flags(&["--store", "redis://:sec#ret@h"], 2, &["--store", "%2F for /"]).never(&["ret@"]),
    flags(&["--store", "postgres://a@127.0.0.1:1/d?sslmod=require", "--namespace", "a"], 2, &["--store", "sslmod"]),
    flags(&["--store", "postgres://a@127.0.0.1:1/d?table=a-b", "--namespace", "a"], 2, &["--store", "a-z, 0-9 and _"]),
    flags(&["--store", "postgres://a@127.0.0.1:1/d?sslmode=prefer&sslrootcert=x", "--namespace", "a"], 2, &["--store", "sslrootcert"]),
    flags(&["--store", "redis://127.0.0.1:1/x", "--namespace", "a"], 2, &["--store", "database"]),
    flags(&["--store", "redis://hunter2@127.0.0.1:1", "--namespace", "a"], 2, &["--store", ":PASSWORD@"]).never(&["hunter2"]),
    flags(&["--store", "nats://127.0.0.1:1/ids?replicas=9", "--namespace", "a"], 2, &["--store", "replicas"]),
    flags(&["--store", "postgres://u:secret@127.0.0.1:1/x"], 2, &["no namespace", "--namespace", "SEMEL_NAMESPACE"]).never(&["secret"]),
    flags(&["--store", "redis://:secret@127.0.0.1:1"], 2, &["no namespace", "--namespace", "SEMEL_NAMESPACE"]).never(&["secret"]),
    flags(&["--hash-secret-file", "nowhere.secret"], 2, &["nowhere.secret"]),
    // Files of settings.
    flags(&["--config", "nowhere.toml"], 2, &["nowhere.toml", "--config"]),
    flags(&["--config", "folder"], 2, &["--config: folder is a folder", "name the file in it, such as folder/semel.toml"]).never(&["create it"]),
    // Variables.
    variables(&[("SEMEL_LEASE", "soon")], 2, &["SEMEL_LEASE", "30s"]),
    variables(&[("SEMEL_RETENTION", "0s")], 2, &["SEMEL_RETENTION: is 0s; it must be from 1ms to 3650d"]),
    variables(&[("SEMEL_MODE", "enforc")], 2, &["SEMEL_MODE", "similar value exists: 'enforce'"]),
    variables(&[("SEMEL_CONFIG", "folder")], 2, &["folder is a folder", "folder/semel.toml"]),
];

#[rustfmt::skip]
const FILES: &[ErrorCase] = &[
    toml("listen = \"127.0.0.1:0\"\nlease = = 5\n", 2, &["semel.toml:2"]),
    // Names.
    toml("namespace = \"shop\"\n\nretenton = \"24h\"\n", 2, &["semel.toml:3", "retenton", "did you mean retention?"]),
    toml("[timeouts]\nheadr = \"1s\"\n", 2, &["semel.toml:2", "headr", "did you mean header?"]),
    toml("[client]\nheader = \"1s\"\nbdoy = \"1s\"\n", 2, &["semel.toml:3", "bdoy", "did you mean body?"]),
    toml("[[routes]]\nmatch = \"/a\"\nleese = \"1s\"\n", 2, &["semel.toml:3", "leese", "did you mean lease?"]),
    toml("[upstreams.a]\nurl = \"http://a\"\npreserve_hosts = true\n", 2, &["semel.toml:3", "did you mean preserve_host?"]),
    toml("[admin]\ntokn = \"x\"\n", 2, &["semel.toml:2", "did you mean token?"]),
    toml("\n\n[clinet]\n", 2, &["semel.toml:3", "did you mean client?"]),
    toml("[metrics]\non = true\n", 2, &["semel.toml:1", "unknown section; known are timeouts, client, admin, jwt, log, upstreams, routes"]).never(&["retention"]),
    toml("[log]\nlevel = \"info\"\nretention = \"24h\"\n", 2, &["semel.toml:3", "move retention to the top of the file"]),
    toml("colour = 1\n", 2, &["semel.toml:1", "unknown field; known here are\n  listen, upstream,"]),
    // Values.
    toml("\nlease = \"soon\"\n", 2, &["semel.toml:2", "lease", "30s"]),
    toml("retention = \"0s\"\n", 2, &["semel.toml:1:1: retention: is 0s; it must be from 1ms to 3650d"]),
    toml("max_body = \"much\"\n", 2, &["semel.toml:1", "max_body", "1MiB"]),
    toml("max_response = 0\n", 2, &["semel.toml:1:1: max_response: is 0; it must be from 1 to 32704KiB"]),
    toml("max_attempts = 0\n", 2, &["semel.toml:1", "max_attempts"]),
    toml("require_key = \"yes\"\n", 2, &["semel.toml:1", "require_key"]),
    toml("mode = \"on\"\n", 2, &["semel.toml:1", "mode", "enforce"]),
    toml("mode = \"enforc\"\n", 2, &["semel.toml:1", "did you mean `enforce`?"]),
    toml("preset = \"cheap\"\n", 2, &["semel.toml:1", "preset", "financial"]),
    toml("preset = \"finacial\"\n", 2, &["semel.toml:1", "did you mean `financial`?"]),
    toml("[log]\nlevel = \"inf\"\n", 2, &["semel.toml:2", "did you mean `info`?"]),
    toml("key_from = \"request_id\"\n", 2, &["semel.toml:1", "key_from", "\"/request_id\""]),
    toml("key_from = \"$.request_id\"\n", 2, &["semel.toml:1", "key_from", "write \"/request_id\""]).never(&["/$"]),
    toml("key_from = \"$.lines[0]['id']\"\n", 2, &["semel.toml:1", "write \"/lines/0/id\""]),
    toml("[[routes]]\nmatch = \"orders\"\n", 2, &["semel.toml:2", "match"]),
    toml("[[routes]]\nmatch = \"/a/{id\"\n", 2, &["semel.toml:2", "{name}"]),
    toml("[[routes]]\nmatch = \"/a\"\nupstream = \"nowhere\"\n", 2, &["semel.toml:3", "nowhere"]),
    toml("[[routes]]\nmatch = \"POST /a/{id}\"\nlease = \"1s\"\n[[routes]]\nmatch = \"POST /a/{name}\"\nlease = \"2s\"\n", 2, &["semel.toml", "/a/"]),
    toml("[upstreams.a]\nurl = \"https://a\"\n", 2, &["semel.toml:2", "http", "not in this release"]),
];

#[rustfmt::skip]
const OPERATORS: &[ErrorCase] = &[
    // A pipeline that lost its variable must not pass.
    semel(&["migrate"], 2, &["--store", "SEMEL_STORE"]),
    semel(&["migrate", "--json"], 2, &["--store", "SEMEL_STORE"]),
    semel(&["migrate", "--config", "folder"], 2, &["--config: folder is a folder", "folder/semel.toml"]),
    semel(&["keys", "list", "--state", "unknwn"], 2, &["--state", "similar value exists: 'unknown'"]),
    semel(&["keys", "list", "--state", "lost"], 2, &["--state", "lost-owner"]),
    semel(&["keys", "get", "12345678", "--store", "memory:"], 2, &["forgotten with its process", "--store"]),
    semel(&["keys", "resolve", "12345678", "--rerun", "--reason", "x", "--store", "memory:"], 2, &["forgotten with its process", "--store"]),
    semel(&["keys", "erase", "12345678", "--reason", "x", "--store", "memory:"], 2, &["forgotten with its process", "--store"]),
    semel(&["keys", "resolve", "12345678", "--rerun", "--reason", "x"], 1, &["no store in semel-data", "--store file:PATH"]),
    semel(&["keys", "resolve", "12345678", "--reason", "x"], 2, &["--complete", "--fail", "--rerun"]),
    semel(&["keys", "resolve", "12345678", "--rerun", "--fail", "--reason", "x"], 2, &["--rerun", "--fail"]),
    semel(&["keys", "resolve", "12345678", "--rerun"], 2, &["--reason"]),
    semel(&["keys", "resolve", "12345678", "--rerun", "--reason", " "], 2, &["--reason is empty"]),
    semel(&["keys", "resolve", "12345678", "--rerun", "--status", "200", "--reason", "x"], 2, &["--status", "--rerun"]),
    semel(&["keys", "resolve", "12345678", "--fail", "--no-effect", "--reason", "x"], 2, &["--no-effect", "--fail"]),
    semel(&["keys", "resolve", "12345678", "--complete", "a", "--message", "x", "--reason", "x"], 2, &["--message", "--complete"]),
    semel(&["keys", "erase", "12345678"], 2, &["--reason"]),
];
