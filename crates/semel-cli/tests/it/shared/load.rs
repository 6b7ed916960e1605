//! A load on two gateways of one store: each new key is sent to both at once, and again.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::{task::JoinSet, time::sleep};

use crate::harness::{ClientResponse, GatewayProcess, TestRequest, TestUpstream, until};

/// Clients that send requests until the test ends them. Any status but 200 fails the test.
pub(super) struct GatewayLoad {
    end: Arc<AtomicBool>,
    sent: Arc<AtomicUsize>,
    /// How many keys had more than one outcome.
    clients: JoinSet<usize>,
}

/// The result of a load.
#[derive(Debug)]
pub(super) struct LoadTally {
    pub(super) keys: usize,
    pub(super) with_two_outcomes: usize,
}

impl GatewayLoad {
    const CLIENTS: usize = 4;

    pub(super) fn start(nodes: &[Arc<GatewayProcess>; 2]) -> Self {
        let (end, sent, mut clients) = (Arc::default(), Arc::default(), JoinSet::new());
        for client in 0..Self::CLIENTS {
            clients.spawn(run_client(nodes.clone(), client, Arc::clone(&end), Arc::clone(&sent)));
        }
        Self { end, sent, clients }
    }

    /// Waits until this many further keys have been sent.
    pub(super) async fn pass(&self, keys: usize) {
        let before = self.sent.load(SeqCst);
        until("the load goes on", async || self.sent.load(SeqCst) >= before + keys).await;
    }

    pub(super) async fn end(self) -> LoadTally {
        self.end.store(true, SeqCst);
        let with_two_outcomes = self.clients.join_all().await.into_iter().sum();
        LoadTally { keys: self.sent.load(SeqCst), with_two_outcomes }
    }
}

impl LoadTally {
    #[track_caller]
    pub(super) fn assert_each_ran_once(&self, upstream: &TestUpstream) {
        assert_eq!((upstream.count(), self.with_two_outcomes), (self.keys, 0), "{self:?}");
    }
}

async fn run_client(
    nodes: [Arc<GatewayProcess>; 2],
    client: usize,
    end: Arc<AtomicBool>,
    sent: Arc<AtomicUsize>,
) -> usize {
    let (mut with_two_outcomes, mut round, mut first) = (0, 0, None);
    while !end.load(SeqCst) {
        let newest = TestRequest::charge(&format!("{client}-{round}"));
        let oldest = TestRequest::charge(&format!("{client}-0"));
        let (one, other) =
            tokio::join!(final_response(&nodes[0], &newest), final_response(&nodes[1], &newest));
        let first = first.get_or_insert_with(|| one.body.clone());
        let (one_again, other_again, oldest_again) = tokio::join!(
            final_response(&nodes[0], &newest),
            final_response(&nodes[1], &newest),
            final_response(&nodes[round % 2], &oldest)
        );
        let is_other = |it: &ClientResponse| it.body != one.body;
        let differs = [other, one_again, other_again].iter().any(is_other);
        with_two_outcomes += usize::from(differs || oldest_again.body != *first);
        round += 1;
        sent.fetch_add(1, SeqCst);
    }
    with_two_outcomes
}

/// The final response: a request that is answered with `in-progress` is sent again.
async fn final_response(node: &GatewayProcess, request: &TestRequest) -> ClientResponse {
    loop {
        let response = node.request(request).await;
        if response.problem() != Some("in-progress") {
            assert_eq!(response.status, 200, "{response:?}");
            return response;
        }
        sleep(Duration::from_millis(50)).await;
    }
}
