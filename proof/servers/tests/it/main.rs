//! What fault tests rely on holds for the real servers.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use semel_servers::{
    Certificates, KAFKA, KafkaCluster, POSTGRES, REDIS, RedisCluster, RedisSentinel, Running,
    VALKEY, pgbouncer,
};

fn folder(name: &str) -> PathBuf {
    let name = format!("semel-servers-{name}-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn certificates(folder: &Path) -> Certificates {
    Certificates::make(folder).unwrap()
}

#[test]
fn a_killed_postgres_keeps_what_it_acknowledged() {
    let mut postgres = Running::start(&POSTGRES).unwrap();
    assert_eq!(postgres.sql("SHOW fsync").unwrap(), "on");
    postgres.sql("CREATE TABLE kept (a int)").unwrap();
    for a in 0..3 {
        postgres.sql(&format!("INSERT INTO kept VALUES ({a})")).unwrap();
        postgres.kill().unwrap();
        assert!(postgres.sql("SELECT 1").is_err());
        postgres.restart().unwrap();
    }
    assert_eq!(postgres.sql("SELECT count(*) FROM kept").unwrap(), "3");
}

#[test]
fn pgbouncer_passes_replies_of_postgres_on() {
    let postgres = Running::start(&POSTGRES).unwrap();
    let pool = Running::start(&pgbouncer(postgres.port(), &["pool_mode = transaction"])).unwrap();
    let query = |statement: &str| {
        let mut psql = Command::new(postgres.program().with_file_name("psql"));
        let output = psql.args(["-X", "-At", "-d", pool.url(), "-c", statement]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(query("SHOW port").trim(), postgres.port().to_string());
}

#[test]
fn a_killed_durable_redis_keeps_what_it_acknowledged() {
    for server in [REDIS, VALKEY] {
        let mut redis = Running::start(&server.durable()).unwrap();
        for a in ["1", "2", "3"] {
            redis.ask(&["RPUSH", "kept", a]).unwrap();
            redis.kill().unwrap();
            redis.restart().unwrap();
        }
        assert_eq!(redis.ask(&["LRANGE", "kept", "0", "-1"]).unwrap(), "1\n2\n3");
    }
}

#[test]
fn a_paused_server_accepts_connections_and_does_not_answer() {
    let redis = Running::start(&REDIS).unwrap();
    redis.pause().unwrap();
    TcpStream::connect(("127.0.0.1", redis.port())).unwrap();
    assert!(redis.ask(&["PING"]).is_err());
    redis.resume().unwrap();
    assert_eq!(redis.ask(&["PING"]).unwrap(), "PONG");
}

#[test]
fn errors_of_redis_are_returned() {
    let redis = Running::start(&REDIS.args(["--maxmemory-policy", "allkeys-lru"])).unwrap();
    let policy = redis.ask(&["CONFIG", "GET", "maxmemory-policy"]).unwrap();
    assert_eq!(policy, "maxmemory-policy\nallkeys-lru");
    let error = format!("{:#}", redis.ask(&["NONSENSE"]).unwrap_err());
    assert!(error.contains("unknown command"), "{error}");
    assert_eq!(redis.ask(&["GET", "nothing"]).unwrap(), "");
}

#[test]
fn a_cluster_of_three_owns_every_slot() {
    let cluster = RedisCluster::start(&REDIS, 3).unwrap();
    let accepting = (0..64).map(|key| {
        let key = format!("key{key}");
        let takes = |node: &Running| node.ask(&["SET", &key, "1"]).is_ok();
        cluster.nodes.iter().filter(|node| takes(node)).count()
    });
    assert!(accepting.into_iter().all(|count| count == 1));
    assert_eq!(cluster.addresses().split(',').count(), 3);
}

#[test]
fn a_sentinel_promotes_the_replica() {
    let mut set = RedisSentinel::start().unwrap();
    assert_eq!(set.primary_port().unwrap(), set.primary.port());
    set.fail_over().unwrap();
    assert_eq!(set.replica.ask(&["SET", "a", "1"]).unwrap(), "OK");
}

#[test]
fn a_killed_kafka_answers_again_at_its_address_and_keeps_its_topics() {
    let mut kafka = Running::start(&KAFKA.args(["--override", "num.partitions=2"])).unwrap();
    let url = kafka.url().to_owned();
    kafka.create_topic("kept", 3).unwrap();
    kafka.kill().unwrap();
    assert!(kafka.create_topic("refused", 1).is_err());
    kafka.restart().unwrap();
    assert_eq!(kafka.url(), url);
    kafka.create_topic("new", 1).unwrap();
    let error = kafka.create_topic("kept", 3).unwrap_err().to_string();
    assert!(error.contains("already exists"), "{error}");
}

#[test]
fn a_kafka_cluster_goes_on_without_its_leader_and_takes_it_back() {
    let mut cluster = KafkaCluster::start(&KAFKA, 3).unwrap();
    assert_eq!(cluster.addresses().split(',').count(), 3);
    cluster.nodes[0].create_topic("kept", 1).unwrap();
    cluster.caught_up("kept").unwrap();
    let first = cluster.leader("kept", 0).unwrap();
    cluster.nodes[first].kill().unwrap();
    let next = cluster.leader("kept", 0).unwrap();
    assert_ne!(next, first);
    cluster.nodes[next].create_topic("new", 1).unwrap();
    cluster.nodes[first].restart().unwrap();
    cluster.complete().unwrap();
    cluster.caught_up("kept").unwrap();
}

#[test]
fn postgres_and_redis_accept_tls() {
    let folder = folder("tls");
    let certificates = certificates(&folder);
    let postgres = Running::start(&POSTGRES.tls(&certificates)).unwrap();
    assert_eq!(postgres.sql("SHOW ssl").unwrap(), "on");
    let encrypted = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    assert_eq!(postgres.sql(encrypted).unwrap(), "t");
    let redis = Running::start(&REDIS.tls(&certificates)).unwrap();
    let port = format!("127.0.0.1:{}", redis.tls_port());
    let mut openssl = Command::new("openssl");
    openssl.args([
        "s_client",
        "-connect",
        &port,
        "-verify_return_error",
        "-verify_ip",
        "127.0.0.1",
    ]);
    openssl.arg("-CAfile").arg(certificates.authority()).stdin(std::process::Stdio::null());
    let output = openssl.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::remove_dir_all(folder).unwrap();
}
