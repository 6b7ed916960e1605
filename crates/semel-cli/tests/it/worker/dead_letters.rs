//! `semel dead-letters`, on what a worker has left.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use semel_servers::needed;

use crate::harness::{JetStream, ScriptedReply, TestUpstream, WorkerSetup, until};

/// A handler that refuses every event until it is repaired.
async fn broken() -> (TestUpstream, Arc<AtomicBool>) {
    let repaired = Arc::new(AtomicBool::new(false));
    let is_repaired = repaired.clone();
    let handler = TestUpstream::start(move |_| match is_repaired.load(SeqCst) {
        true => ScriptedReply::ok("done"),
        false => ScriptedReply::status(422, ""),
    });
    (handler.await, repaired)
}

/// A worker on a store that other processes may use at the same time.
fn shared(stream: &JetStream, handler: &TestUpstream) -> WorkerSetup {
    let store = format!("{}/semel-worker-tests?prefix={}", stream.server(), stream.stream);
    WorkerSetup::new(stream, handler).flag("--store", &store).flag("--namespace", "shop")
}

#[tokio::test]
async fn letters_are_listed_shown_and_redriven_while_the_worker_runs() {
    let (stream, (handler, repaired)) = (JetStream::new().await, broken().await);
    let setup = shared(&stream, &handler);
    let worker = setup.start().await;
    for id in ["order-1", "order-2", "order-3"] {
        stream.publish(id).await;
    }
    stream.until_settled().await;
    let letters = setup.listed().await;
    assert_eq!(letters.len(), 3);
    let id = letters[0]["id"].as_str().unwrap().to_owned();

    let list = setup.dead_letters(&["list"]).await;
    assert!(list.stdout.contains("REASON") && list.stdout.contains(&id), "{list:?}");
    let show = setup.dead_letters(&["show", &id]).await;
    assert_eq!(show.code, Some(0));
    for words in ["failed", "http_422", "ce-type: order.placed", "{\"order\":\""] {
        assert!(show.stdout.contains(words), "{words}: {}", show.stdout);
    }
    let json = setup.dead_letters(&["show", &id, "--json"]).await;
    let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json["id"], id.as_str());

    repaired.store(true, SeqCst);
    let one = setup.dead_letters(&["redrive", &id, "--reason", "repaired, INC-7"]).await;
    assert_eq!((one.code, one.stdout), (Some(0), format!("redriven: {id}\n")), "{}", one.stderr);
    assert!(one.stderr.contains("INC-7") && one.stderr.contains("1/1 redriven"), "{}", one.stderr);
    let all = setup.dead_letters(&["redrive", "--all", "--reason", "repaired"]).await;
    assert_eq!(all.code, Some(0), "{all:?}");
    assert!(all.stderr.contains("2/2 redriven"), "{}", all.stderr);
    until("the handler got all events again", async || handler.count() == 6).await;
    stream.until_settled().await;
    assert!(setup.listed().await.is_empty());

    let keys: Vec<_> = handler.received().iter().map(|it| it.key().unwrap().to_owned()).collect();
    let (mut first, mut again) = (keys[..3].to_vec(), keys[3..].to_vec());
    first.sort();
    again.sort();
    assert_eq!(first, again, "a redriven event has the same downstream key");
    worker.stop().await;
}

