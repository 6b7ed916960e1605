//! Batches in transactions of the inbox: the table that the handler writes and the inbox agree, and a committed offset
//! passes no record whose transaction has not been committed.

use std::{
    collections::{BTreeMap, HashSet},
    env,
    io::Read,
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};

use deadpool_postgres::{Manager, Pool};
use rdkafka::{
    consumer::BaseConsumer,
    message::{Header, OwnedHeaders},
    producer::{FutureProducer, FutureRecord},
};
use semel_consumer::{
    Consumer, ConsumerControl, Event, EventContext, Handler,
    dead_letter::{DeadLetter, DeadLetterQueue, FileDeadLetters, MemoryDeadLetters},
    pipeline::{Backoff, CircuitBreaker},
    transaction_fn,
};
use semel_core::WorkError;
use semel_inbox::{DeadpoolTx, PgInbox};
use semel_servers::needed;
use semel_source_kafka::{KafkaSource, KafkaSourceBuilder};
use tokio::{
    runtime::Runtime,
    task::{JoinHandle, block_in_place},
};
use tokio_postgres::{Client, NoTls};

use crate::common::{CLASSIC, KIP_848, PARTITIONS, PATIENCE, TestTopic, client, committed, until};

const EVENTS: u32 = 600;
const BATCH: usize = 50;
/// What the inbox has before an id that comes from the event.
const ID: &str = "idempotency:";

/// The handler refuses every tenth event for good.
const fn is_refused(number: u32) -> bool {
    number % 10 == 7
}

/// The events of a topic: for each partition the numbers of the events in the order of their offsets.
type Log = BTreeMap<i32, Vec<u32>>;

struct Scene {
    topic: TestTopic,
    log: Log,
    url: String,
    schema: String,
    client: Client,
    letters: Arc<dyn DeadLetterQueue>,
}

impl Scene {
    async fn new(options: &'static str) -> Self {
        let mut topic = TestTopic::new().await;
        topic.options = options;
        let url = needed("SEMEL_TEST_POSTGRES_URL");
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
        tokio::spawn(connection);
        let schema = format!("kafka_{:016x}", rand::random::<u64>());
        let tables =
            format!("CREATE SCHEMA {schema}; CREATE TABLE {schema}.effects (number int NOT NULL)");
        client.batch_execute(&tables).await.unwrap();
        let log = publish(&topic).await;
        Self { topic, log, url, schema, client, letters: Arc::new(MemoryDeadLetters::new()) }
    }

    fn records(&self) -> usize {
        self.log.values().map(Vec::len).sum()
    }

    fn setup(&self) -> ConsumerSetup {
        ConsumerSetup {
            source: self.topic.builder(),
            url: self.url.clone(),
            schema: self.schema.clone(),
            letters: self.letters.clone(),
            max_attempts: 100,
            failures: 0.05,
        }
    }

    async fn effects(&self) -> usize {
        let count = format!("SELECT count(*) FROM {}.effects", self.schema);
        let count: i64 = self.client.query_one(&count, &[]).await.unwrap().get(0);
        usize::try_from(count).unwrap()
    }

    /// What the inbox has recorded: the numbers of events, and whether they failed.
    async fn recorded(&self) -> BTreeMap<u32, bool> {
        let rows = format!(
            "SELECT event_id, failed FROM {}.processed_events WHERE event_id NOT LIKE '%#%'",
            self.schema
        );
        let rows = self.client.query(&rows, &[]).await.unwrap();
        let number = |id: &str| id.strip_prefix(ID).unwrap().parse().unwrap();
        rows.iter().map(|row| (number(row.get(0)), row.get(1))).collect()
    }

    async fn dead_letters(&self) -> Vec<DeadLetter> {
        self.letters.list(None, 2 * EVENTS as usize).await.unwrap()
    }

    async fn lettered(&self) -> HashSet<String> {
        self.dead_letters().await.into_iter().filter_map(|letter| letter.event_id).collect()
    }

    /// Reads the committed offsets until all records are committed. Each time it asserts that the inbox has recorded
    /// everything before them: the offsets are read first.
    async fn watch(&self) {
        let group: BaseConsumer =
            client(&self.topic.brokers).set("group.id", &self.topic.group).create().unwrap();
        let mut looks = 0;
        until("all records are committed", async || {
            let offsets = block_in_place(|| committed(&group, &self.topic.name));
            let (letters, recorded) = (self.lettered().await, self.recorded().await);
            for (partition, next) in (0..).zip(&offsets) {
                let before = usize::try_from(*next).unwrap_or_default();
                for number in self.log.get(&partition).into_iter().flatten().take(before) {
                    assert_eq!(
                        recorded.get(number),
                        Some(&is_refused(*number)),
                        "partition {partition}: {next} is committed, and event {number} before it is not recorded"
                    );
                    assert!(!is_refused(*number) || letters.contains(&number.to_string()));
                }
            }
            looks += 1;
            let all: i64 = offsets.into_iter().filter(|next| *next > 0).sum();
            usize::try_from(all).unwrap() == self.records()
        })
        .await;
        assert!(looks > 5, "it has looked {looks} times");
    }

