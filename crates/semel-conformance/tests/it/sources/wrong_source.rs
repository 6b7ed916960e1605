//! The source in memory with one bug.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use async_trait::async_trait;
use semel_conformance::sources::{SourceAbility, SourceFixture};
use semel_consumer::{
    ConsumerPlan, Delivery, Message, Settlement, Source, SourceInfo, memory::MemorySource,
};
use semel_core::{Finding, Outcome, Result};
use tokio::{sync::Mutex, time::sleep};

use super::memory::{ACK_DEADLINE, Memory};

/// One bug of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bug {
    None,
    AcksAtReceive,
    AcksSilentlyNothing,
    AcksANeighbour,
    LosesANack,
    IgnoresDelays,
    TakesARejectForANack,
    ReordersAKey,
    ForgetsOrderingKeys,
    HandsOverMoreThanMax,
    HandsOverTwice,
    EndsWhenIdle,
    ChangesThePayload,
    ReadsThePayloadAsText,
    DropsAHeader,
    KeepsTheLastValueOfAHeader,
    MakesUpMessageIds,
    LosesTheMessageId,
    CountsInThePosition,
    HasOnePosition,
    StopsCounting,
    NeverRedeliversUnsettled,
    /// On a broker without deadlines.
    KeepsWhatWasDropped,
    KeepsWhatADroppedCallTook,
    DoesNotExtend,
    ExtendsAfterANack,
    RevivesByExtending,
    LosesWhatItHoldsAtClose,
    LosesUnsettledAtARestart,
    ReportsALagThatStays,
}

/// A [`MemorySource`] with a bug. Connections share what the bug needs.
pub(super) struct WrongFixture {
    memory: Memory,
    bug: Bug,
    shared: Arc<Shared>,
    patience: Duration,
}

#[derive(Default)]
struct Shared {
    restarted: AtomicBool,
    published: std::sync::atomic::AtomicU64,
    kept: Mutex<Vec<Arc<dyn Settlement>>>,
}

impl WrongFixture {
    pub(super) fn new(bug: Bug, patience: Duration) -> Self {
        let memory = match bug {
            Bug::KeepsWhatWasDropped => Memory::without_deadlines(),
            _ => Memory::new(),
        };
        Self { memory, bug, shared: Arc::default(), patience }
    }
}

#[async_trait]
impl SourceFixture for WrongFixture {
    async fn publish(&self, message: Message) {
        self.shared.published.fetch_add(1, SeqCst);
        self.memory.publish(message).await;
    }

    async fn open(&self) -> Arc<dyn Source> {
        let (source, shared) = (self.memory.0.clone(), self.shared.clone());
        Arc::new(WrongSource { source, bug: self.bug, shared, open: Arc::default() })
    }

    async fn restart_broker(&self) {
        self.memory.restart_broker().await;
        self.shared.restarted.store(true, SeqCst);
    }

    fn unsupported(&self) -> &[SourceAbility] {
        self.memory.unsupported()
    }

    fn ack_deadline(&self) -> Duration {
        ACK_DEADLINE
    }

    fn patience(&self) -> Duration {
        self.patience
    }

    fn events(&self) -> usize {
        500
    }
}

/// A settlement, and whether it was used.
type Open = Arc<Mutex<Vec<(Arc<dyn Settlement>, Arc<AtomicBool>)>>>;

struct WrongSource {
    source: MemorySource,
    bug: Bug,
    shared: Arc<Shared>,
    /// Settlements of all deliveries.
    open: Open,
}

impl std::fmt::Debug for WrongSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WrongSource({:?})", self.bug)
    }
}

#[async_trait]
impl Source for WrongSource {
    async fn receive(&self, max: usize) -> Result<Vec<Delivery>> {
        let max = max + usize::from(self.bug == Bug::HandsOverMoreThanMax);
        let received = match self.bug {
            Bug::EndsWhenIdle => {
                tokio::time::timeout(ACK_DEADLINE / 2, self.source.receive(max)).await
            }
            _ => Ok(self.source.receive(max).await),
        };
        let Ok(received) = received else { return Ok(Vec::new()) };
        let mut deliveries = Vec::new();
        for delivery in received? {
            deliveries.push(self.wrong(delivery).await);
        }
        match self.bug {
            Bug::ReordersAKey => deliveries.reverse(),
            Bug::KeepsWhatADroppedCallTook => {
                let mut taken = TakenByACall(deliveries);
                sleep(Duration::from_millis(5)).await;
                deliveries = std::mem::take(&mut taken.0);
            }
            Bug::LosesUnsettledAtARestart if self.shared.restarted.load(SeqCst) => {
                let again = |it: &Delivery| it.message.is_redelivery();
                let (lost, kept): (Vec<_>, Vec<_>) = deliveries.into_iter().partition(again);
                for delivery in lost {
                    delivery.ack().await?;
                }
                deliveries = kept;
                if deliveries.is_empty() {
                    return self.receive(max).await;
                }
            }
            _ => {}
        }
        Ok(deliveries)
    }

    fn info(&self) -> SourceInfo {
        self.source.info()
    }

    async fn lag(&self) -> Result<Option<u64>> {
        match self.bug {
            Bug::ReportsALagThatStays => Ok(Some(self.shared.published.load(SeqCst))),
            _ => self.source.lag().await,
        }
    }