#[tokio::test]
async fn an_event_that_has_succeeded_is_not_redriven() {
    let (stream, (handler, repaired)) = (JetStream::new().await, broken().await);
    let setup = shared(&stream, &handler);
    let worker = setup.start().await;
    stream.publish("order-1").await;
    stream.until_settled().await;
    let [file] = &setup.letter_files()[..] else { panic!("one letter") };
    let letter = fs::read(file).unwrap();
    let id = file.file_stem().unwrap().to_str().unwrap();
    repaired.store(true, SeqCst);
    let ended = setup.dead_letters(&["redrive", id, "--reason", "repaired"]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    until("it is handled", async || handler.count() == 2).await;
    stream.until_settled().await;
    // As after a redrive that ended before it could remove the letter.
    fs::write(file, letter).unwrap();
    let ended = setup.dead_letters(&["redrive", id, "--reason", "again", "--json"]).await;
    ended.assert_stderr(&[1], &["success of this event is recorded", "0/1 redriven"]);
    assert!(ended.stdout.contains("\"redriven\":false"), "{ended:?}");
    let ended = setup.dead_letters(&["discard", id, "--reason", "left over"]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains("dead letter discarded"), "the log: {}", ended.stderr);
    assert!(setup.letter_files().is_empty());
    worker.stop().await;
    assert_eq!(handler.count(), 2);
}

#[tokio::test]
async fn a_wrong_command_is_reported_with_the_fix() {
    let (stream, handler) = (JetStream::new().await, TestUpstream::counting().await);
    let setup = shared(&stream, &handler);
    let words = ["there are no dead letters in dead-letters"];
    setup.dead_letters(&["list"]).await.assert_stderr(&[1], &words);
    let worker = setup.start().await;
    worker.stop().await;
    let ended = setup.dead_letters(&["list"]).await;
    assert_eq!((ended.code, ended.stdout.lines().count()), (Some(0), 1), "{}", ended.stderr);
    for (words, code, said) in [
        (&["show", "nothing"][..], 1, "there is no dead letter \"nothing\""),
        (&["redrive", "x"], 2, "--reason"),
        (&["redrive", "x", "--reason", " "], 2, "--reason is empty"),
        (&["redrive", "--reason", "x"], 2, "--all"),
        (&["redrive", "x", "--all", "--reason", "x"], 2, "--all"),
        (&["redrive", "x", "--reason", "y"], 1, "there is no dead letter"),
        (&["discard", "x", "--reason", "y"], 1, "there is no dead letter"),
    ] {
        setup.dead_letters(words).await.assert_stderr(&[code], &[said]);
    }
    let none = setup.clone().without("--dead-letter").dead_letters(&["list"]).await;
    none.assert_stderr(&[2], &["name those of the worker", "--dead-letter file:"]);
    let absent = format!("{}/{}-DEAD?create=true", stream.server(), stream.stream);
    for _ in 0..2 {
        let absent = setup.clone().flag("--dead-letter", &absent).dead_letters(&["list"]).await;
        absent.assert_stderr(&[1], &["there is no stream", "(--dead-letter)"]);
    }
    let wrong = setup.clone().flag("--source", "pulsar://a");
    let wrong = wrong.dead_letters(&["redrive", "x", "--reason", "y"]).await;
    wrong.assert_stderr(&[2], &["--to", "brokers"]);
    assert!(!wrong.stderr.contains("sources"), "{}", wrong.stderr);
    let dropped = setup.clone().flag("--dead-letter", "drop").dead_letters(&["list"]).await;
    dropped.assert_stderr(&[2], &["no copy is kept"]);
    let nowhere = setup.without("--source").dead_letters(&["redrive", "x", "--reason", "y"]).await;
    nowhere.assert_stderr(&[2], &["--to nats://"]);
}

/// In the store of the worker, its copy would count as a duplicate.
#[tokio::test]
async fn a_letter_is_not_redriven_with_another_store_than_the_workers() {
    let (stream, (handler, _)) = (JetStream::new().await, broken().await);
    let setup = shared(&stream, &handler);
    let worker = setup.start().await;
    stream.publish("order-1").await;
    stream.until_settled().await;
    worker.stop().await;
    let store = format!("{}/semel-worker-tests?prefix=other-{}", stream.server(), stream.stream);
    let other = setup.clone().flag("--store", &store);
    let all = ["redrive", "--all", "--reason", "repaired"];
    other.dead_letters(&all).await.assert_stderr(&[1], &["no record", "--without-record"]);
    assert_eq!((setup.letter_files().len(), handler.count()), (1, 1));
    let all = [&all[..], &["--without-record"]].concat();
    assert_eq!(other.dead_letters(&all).await.code, Some(0));
}

/// The same with letters in a stream, and with letters in a table.
#[tokio::test]
async fn letters_can_be_in_a_stream_or_in_a_table() {
    let letters = JetStream::new().await;
    let in_stream = format!("{}/{}-DEAD?create=true", letters.server(), letters.stream);
    let table = letters.stream.to_lowercase().replace('-', "_");
    let server = needed("SEMEL_TEST_POSTGRES_URL");
    let join = if server.contains('?') { '&' } else { '?' };
    let in_table = format!("{server}{join}table={table}");
    for (sink, migrate) in [(in_stream, "false"), (in_table, "true")] {
        let (stream, (handler, repaired)) = (JetStream::new().await, broken().await);
        let setup = shared(&stream, &handler).flag("--dead-letter", &sink);
        let worker = setup.clone().variable("SEMEL_MIGRATE", migrate).start().await;
        stream.publish("order-1").await;
        stream.until_settled().await;
        let [letter] = &setup.listed().await[..] else { panic!("one letter in {sink}") };
        assert_eq!(letter["event_id"], "/shop order-1");
        repaired.store(true, SeqCst);
        let ended = setup.dead_letters(&["redrive", "--all", "--reason", "repaired"]).await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        until("it is handled", async || handler.count() == 2).await;
        stream.until_settled().await;
        assert!(setup.listed().await.is_empty());
        worker.stop().await;
    }
    let (client, connection) =
        tokio_postgres::connect(&server, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute(&format!("DROP TABLE public.{table}")).await.unwrap();
}
