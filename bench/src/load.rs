//! The requests and calls that the benchmarks of one process share.

use std::sync::Arc;

use futures_util::FutureExt;
use semel_core::{
    Claim, ClaimRequest, CompleteRequest, Engine, Fingerprint, Key, KeyHash, LabelPolicy, Labels,
    MemoryStore, Nonce, OnLostOwner, Outcome, Principal, RawAnswer, RunError, Scope, Span, Store,
    Terms, Verdict,
};

/// The body of every outcome.
pub const BODY: [u8; 300] = [7; 300];

/// Claims key number `i` and records its outcome.
pub fn claim_and_complete(store: &MemoryStore, i: u64, labels: LabelPolicy) {
    let Ok(Claim::Granted(lease)) = now(store.claim(&request(i, labels))) else {
        panic!("key {i} is not free");
    };
    let outcome = Arc::new(Outcome::success(BODY.to_vec()));
    let complete = CompleteRequest { owner: lease.owner, outcome };
    now(store.complete(&complete)).expect("the memory store answers");
}

/// The claim of key number `i`.
pub fn request(i: u64, labels: LabelPolicy) -> ClaimRequest {
    let day = Span::from_millis(86_400_000);
    ClaimRequest {
        key: KeyHash::from_bytes(spread_out::<32>(i)),
        fingerprint: Fingerprint::from_stored(spread_out::<32>(!i)),
        nonce: Nonce::from_bytes(spread_out::<16>(i)),
        terms: Terms {
            lease: Span::from_millis(30_000),
            on_lost_owner: OnLostOwner::Rerun,
            max_attempts: None,
            retention: day,
            failure_retention: day,
        },
        labels: (labels == LabelPolicy::Keep).then(|| {
            Labels::new("bench", "user-7", "charge", "0f8fad5b-d9cb-469f-a165-70867728950e")
        }),
    }
}

/// Expands `i` to N well-mixed bytes, the same every time.
pub fn spread_out<const N: usize>(i: u64) -> [u8; N] {
    let mut bytes = [0; N];
    for (at, chunk) in bytes.chunks_mut(8).enumerate() {
        let mut z = i.wrapping_add(at as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        chunk.copy_from_slice(&(z ^ (z >> 31)).to_le_bytes());
    }
    bytes
}

/// A memory store with capacity for more than this many records.
pub fn with_capacity(keys: u64) -> MemoryStore {
    let entries = usize::try_from(keys).unwrap_or(usize::MAX) + 1;
    let builder = MemoryStore::builder().max_entries(entries).max_bytes(usize::MAX / 2);
    builder.build().expect("the bounds are valid")
}

/// Returns the result of a call of the memory store, which never waits.
pub fn now<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("the memory store never waits")
}

/// Keys as a caller makes them.
pub fn keys(count: u64) -> Vec<Key> {
    let scope = Scope::new("bench", Principal::from("user-7"), "charge");
    (0..count).map(|i| scope.key(format!("order-{i}")).expect("the key is valid")).collect()
}

/// Makes one call through the engine, with work that costs nothing.
///
/// # Errors
///
/// The error of the engine.
pub async fn call(engine: &Engine, key: Key) -> Result<RawAnswer, RunError> {
    let work = |_| async { Verdict::Final(Outcome::success(BODY.to_vec())) };
    engine.run_raw(key, Fingerprint::of_bytes(b"order"), work).await
}
