//! One connection: two pumps, and what they may not pass on.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::sleep;

use crate::counts::count;
use crate::fault::{Fault, Way};
use crate::proxy::Shared;

/// More than a reply of a few records; a longer one is several pieces.
const PIECE: usize = 1 << 16;

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// One of the two closed it.
    Closed,
    /// The proxy resets it.
    Cut,
    /// The proxy passes nothing on, and does not close it.
    Silent,
}

/// What the two ways of one connection know of each other.
#[derive(Debug, Default)]
struct Link {
    /// Bytes to the server are missing: nothing more may go there.
    torn_requests: AtomicBool,
    /// Bytes to the client are missing: nothing more may go there.
    torn_replies: AtomicBool,
    /// The next reply is to be lost.
    trapped: AtomicBool,
}

impl Link {
    fn torn(&self, way: Way) -> &AtomicBool {
        match way {
            Way::ToServer => &self.torn_requests,
            Way::ToClient => &self.torn_replies,
        }
    }

    fn is_torn(&self) -> bool {
        self.torn_requests.load(SeqCst) || self.torn_replies.load(SeqCst)
    }
}

pub(crate) async fn serve(mut client: TcpStream, shared: &Shared) {
    if shared.fault() == Fault::Refuse {
        count(&shared.counters.refused);
        return reset(&client);
    }
    let link = Link::default();
    let end = tokio::select! {
        end = carry(&mut client, &link, shared) => end,
        () = shared.cut() => End::Cut,
        () = torn_for_good(&link, shared) => End::Cut,
        () = shared.silenced() => End::Silent,
    };
    if end == End::Silent {
        swallow(&mut client, shared).await;
    }
    if end == End::Cut {
        count(&shared.counters.cut);
        reset(&client);
    }
}

/// Carries bytes both ways until one side has closed.
async fn carry(client: &mut TcpStream, link: &Link, shared: &Shared) -> End {
    // Into a black hole no server is needed.
    if shared.fault() == Fault::BlackHole {
        link.torn_requests.store(true, SeqCst);
        return swallow(client, shared).await;
    }
    let Ok(mut server) = connect(shared.target).await else { return End::Cut };
    let end = {
        let ((from_client, to_client), (from_server, to_server)) = (client.split(), server.split());
        tokio::select! {
            end = pump(from_client, to_server, Way::ToServer, link, shared) => end,
            end = pump(from_server, to_client, Way::ToClient, link, shared) => end,
        }
    };
    if end == End::Cut {
        reset(&server);
    }
    end
}

async fn connect(port: u16) -> io::Result<TcpStream> {
    let server = TcpSocket::new_v4()?.connect(([127, 0, 0, 1], port).into()).await?;
    server.set_nodelay(true)?;
    Ok(server)
}

async fn pump(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    way: Way,
    link: &Link,
    shared: &Shared,
) -> End {
    let mut piece = vec![0; PIECE];
    loop {
        let length = match from.read(&mut piece).await {
            Ok(0) | Err(_) => return End::Closed,
            Ok(length) => length,
        };
        shared.until_released().await;
        sleep(shared.fault().delay()).await;
        match judge(&piece[..length], way, link, shared) {
            Fate::Lost => continue,
            Fate::Cut => return End::Cut,
            Fate::Passed => {}
        }
        if to.write_all(&piece[..length]).await.is_err() {
            return End::Closed;
        }
    }
}

/// What becomes of a piece.
enum Fate {
    Passed,
    Lost,
    Cut,
}

fn judge(piece: &[u8], way: Way, link: &Link, shared: &Shared) -> Fate {
    let (passed, lost) = match way {
        Way::ToServer => (&shared.counters.requests, &shared.counters.lost_requests),
        Way::ToClient => (&shared.counters.replies, &shared.counters.lost_replies),
    };
    if way == Way::ToServer && shared.springs_trap(piece) {
        link.trapped.store(true, SeqCst);
    }
    if shared.fault().swallows(way) || link.torn(way).load(SeqCst) {
        link.torn(way).store(true, SeqCst);
        count(lost);
        return Fate::Lost;
    }
    let trapped = way == Way::ToClient && link.trapped.swap(false, SeqCst);
    if trapped || way == Way::ToClient && shared.takes_reply() {
        count(lost);
        return Fate::Cut;
    }
    count(passed);
    Fate::Passed
}

async fn swallow(client: &mut TcpStream, shared: &Shared) -> End {
    let mut piece = vec![0; PIECE];
    while client.read(&mut piece).await.is_ok_and(|length| length > 0) {
        count(&shared.counters.lost_requests);
    }
    End::Closed
}

/// Waits until bytes are missing and no fault explains that any more.
async fn torn_for_good(link: &Link, shared: &Shared) {
    let mut faults = shared.faults();
    loop {
        let fault = *faults.borrow_and_update();
        let explained = fault.swallows(Way::ToClient) || fault.swallows(Way::ToServer);
        if link.is_torn() && !explained {
            return;
        }
        // The sender lives as long as the proxy.
        if faults.changed().await.is_err() {
            return;
        }
    }
}

/// Closed in this way, the other side sees a reset and no end.
fn reset(stream: &TcpStream) {
    let _ = stream.set_zero_linger();
}
