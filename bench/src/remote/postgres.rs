//! The PostgreSQL store compared with pgbench, which inserts the same columns row by row, and with a bare insert of a
//! thousand rows at once.

use std::{
    io::Write,
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use futures_util::future::try_join_all;
use semel_bench::report::{line, spread};
use semel_core::{Span, Store, Terms};
use semel_store_postgres::{PostgresStore, PostgresStoreBuilder};
use tokio_postgres::{Client, NoTls, types::ToSql};

use crate::{
    callers::{RemoteLoad, Shape, claim},
    waking,
};

/// The options of the benchmark.
#[derive(clap::Args)]
pub(crate) struct PostgresBenchOptions {
    /// The server. Tables are made in schemas of their own, and dropped at the end.
    #[arg(long)]
    url: String,
    /// Its port, for pgbench.
    #[arg(long)]
    port: u16,
    /// The program pgbench.
    #[arg(long)]
    pgbench: PathBuf,
    /// Runs of each side, taken in turns.
    #[arg(long, default_value_t = 5)]
    repeats: usize,
    /// Milliseconds of each run.
    #[arg(long, default_value_t = 2000)]
    millis: u64,
    /// Only run this many callers that claim, for a profile.
    #[arg(long, hide = true)]
    only: Option<usize>,
}

const SCHEMA: &str = "semel_bench";
/// Connections of the single path and of pgbench.
const SINGLES: usize = 16;
/// Connections of the batched path and of the bare insert.
const BATCHED: usize = 2;
/// Callers that fill batches.
const CROWD: usize = 4096;
/// Rows of the bare insert.
const ROWS: u64 = 1000;

pub(crate) async fn run(options: &PostgresBenchOptions) -> Result<()> {
    let client = options.client().await?;
    client.batch_execute(&format!("DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")).await?;
    let result = options.measure(&client).await;
    client.batch_execute(&format!("DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")).await?;
    result
}

impl PostgresBenchOptions {
    async fn measure(&self, client: &Client) -> Result<()> {
        let batched = self.builder().connections(BATCHED).connect().await?;
        let single = self.builder().connections(SINGLES).batch(1).connect().await?;
        if let Some(callers) = self.only {
            let rate = self.load(callers, Shape::Claims).run(&batched).await?;
            println!("{rate:.0} claims/s");
            return Ok(());
        }
        client.batch_execute(PLAIN).await?;
        self.claims(client, &single, &batched).await?;
        self.purge(&batched).await?;
        waking::run(batched, single).await
    }

    async fn claims(
        &self,
        client: &Client,
        single: &PostgresStore,
        batched: &PostgresStore,
    ) -> Result<()> {
        let mut runs: [Vec<f64>; 6] = Default::default();
        for _ in 0..self.repeats {
            // All tables are emptied before each side, so that no side pays for the rows of another.
            client.batch_execute(EMPTY).await?;
            runs[0].push(self.pgbench()?);
            runs[1].push(self.load(SINGLES, Shape::Claims).run(single).await?);
            client.batch_execute(EMPTY).await?;
            runs[2].push(self.bare_batches().await?);
            client.batch_execute(EMPTY).await?;
            runs[3].push(self.load(CROWD, Shape::Claims).run(batched).await?);
            client.batch_execute(EMPTY).await?;
            runs[4].push(self.load(CROWD, Shape::Cycles).run(batched).await?);
            runs[5].push(self.load(CROWD, Shape::Replays).run(batched).await?);
        }
        report(&runs);
        Ok(())
    }

    /// Purges ten thousand expired records at a time.
    async fn purge(&self, store: &PostgresStore) -> Result<()> {
        let brief = Span::from_millis(1);
        let mut took = Vec::new();
        for round in 0..self.repeats as u64 {
            let first: u64 = rand::random::<u64>() >> 1;
            let requests: Vec<_> = (0..10_000)
                .map(|i| {
                    let mut request = claim(first + round * 10_000 + i);
                    request.terms = Terms { lease: brief, retention: brief, ..request.terms };
                    request
                })
                .collect();
            for answer in store.claim_many(&requests).await {
                answer?;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
            let started = Instant::now();
            let purged = store.purge(10_000).await?;
            took.push(started.elapsed().as_secs_f64() * 1e3);
            ensure!(purged.deleted == 10_000, "purged {purged:?}");
        }
        let (middle, low, high) = spread(&mut took);
        let text = format!("{middle:.0} ms ({low:.0}–{high:.0})");
        line("purge of 10,000 expired", &text, "< 100 ms", Some(middle < 100.0));
        Ok(())
    }

    /// Inserts the same columns row by row with pgbench.
    fn pgbench(&self) -> Result<f64> {
        let mut script = tempfile::NamedTempFile::new()?;
        script.write_all(ONE_ROW.as_bytes())?;
        let seconds = self.millis.div_ceil(1000).to_string();
        let output = Command::new(&self.pgbench)
            .args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-U", "postgres"])
            .args(["-n", "-M", "prepared", "-j", "1", "-c", &SINGLES.to_string(), "-T", &seconds])
            .arg("-f")
            .arg(script.path())
            .arg("postgres")
            .output()
            .context("pgbench does not start")?;
        let text = String::from_utf8_lossy(&output.stdout);
        let rate = text
            .lines()
            .find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse().ok());
        rate.with_context(|| {
            format!("pgbench printed {text} {}", String::from_utf8_lossy(&output.stderr))
        })
    }

    /// Rows per second of inserts without conditions and results.
    async fn bare_batches(&self) -> Result<f64> {
        let time = Duration::from_millis(self.millis);
        let clients = try_join_all((0..BATCHED).map(|_| self.client())).await?;
        let started = Instant::now();
        let insert = |client: Client| async move {
            let statement = client.prepare(MANY_ROWS).await?;
            let (mut next, mut rows) = (rand::random::<u64>() >> 1, 0);
            while started.elapsed() < time {
                next += ROWS;
                rows += insert_rows(&client, &statement, next).await?;
            }
            anyhow::Ok(rows)
        };
        let insert = |client| tokio::spawn(insert(client));
        let rows = try_join_all(clients.into_iter().map(insert)).await?;
        let rows: u64 = rows.into_iter().sum::<Result<u64>>()?;
        Ok(rows as f64 / started.elapsed().as_secs_f64())
    }

    fn load(&self, callers: usize, shape: Shape) -> RemoteLoad {
        RemoteLoad { callers, time: Duration::from_millis(self.millis), shape }
    }

    fn builder(&self) -> PostgresStoreBuilder {
        PostgresStore::builder(&self.url).schema(SCHEMA).migrate(true)
    }

    async fn client(&self) -> Result<Client> {
        let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }
}

async fn insert_rows(
    client: &Client,
    statement: &tokio_postgres::Statement,
    first: u64,
) -> Result<u64> {
    let mut requests: Vec<_> = (first..first + ROWS).map(claim).collect();
    requests.sort_unstable_by_key(|request| request.key);
    let keys: Vec<&[u8]> = requests.iter().map(|it| &it.key.as_bytes()[..]).collect();
    let fingerprints: Vec<&[u8]> =
        requests.iter().map(|it| &it.fingerprint.as_bytes()[..]).collect();
    let nonces: Vec<&[u8]> = requests.iter().map(|it| &it.nonce.as_bytes()[..]).collect();
    let spans = vec![86_400_000i64; requests.len()];
    let policies = vec![0i16; requests.len()];
    let (caps, texts) = (vec![None::<i32>; requests.len()], vec![None::<String>; requests.len()]);
    let parameters: [&(dyn ToSql + Sync); 13] = [
        &keys,
        &fingerprints,
        &nonces,
        &spans,
        &spans,
        &spans,
        &spans,
        &policies,
        &caps,
        &texts,
        &texts,
        &texts,
        &texts,
    ];
    Ok(client.execute(statement, &parameters).await?)
}

fn report(runs: &[Vec<f64>; 6]) {
    let rate = |run: &[f64]| {
        let (middle, low, high) = spread(&mut run.to_vec());
        format!("{middle:.0}/s ({low:.0}–{high:.0})")
    };
    let ratio = |one: &[f64], other: &[f64]| {
        let mut ratios: Vec<_> = one.iter().zip(other).map(|(a, b)| 100.0 * a / b).collect();
        spread(&mut ratios)
    };
    let [pgbench, single, bare, batched, cycles, replays] = runs;
    line("pgbench, 16 connections", &rate(pgbench), "", None);
    let (middle, low, high) = ratio(single, pgbench);
    let text = format!("{}, {middle:.0} % ({low:.0}–{high:.0})", rate(single));
    line("single claims, 16 connections", &text, "≥ 85 %", Some(middle >= 85.0));
    line("bare insert of 1,000, 2 connections", &rate(bare), "", None);
    let (middle, low, high) = ratio(batched, bare);
    let text = format!("{}, {middle:.0} % ({low:.0}–{high:.0})", rate(batched));
    line("batched claims, 4,096 callers", &text, "≥ 50 %", Some(middle >= 50.0));
    let (middle, low, high) = ratio(batched, single);
    let text = format!("{:.1}x ({:.1}–{:.1})", middle / 100.0, low / 100.0, high / 100.0);
    line("batched beside single", &text, "≥ 8x", Some(middle >= 800.0));
    line("cycles, 4,096 callers", &rate(cycles), "", None);
    line("replays, 4,096 callers", &rate(replays), "", None);
}

const PLAIN: &str =
    "CREATE TABLE semel_bench.plain (LIKE semel_bench.idempotency_keys INCLUDING ALL)";
const EMPTY: &str = "TRUNCATE semel_bench.plain, semel_bench.idempotency_keys; CHECKPOINT";

const ONE_ROW: &str = "\
INSERT INTO semel_bench.plain (key_hash, fingerprint, nonce, lease_ms, retention_ms, failure_retention_ms, \
on_lost_owner, state, token, attempts, dirty, abandoned, waited, claimed_at, lease_until, created_at, expires_at) \
VALUES (sha256(random()::text::bytea), sha256('a'), '\\x00112233445566778899aabbccddeeff', 30000, 86400000, \
86400000, 0, 2, 1, 1, false, false, false, clock_timestamp(), clock_timestamp() + interval '30 s', \
clock_timestamp(), clock_timestamp() + interval '1 day') ON CONFLICT DO NOTHING;
";

const MANY_ROWS: &str = "\
INSERT INTO semel_bench.plain (key_hash, fingerprint, nonce, lease_ms, retention_ms, failure_retention_ms, \
on_lost_owner, max_attempts, namespace, principal, operation, caller_id, state, token, attempts, dirty, \
abandoned, waited, claimed_at, lease_until, created_at, expires_at) \
SELECT i.a, i.b, i.c, i.d, i.e, i.f, i.h, i.i, i.j, i.k, i.l, i.m, 2, 1, 1, false, false, false, now(), \
now() + i.d * interval '1 ms', now(), now() + i.g * interval '1 ms' \
FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], \
$8::smallint[], $9::integer[], $10::text[], $11::text[], $12::text[], $13::text[]) \
AS i(a, b, c, d, e, f, g, h, i, j, k, l, m)";
