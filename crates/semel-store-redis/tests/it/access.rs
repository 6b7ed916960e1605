//! Access to a server: ACL rights, passwords, certificates and hash secrets.

use semel_core::{Claim, ClaimRequest, Completion, ErrorKind, HashSecret, Nonce, Store};
use semel_servers::{Certificates, REDIS, RedisCluster, Running};
use semel_store_redis::RedisStore;

use crate::common::{
    LONG, at, completion, granted, keeps_every_promise, own, prefix, refusal, request, shared,
    until, works,
};

/// The rest of the line in the guide that begins with `prefix`.
fn documented(prefix: &str) -> &'static str {
    let guide = include_str!("../../../../docs/stores/redis.md");
    guide.lines().find_map(|line| line.strip_prefix(prefix)).unwrap()
}

/// Creates the user that the guide describes, with more rights.
fn create_documented_user(server: &Running, more: &str) {
    let rights = documented("ACL SETUSER ").split_whitespace().chain(more.split_whitespace());
    server.ask(&["ACL", "SETUSER"].into_iter().chain(rights).collect::<Vec<_>>()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documented_rights_are_enough() {
    let server = own();
    create_documented_user(&server, "");
    let url = format!("redis://semel:PASSWORD@127.0.0.1:{}", server.port());
    let store = RedisStore::connect(&url).await.unwrap();
    keeps_every_promise(store).await;

    let url = format!("redis://semel:canary@127.0.0.1:{}", server.port());
    let refusal = refusal(&url).await;
    assert!(refusal.contains("password") && !refusal.contains("canary"), "{refusal}");
    let url = format!("redis://semel:PASSWORD@127.0.0.1:{}", server.port());
    let error = at(&url, "elsewhere").connect().await.unwrap_err();
    assert!(error.to_string().contains("ACL"), "{error}");
}

/// An unreachable server may come back; a refused login stays refused until an operator changes it.
#[tokio::test(flavor = "multi_thread")]
async fn connect_later_waits_for_an_unreachable_server_but_not_for_a_refused_login() {
    let mut server = own();
    create_documented_user(&server, "");
    server.ask(&["ACL", "SETUSER", "default", "resetpass", ">secret"]).unwrap();
    let port = server.port();
    for (login, prefix, word) in [
        ("", "semel", "password"),
        ("semel:canary@", "semel", "password"),
        ("semel:PASSWORD@", "elsewhere", "ACL"),
    ] {
        let url = format!("redis://{login}127.0.0.1:{port}");
        let error = at(&url, prefix).connect_later(true).connect().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains(word), "{error}");
    }
    server.kill().unwrap();
    let builder = || at(server.url(), "semel");
    let error = builder().connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let store = builder().connect_later(true).connect().await.unwrap();
    assert!(!works(&store).await);
    server.restart().unwrap();
    until("the store is connected", async || works(&store).await).await;
}

fn cluster_with_rights() -> (RedisCluster, String) {
    let nodes = RedisCluster::start(&REDIS, 3).unwrap();
    let (more, _) = documented("A cluster needs `").split_once('`').unwrap();
    nodes.nodes.iter().for_each(|node| create_documented_user(node, more));
    let url = format!("redis+cluster://semel:PASSWORD@{}", nodes.addresses());
    (nodes, url)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documented_rights_are_enough_for_a_cluster() {
    let (_nodes, url) = cluster_with_rights();
    keeps_every_promise(RedisStore::connect(&url).await.unwrap()).await;
}

/// A plain connection to one server.
async fn raw(server: &Running) -> redis::aio::MultiplexedConnection {
    let client = redis::Client::open(server.url()).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
}

/// Begins to move the slot of a key. Returns its source and its destination.
async fn move_slot<'n>(nodes: &'n RedisCluster, name: &[u8]) -> (&'n Running, &'n Running) {
    let mut slot = redis::cmd("CLUSTER");
    let slot = slot.arg("KEYSLOT").arg(name).query_async(&mut raw(&nodes.nodes[0]).await).await;
    let slot: usize = slot.unwrap();
    let owner = (0..3).find(|at| slot < 16384 * (at + 1) / 3).unwrap();
    let (from, to) = (&nodes.nodes[owner], &nodes.nodes[(owner + 1) % 3]);
    let id = |node: &Running| node.ask(&["CLUSTER", "MYID"]).unwrap();
    let slot = slot.to_string();
    to.ask(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(from)]).unwrap();
    from.ask(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(to)]).unwrap();
    (from, to)
}

