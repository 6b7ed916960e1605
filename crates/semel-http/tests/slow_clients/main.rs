//! Memory stays bounded, however many clients are slow: it is the budget for bodies, and so much for each
//! connection.
//!
//! The server is a process of its own; its peak is what the kernel says. Clients for which the limit on
//! open files leaves no room are requests made inside the server.
//!
//! There is no harness, because this binary is the server too, and because each test needs the machine to
//! itself: they run one after another.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod crowd;
mod harness;
mod promises;
mod server;

use std::{env, process::ExitCode};

fn main() -> ExitCode {
    if env::args().nth(1).as_deref() == Some(server::ROLE) {
        server::run();
        return ExitCode::SUCCESS;
    }
    harness::run(&harness::tests![
        an_upload_byte_by_byte_holds_its_bytes_and_not_the_buffers_they_came_in,
        duplicates_that_wait_hold_no_more_than_the_budget,
        first_answers_that_nobody_reads_hold_no_more_than_the_budget,
        replays_that_nobody_reads_hold_no_more_than_the_budget,
        uploads_that_stall_hold_no_more_than_the_budget,
    ])
}