    async fn reply(&self, message: &Message, outcome: &Outcome) -> Result<()> {
        self.source.reply(message, outcome).await
    }

    async fn check(&self, plan: &ConsumerPlan) -> Result<Vec<Finding>> {
        self.source.check(plan).await
    }

    async fn close(&self) -> Result<()> {
        if self.bug == Bug::LosesWhatItHoldsAtClose {
            for (settlement, is_settled) in &*self.open.lock().await {
                if !is_settled.load(SeqCst) {
                    settlement.ack().await?;
                }
            }
        }
        self.source.close().await
    }
}

impl WrongSource {
    async fn wrong(&self, delivery: Delivery) -> Delivery {
        let (message, settlement) = delivery.into_parts();
        let (bug, is_settled) = (self.bug, Arc::new(AtomicBool::new(false)));
        self.open.lock().await.push((settlement.clone(), is_settled.clone()));
        match bug {
            Bug::AcksAtReceive => settlement.ack().await.unwrap(),
            Bug::HandsOverTwice if !message.is_redelivery() => {
                settlement.nack(Duration::ZERO).await.unwrap()
            }
            Bug::NeverRedeliversUnsettled => {
                extend_until_settled(settlement.clone(), is_settled.clone())
            }
            Bug::KeepsWhatWasDropped => self.shared.kept.lock().await.push(settlement.clone()),
            _ => {}
        }
        let settlement = WrongSettlement { settlement, bug, is_settled, open: self.open.clone() };
        Delivery::new(wrong_message(&message, bug), settlement)
    }
}

fn wrong_message(message: &Message, bug: Bug) -> Message {
    let mut message = message.clone();
    match bug {
        Bug::ChangesThePayload => message.body = message.body.trim_ascii().to_vec().into(),
        Bug::ReadsThePayloadAsText => {
            message.body = String::from_utf8_lossy(&message.body).into_owned().into()
        }
        Bug::DropsAHeader => {
            message.headers.pop();
        }
        Bug::KeepsTheLastValueOfAHeader => {
            let all = message.headers.clone();
            message
                .headers
                .retain(|it| all.iter().rfind(|other| other.name == it.name) == Some(it));
        }
        Bug::MakesUpMessageIds => {
            message.message_id.get_or_insert_with(|| message.position.clone());
        }
        Bug::LosesTheMessageId => message.message_id = None,
        Bug::ForgetsOrderingKeys => message.ordering_key = None,
        Bug::CountsInThePosition => {
            message.position = format!("{}/{:?}", message.position, message.deliveries)
        }
        Bug::HasOnePosition => message.position = "memory".to_owned(),
        Bug::StopsCounting => message.deliveries = Some(1),
        _ => {}
    }
    message
}

/// Keeps a message from coming again, for as long as it is open.
fn extend_until_settled(settlement: Arc<dyn Settlement>, is_settled: Arc<AtomicBool>) {
    tokio::spawn(async move {
        while !is_settled.load(SeqCst) {
            settlement.extend().await.unwrap();
            sleep(ACK_DEADLINE / 4).await;
        }
    });
}

/// What a call of `receive` took. If the call is dropped, it is extended forever.
struct TakenByACall(Vec<Delivery>);

impl Drop for TakenByACall {
    fn drop(&mut self) {
        for delivery in self.0.drain(..) {
            extend_until_settled(delivery.into_parts().1, Arc::default());
        }
    }
}

struct WrongSettlement {
    settlement: Arc<dyn Settlement>,
    bug: Bug,
    is_settled: Arc<AtomicBool>,
    open: Open,
}

#[async_trait]
impl Settlement for WrongSettlement {
    async fn ack(&self) -> Result<()> {
        self.is_settled.store(true, SeqCst);
        match self.bug {
            Bug::AcksAtReceive | Bug::AcksSilentlyNothing => return Ok(()),
            Bug::AcksANeighbour => {
                let open = self.open.lock().await;
                let neighbour = open.iter().find(|(_, is_settled)| !is_settled.load(SeqCst));
                if let Some((neighbour, is_settled)) = neighbour {
                    is_settled.store(true, SeqCst);
                    neighbour.ack().await?;
                }
            }
            _ => {}
        }
        self.settlement.ack().await
    }

    async fn nack(&self, delay: Duration) -> Result<()> {
        self.is_settled.store(true, SeqCst);
        match self.bug {
            Bug::AcksAtReceive => Ok(()),
            Bug::LosesANack => self.settlement.ack().await,
            Bug::IgnoresDelays => self.settlement.nack(Duration::ZERO).await,
            _ => self.settlement.nack(delay).await,
        }
    }

    async fn reject(&self, reason: &str) -> Result<()> {
        self.is_settled.store(true, SeqCst);
        match self.bug {
            Bug::AcksAtReceive => Ok(()),
            Bug::TakesARejectForANack => self.settlement.nack(ACK_DEADLINE).await,
            _ => self.settlement.reject(reason).await,
        }
    }

    async fn extend(&self) -> Result<()> {
        match (self.bug, self.is_settled.load(SeqCst)) {
            (Bug::DoesNotExtend, _) => Ok(()),
            (Bug::ExtendsAfterANack, true) => self.settlement.nack(ACK_DEADLINE).await.or(Ok(())),
            (Bug::RevivesByExtending, true) => {
                self.settlement.nack(Duration::ZERO).await.or(Ok(()))
            }
            _ => self.settlement.extend().await,
        }
    }
}