async fn migrate(name: &[u8], from: &Running, to: &Running) {
    let mut migrate = redis::cmd("MIGRATE");
    migrate.arg("127.0.0.1").arg(to.port()).arg(name).arg(0).arg(5000);
    let moved: String = migrate.query_async(&mut raw(from).await).await.unwrap();
    assert_eq!(moved, "OK");
}

/// While its slot moves, a key may be at the source, at the destination, or not exist yet.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_whose_slot_moves_is_served_with_the_documented_rights() {
    let (nodes, url) = cluster_with_rights();
    let store = RedisStore::connect(&url).await.unwrap();
    let (new, staying, moving) = (request(LONG), request(LONG), request(LONG));
    move_slot(&nodes, &name(&new)).await;
    let there = granted(&store, &new).await.owner;
    let stays = granted(&store, &staying).await.owner;
    move_slot(&nodes, &name(&staying)).await;
    let moves = granted(&store, &moving).await.owner;
    let (from, to) = move_slot(&nodes, &name(&moving)).await;
    migrate(&name(&moving), from, to).await;
    for (claim, owner) in [(new, there), (staying, stays), (moving, moves)] {
        let done = store.complete(&completion(owner, "done")).await.unwrap();
        assert_eq!(done, Completion::Recorded);
        let again = ClaimRequest { nonce: Nonce::random(), ..claim };
        assert!(matches!(store.claim(&again).await.unwrap(), Claim::Replay(_)));
    }
    let commands = nodes.nodes.iter().map(|node| node.ask(&["INFO", "commandstats"]).unwrap());
    assert!(commands.collect::<String>().contains("cmdstat_asking"), "no client was redirected");
}

#[tokio::test]
async fn processes_agree_on_the_hash_secret() {
    let (url, prefix) = (shared(), prefix("secret"));
    let builder = || RedisStore::builder(&url).prefix(&prefix);
    let secret = HashSecret::random();
    let first = builder().hash_secret(secret.clone()).connect().await.unwrap();
    assert_eq!(first.info().hash_secret, Some(secret.clone()));
    builder().hash_secret(secret).connect().await.unwrap();
    for other in [builder(), builder().hash_secret(HashSecret::random())] {
        let error = other.connect().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("hash-secret"), "{error}");
    }
}

/// Otherwise a process with another secret could set it after the flush.
#[tokio::test]
async fn a_running_process_writes_the_hash_secret_again_after_a_flush() {
    let server = own();
    let connect = async |secret| {
        RedisStore::builder(server.url()).hash_secret(secret).connect().await.map(drop)
    };
    let secret = HashSecret::random();
    let builder = RedisStore::builder(server.url()).hash_secret(secret.clone());
    let _running = builder.connect().await.unwrap();
    server.ask(&["FLUSHALL"]).unwrap();
    until("the secret is written", async || {
        server.ask(&["EXISTS", "semel:hash-secret-check"]).unwrap() == "1"
    })
    .await;
    assert_eq!(connect(HashSecret::random()).await.unwrap_err().kind(), ErrorKind::Invalid);
    connect(secret).await.unwrap();
}

/// Otherwise the same operation would have different keys in two processes.
#[tokio::test]
async fn a_store_whose_hash_secret_differs_from_the_server_refuses_requests() {
    let server = own();
    let store = RedisStore::connect(server.url()).await.unwrap();
    server.ask(&["SET", "semel:hash-secret-check", "another"]).unwrap();
    until("the store refuses requests", async || {
        let refused = store.claim(&request(LONG)).await;
        refused.is_err_and(|error| error.to_string().contains("another secret"))
    })
    .await;
    let error = store.lead(LONG).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    server.ask(&["DEL", "semel:hash-secret-check"]).unwrap();
    until("the store works again", async || works(&store).await).await;
}

#[tokio::test]
async fn a_server_with_an_untrusted_certificate_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = Certificates::make(folder.path()).unwrap();
    let server = Running::start(&REDIS.tls(&certificates)).unwrap();
    let authority = certificates.authority();
    let url = format!("rediss://127.0.0.1:{}", server.tls_port());
    let trusting = format!("{url}?ca={}", authority.display());
    let store = RedisStore::connect(&trusting).await.unwrap();
    granted(&store, &request(LONG)).await;
    assert!(refusal(&url).await.contains("certificates"));
}

fn name(claim: &ClaimRequest) -> Vec<u8> {
    [b"semel:k:", &claim.key.as_bytes()[..]].concat()
}