    /// Asserts that the effects and the inbox agree row by row, and that each refused event has one dead letter.
    async fn finish(self) {
        let rows = format!(
            "SELECT e.event_id, i.event_id FROM (SELECT '{ID}' || number AS event_id FROM {0}.effects) e \
             FULL JOIN (SELECT event_id FROM {0}.processed_events
                WHERE NOT failed AND event_id NOT LIKE '%#%') i USING (event_id)",
            self.schema
        );
        let rows = self.client.query(&rows, &[]).await.unwrap();
        for row in &rows {
            let (effect, recorded): (Option<&str>, Option<&str>) = (row.get(0), row.get(1));
            assert_eq!(effect, recorded);
        }
        let refused = (0..EVENTS).filter(|number| is_refused(*number)).count();
        assert_eq!(rows.len(), EVENTS as usize - refused, "each event has one effect");
        assert_eq!(self.recorded().await.len(), EVENTS as usize);
        assert_eq!(
            (self.dead_letters().await.len(), self.lettered().await.len()),
            (refused, refused)
        );
        self.remove().await;
    }

    async fn remove(self) {
        let drop = format!("DROP SCHEMA {} CASCADE", self.schema);
        self.client.batch_execute(&drop).await.unwrap();
    }
}

/// What a consumer is made of.
struct ConsumerSetup {
    source: KafkaSourceBuilder,
    url: String,
    schema: String,
    letters: Arc<dyn DeadLetterQueue>,
    max_attempts: u32,
    /// How probable it is that an attempt fails.
    failures: f64,
}

impl ConsumerSetup {
    /// A consumer with connections of its own, which end with the runtime of the caller.
    async fn open(self) -> Consumer {
        let manager = Manager::new(self.url.parse().unwrap(), NoTls);
        let pool = Pool::builder(manager).max_size(8).build().unwrap();
        let inbox = PgInbox::builder(pool).schema(&self.schema).consumer("tests");
        let inbox = inbox.install(true).build().await.unwrap();
        Consumer::builder(self.source.connect().await.unwrap())
            .name("tests")
            .dead_letters(self.letters)
            .backoff(Backoff { first: Duration::from_millis(20), max: Duration::from_millis(100) })
            .circuit_breaker(CircuitBreaker::new(u32::MAX, CircuitBreaker::PAUSES))
            .max_attempts(self.max_attempts)
            .concurrency(4)
            .max_in_flight(4 * BATCH)
            .transactional_batch(inbox, handler(&self.schema, self.failures), BATCH)
            .build()
            .unwrap()
    }

    /// Runs a consumer in the runtime of the caller.
    async fn run(self) -> (ConsumerControl, JoinHandle<()>) {
        let consumer = self.open().await;
        let control = consumer.control();
        (control, tokio::spawn(async move { consumer.run().await.map(drop).unwrap() }))
    }
}

/// Publishes events, three in ten of them twice. Half of them have no key, so that their copies may be in two partitions.
async fn publish(topic: &TestTopic) -> Log {
    let producer: FutureProducer = client(&topic.brokers).set("linger.ms", "0").create().unwrap();
    let mut log = Log::new();
    for number in 0..EVENTS {
        for _ in 0..if number % 10 < 3 { 2 } else { 1 } {
            let (id, key) = (number.to_string(), format!("key {}", number % 200));
            let headers = OwnedHeaders::new().insert(Header { key: "event_id", value: Some(&id) });
            let mut record = FutureRecord::to(&topic.name).payload(&id).headers(headers);
            if number % 2 == 0 {
                record = record.key(&key);
            } else {
                record = record.partition(rand::random_range(0..PARTITIONS));
            }
            let sent = producer.send(record, PATIENCE).await.unwrap();
            let events = log.entry(sent.partition).or_default();
            assert_eq!(usize::try_from(sent.offset).unwrap(), events.len(), "no gaps");
            events.push(number);
        }
    }
    log
}

