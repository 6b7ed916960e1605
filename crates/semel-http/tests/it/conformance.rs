//! The layer passes the HTTP conformance suite over each embedded store.

mod memory {
    semel_conformance::http_tests!(
        crate::layered::Layered::over(semel_core::MemoryStore::new(), ()).await
    );
}

mod embedded {
    semel_conformance::http_tests!({
        let folder = tempfile::tempdir().unwrap();
        let store = semel_store_embedded::EmbeddedStore::open(folder.path()).unwrap();
        crate::layered::Layered::over(store, folder).await
    });
}
