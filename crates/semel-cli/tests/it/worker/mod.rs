//! What `semel worker` and `semel dead-letters` promise.

mod bad_handlers;
mod bad_messages;
mod dead_letters;
mod demo;
mod doctor;
#[cfg(feature = "kafka")]
mod doctor_kafka;
mod events;
mod guide;
#[cfg(feature = "kafka")]
mod kafka;
mod operation;
mod start;