/// Writes the event's number. Some attempts fail after that.
fn handler(schema: &str, failures: f64) -> impl Handler<DeadpoolTx> + use<> {
    let insert = format!("INSERT INTO {schema}.effects VALUES ($1)");
    transaction_fn(move |tx: &mut DeadpoolTx, event: Event<u32>, _: EventContext| {
        let insert = insert.clone();
        Box::pin(async move {
            tx.execute(&insert, &[&i32::try_from(event.data).unwrap_or(-1)]).await?;
            tokio::time::sleep(Duration::from_millis(rand::random_range(0..2))).await;
            match event.data {
                number if is_refused(number) => {
                    Err(WorkError::failure("refused", "the test refuses this event"))
                }
                _ if rand::random_bool(failures) => Err(WorkError::retry("this attempt fails")),
                _ => Ok(()),
            }
        })
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn effects_inbox_and_committed_offsets_agree_with_two_consumers() {
    for options in [CLASSIC, KIP_848] {
        let scene = Scene::new(options).await;
        let consumers = [scene.setup().run().await, scene.setup().run().await];
        scene.watch().await;
        for (control, running) in consumers {
            control.stop();
            running.await.unwrap();
        }
        scene.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn effects_inbox_and_committed_offsets_agree_when_a_consumer_is_lost() {
    for options in [CLASSIC, KIP_848] {
        let scene = Scene::new(options).await;
        let runtime = Runtime::new().unwrap();
        // Its connections and its transactions end with its runtime.
        let (lost_control, lost) = runtime.spawn(scene.setup().run()).await.unwrap();
        // It would keep the source open, which would keep its partitions.
        drop(lost_control);
        let (control, running) = scene.setup().run().await;
        let losing = async {
            let before = EVENTS as usize / 4;
            until("some events are done", async || scene.effects().await > before).await;
            runtime.shutdown_background();
            assert!(lost.await.unwrap_err().is_cancelled());
        };
        futures_util::join!(scene.watch(), losing);
        control.stop();
        running.await.unwrap();
        scene.finish().await;
    }
}

/// Names the folder for dead letters, and makes a process of [`consumes_until_it_is_killed`].
const KILLED_PROCESS: &str = "SEMEL_TEST_KILLED_CONSUMER";

/// A consumer in a process of its own, which runs this test binary. It ends with the pipe, too, so that it does not
/// outlive a test that is killed.
fn process_to_kill(scene: &Scene, folder: &str) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["inbox::consumes_until_it_is_killed", "--exact", "--nocapture"])
        .env(KILLED_PROCESS, folder)
        .env("SEMEL_TEST_SOURCE", scene.topic.source_url())
        .env("SEMEL_TEST_SCHEMA", &scene.schema)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Consumes in the process that [`process_to_kill`] starts. In the test process itself it has nothing to do.
#[tokio::test(flavor = "multi_thread")]
async fn consumes_until_it_is_killed() {
    let Ok(folder) = env::var(KILLED_PROCESS) else { return };
    thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(1);
    });
    let setup = ConsumerSetup {
        source: KafkaSource::builder(&env::var("SEMEL_TEST_SOURCE").unwrap()),
        url: needed("SEMEL_TEST_POSTGRES_URL"),
        schema: env::var("SEMEL_TEST_SCHEMA").unwrap(),
        letters: Arc::new(FileDeadLetters::open(folder).await.unwrap()),
        max_attempts: 100,
        failures: 0.05,
    };
    setup.open().await.run().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn effects_inbox_and_committed_offsets_agree_when_processes_are_killed() {
    const KILLS: usize = 3;
    let mut scene = Scene::new(CLASSIC).await;
    let folder = env::temp_dir().join(&scene.schema);
    scene.letters = Arc::new(FileDeadLetters::open(&folder).await.unwrap());
    let killing = async {
        for kill in 1..=KILLS {
            let mut process = process_to_kill(&scene, folder.to_str().unwrap());
            let wanted = kill * EVENTS as usize / (KILLS + 3);
            until("some events are done", async || scene.effects().await > wanted).await;
            // SIGKILL: nothing is given back, and no transaction ends by itself.
            process.kill().unwrap();
            process.wait().unwrap();
        }
        scene.setup().run().await
    };
    let ((control, running), ()) = futures_util::join!(killing, scene.watch());
    control.stop();
    running.await.unwrap();
    scene.finish().await;
    std::fs::remove_dir_all(folder).unwrap();
}

/// Kafka counts no deliveries, and the inbox counts attempts.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_always_fails_becomes_a_dead_letter() {
    let scene = Scene::new(CLASSIC).await;
    let setup = ConsumerSetup { max_attempts: 3, failures: 1.0, ..scene.setup() };
    let (control, running) = setup.run().await;
    until("each event has a dead letter", async || scene.lettered().await.len() == EVENTS as usize)
        .await;
    control.stop();
    running.await.unwrap();
    assert_eq!(scene.effects().await, 0);
    scene.remove().await;
}
