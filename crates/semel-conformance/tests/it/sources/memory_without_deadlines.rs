//! A source whose broker has no deadlines keeps every promise that needs none.

use semel_conformance::sources::Broker;

use super::memory::Memory;

async fn memory(_: Broker) -> Memory {
    Memory::without_deadlines()
}

semel_conformance::source_tests!(memory);
