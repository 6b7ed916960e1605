//! The layer keeps what every door promises its callers, over each store.

#![expect(clippy::unwrap_used, reason = "a test's helpers may fail it")]

#[path = "it/layered.rs"]
mod layered;

mod memory {
    semel_conformance::http_tests!(
        super::layered::Layered::over(semel_core::MemoryStore::new(), ()).await
    );
}

mod embedded {
    semel_conformance::http_tests!({
        let folder = tempfile::tempdir().unwrap();
        let store = semel_store_embedded::EmbeddedStore::open(folder.path()).unwrap();
        super::layered::Layered::over(store, folder).await
    });
}
