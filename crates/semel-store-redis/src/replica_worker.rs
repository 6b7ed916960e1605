//! A connection of a front, and the calls about copies that go over it.

use std::{sync::Arc, time::Instant};

use redis::cmd;
use semel_core::Result;
use semel_remote::batch::Batches;

use crate::{
    connection::Line,
    connection::{Link, Reply, time_of},
    error::{Trouble, odd_reply, wrong_record},
    replica_request::{Ask, Said},
    script::How,
    settings::Plan,
    value::Unreadable,
};

/// A trip with more bytes takes no more calls: it has to be over within the call timeout.
const TRIP_BYTES: usize = 8 << 20;

/// One connection of a front.
#[derive(Debug)]
pub(crate) struct Copier {
    plan: Arc<Plan>,
    line: Line,
}

impl Copier {
    pub(crate) async fn open(plan: Arc<Plan>) -> Result<Self> {
        let line = Line::open(plan.clone()).await?;
        Ok(Self { plan, line })
    }

    pub(crate) async fn run(mut self, mut batches: Batches<Ask, Result<Said>>) {
        let mut checks = self.plan.check.subscribe();
        loop {
            tokio::select! {
                biased;
                // The plan, which is the sender, lives as long as this.
                Ok(()) = checks.changed() => self.line.check().await,
                batch = batches.gather() => {
                    let Some(batch) = batch else { return };
                    let answers = self.serve(&batch.calls).await;
                    batch.reply.send(answers);
                }
            }
        }
    }

    async fn serve(&mut self, asks: &[Ask]) -> Vec<Result<Said>> {
        let mut answers = Vec::with_capacity(asks.len());
        while answers.len() < asks.len() {
            let trip = trip(&asks[answers.len()..]);
            match self.send(trip).await {
                Ok(said) => answers.extend(said),
                Err(error) => answers.extend(trip.iter().map(|_| Err(error.clone()))),
            }
        }
        answers
    }

    /// Sends calls together. An error says that nothing from this connection can be trusted any more.
    async fn send(&mut self, asks: &[Ask]) -> Result<Vec<Result<Said>>> {
        let plan = self.plan.clone();
        let link = self.line.up().await?;
        let sent = async {
            plan.is_still_ours(link).await?;
            let mut replies = sent(link, &plan, asks, How::ByHash).await?;
            // The server forgot a script, and nothing happened.
            for (ask, reply) in asks.iter().zip(&mut replies) {
                if matches!(reply, Err(Trouble::NoScript)) {
                    let again = sent(link, &plan, std::slice::from_ref(ask), How::InFull).await?;
                    *reply = again.into_iter().next().ok_or_else(odd_reply)?;
                }
            }
            asks.iter().zip(replies).map(|(ask, reply)| taken(&plan, ask, reply)).collect()
        };
        let said: Result<Vec<Result<Said>>> = sent.await;
        if let Err(error) = &said {
            self.line.lost(error);
        }
        said
    }
}

/// As many as go in one trip, but one in any case.
fn trip(asks: &[Ask]) -> &[Ask] {
    let mut bytes = 0;
    let fits = asks.iter().take_while(|ask| {
        let fits = bytes < TRIP_BYTES;
        bytes += ask.bytes();
        fits
    });
    &asks[..fits.count().max(1).min(asks.len())]
}

async fn sent(link: &mut Link, plan: &Plan, asks: &[Ask], how: How) -> Result<Vec<Reply>> {
    // Never ahead: a copy must not outlive what it is a copy of.
    let now = plan.clock.at_least();
    let mut commands: Vec<_> = asks.iter().map(|ask| ask.command(&plan.names, how, now)).collect();
    let asks_time = plan.clock.is_stale();
    if asks_time {
        commands.push(cmd("TIME"));
    }
    let asked = Instant::now();
    let mut replies: Vec<_> = link.send(commands, plan.call_timeout).await?.collect();
    if asks_time && let Some(Ok(time)) = replies.pop() {
        plan.clock.tell(time_of(&time)?, asked);
    }
    Ok(replies)
}

/// What one call was answered with; the outer error is the connection's.
fn taken(plan: &Plan, ask: &Ask, reply: Reply) -> Result<Result<Said>> {
    let value = match reply {
        Ok(value) => value,
        Err(Trouble::Call(error)) => return Ok(Err(error)),
        Err(Trouble::Link(error)) => return Err(error),
        Err(Trouble::NoScript | Trouble::Odd) => return Err(odd_reply()),
    };
    match ask.taken(value, plan.clock.now()) {
        Ok(said) => Ok(Ok(said?)),
        Err(Unreadable::Value(error)) => Ok(Err(error)),
        Err(Unreadable::MixedUp(error)) => {
            tracing::error!(%error, "redis: replies are mixed up");
            Err(wrong_record())
        }
    }
}
