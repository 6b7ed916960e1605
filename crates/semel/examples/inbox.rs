//! Events with effects in PostgreSQL: a source delivers every event twice, and each user is welcomed once.
//!
//! `DATABASE_URL=postgres://… cargo run -p semel --features inbox-sqlx --example inbox`

use std::{collections::VecDeque, env, error::Error, time::Duration};

use semel::{
    WorkError,
    inbox::{Done, InboxContext, InboxError, InboxEvent, PgInbox, SqlxTx},
};
use sqlx::{
    AssertSqlSafe, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};

/// The event that the source delivers.
#[derive(Clone)]
struct UserRegistered {
    id: String,
    email: &'static str,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let Ok(url) = env::var("DATABASE_URL") else {
        println!(
            "nothing to do: set DATABASE_URL to a PostgreSQL, such as postgres://app@localhost/app"
        );
        return Ok(());
    };
    // A schema for this run, dropped at the end.
    let schema = format!("semel_example_{}", std::process::id());
    let options = url.parse::<PgConnectOptions>()?.options([("search_path", &schema)]);
    let pool = PgPoolOptions::new().connect_with(options).await?;
    sqlx::query(AssertSqlSafe(format!("CREATE SCHEMA {schema}"))).execute(&pool).await?;
    let ran = run(&pool, &schema).await;
    sqlx::query(AssertSqlSafe(format!("DROP SCHEMA {schema} CASCADE"))).execute(&pool).await?;
    ran
}

async fn run(pool: &PgPool, schema: &str) -> Result<(), Box<dyn Error>> {
    sqlx::query("CREATE TABLE profiles (email text)").execute(pool).await?;
    sqlx::query("CREATE TABLE emails (recipient text, key text)").execute(pool).await?;
    let inbox =
        PgInbox::builder(pool.clone()).schema(schema).consumer("welcome").install(true).build();
    let inbox = inbox.await?;
    let _maintenance = inbox.maintain_every(Duration::from_secs(3600));

    let mut source = deliveries();
    while let Some(event) = source.pop_front() {
        let known_by = InboxEvent::new(&event.id, "UserRegistered")?;
        match inbox.process(&known_by, async |tx, ctx| welcome(tx, ctx, &event).await).await {
            Ok(Done::Now(())) => println!("{}: welcomed, acknowledged", event.email),
            Ok(Done::Duplicate(_)) => println!("{}: already processed, acknowledged", event.email),
            // A duplicate is being processed, or the failure may be temporary: try again later.
            Ok(Done::Busy) | Err(InboxError::Retry(_)) => source.push_back(event),
            Err(InboxError::Failed { replayed, .. }) => {
                println!("{}: failed for good (again: {replayed}), dead-lettered", event.email);
            }
            Err(error) => return Err(error.into()),
        }
    }

    let count = "SELECT (SELECT count(*) FROM profiles), (SELECT count(*) FROM emails)";
    let (profiles, emails): (i64, i64) = sqlx::query_as(count).fetch_one(pool).await?;
    println!("{profiles} profiles, {emails} e-mails in the queue");
    assert_eq!((profiles, emails), (3, 3));
    Ok(())
}

/// Profile, e-mail and event commit together or not at all.
async fn welcome(
    tx: &mut SqlxTx,
    ctx: &InboxContext,
    event: &UserRegistered,
) -> Result<(), WorkError> {
    let profile = "INSERT INTO profiles (email) VALUES ($1)";
    sqlx::query(profile).bind(event.email).execute(&mut **tx).await?;
    if !event.email.contains('@') {
        return Err(WorkError::failure("not-an-address", "it has no @"));
    }
    // Another process sends the e-mail after the commit. The key is the same in every copy, so it sends one.
    let email = "INSERT INTO emails (recipient, key) VALUES ($1, $2)";
    let key = ctx.downstream_key().to_string();
    sqlx::query(email).bind(event.email).bind(key).execute(&mut **tx).await?;
    Ok(())
}

/// Four users, each of them twice.
fn deliveries() -> VecDeque<UserRegistered> {
    let emails = ["ada@example.com", "grace@example.com", "not an address", "edsger@example.com"];
    let events = emails.into_iter().enumerate();
    let events = events.map(|(at, email)| UserRegistered { id: format!("user-{at}"), email });
    let events: Vec<_> = events.collect();
    events.iter().chain(&events).cloned().collect()
}
