//! The layer keeps what every door promises its callers, over each store.

#![expect(clippy::unwrap_used, reason = "a test's helpers may fail it")]

mod door;

mod memory {
    semel_conformance::http_tests!(
        super::door::Layered::over(semel_core::MemoryStore::new(), ()).await
    );
}

mod embedded {
    semel_conformance::http_tests!({
        let folder = tempfile::tempdir().unwrap();
        let store = semel_store_embedded::EmbeddedStore::open(folder.path()).unwrap();
        super::door::Layered::over(store, folder).await
    });
}
