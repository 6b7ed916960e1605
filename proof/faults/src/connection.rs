//! One proxied connection: it copies bytes in both directions, and drops, delays or cuts them as the fault says.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::sleep;

use crate::counts::count;
use crate::fault::{Direction, Fault};
use crate::proxy::ProxyShared;

/// Larger than a reply with a few records; a longer reply is copied in several pieces.
const PIECE: usize = 1 << 16;

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionEnd {
    /// The client or the server closed it.
    Closed,
    /// The proxy resets it.
    Cut,
    /// The proxy drops everything, and does not close it.
    Silent,
}

/// What the two directions of a connection share.
#[derive(Debug, Default)]
struct ConnectionState {
    /// Bytes for the server were dropped: nothing more may be passed on to it.
    torn_requests: AtomicBool,
    /// Bytes for the client were dropped: nothing more may be passed on to it.
    torn_replies: AtomicBool,
    /// The next reply is dropped.
    trapped: AtomicBool,
}

impl ConnectionState {
    fn torn(&self, direction: Direction) -> &AtomicBool {
        match direction {
            Direction::ToServer => &self.torn_requests,
            Direction::ToClient => &self.torn_replies,
        }
    }

    fn is_torn(&self) -> bool {
        self.torn_requests.load(SeqCst) || self.torn_replies.load(SeqCst)
    }
}

pub(crate) async fn serve(mut client: TcpStream, shared: &ProxyShared) {
    if shared.fault() == Fault::Refuse {
        count(&shared.counters.refused);
        return reset(&client);
    }
    let state = ConnectionState::default();
    let end = tokio::select! {
        end = carry(&mut client, &state, shared) => end,
        () = shared.cut() => ConnectionEnd::Cut,
        () = torn_without_fault(&state, shared) => ConnectionEnd::Cut,
        () = shared.silenced() => ConnectionEnd::Silent,
    };
    if end == ConnectionEnd::Silent {
        swallow(&mut client, shared).await;
    }
    if end == ConnectionEnd::Cut {
        count(&shared.counters.cut);
        reset(&client);
    }
}

/// Copies bytes in both directions until one side has closed.
async fn carry(
    client: &mut TcpStream,
    state: &ConnectionState,
    shared: &ProxyShared,
) -> ConnectionEnd {
    // A black hole needs no server.
    if shared.fault() == Fault::BlackHole {
        state.torn_requests.store(true, SeqCst);
        return swallow(client, shared).await;
    }
    let Ok(mut server) = connect(shared.target).await else { return ConnectionEnd::Cut };
    let end = {
        let ((from_client, to_client), (from_server, to_server)) = (client.split(), server.split());
        tokio::select! {
            end = pump(from_client, to_server, Direction::ToServer, state, shared) => end,
            end = pump(from_server, to_client, Direction::ToClient, state, shared) => end,
        }
    };
    if end == ConnectionEnd::Cut {
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
    direction: Direction,
    state: &ConnectionState,
    shared: &ProxyShared,
) -> ConnectionEnd {
    let mut piece = vec![0; PIECE];
    loop {
        let length = match from.read(&mut piece).await {
            Ok(0) | Err(_) => return ConnectionEnd::Closed,
            Ok(length) => length,
        };
        shared.until_released().await;
        sleep(shared.fault().delay()).await;
        match decide(&piece[..length], direction, state, shared) {
            PieceAction::Drop => continue,
            PieceAction::Cut => return ConnectionEnd::Cut,
            PieceAction::Pass => {}
        }
        if to.write_all(&piece[..length]).await.is_err() {
            return ConnectionEnd::Closed;
        }
    }
}

/// What the proxy does with a piece.
enum PieceAction {
    Pass,
    Drop,
    Cut,
}

fn decide(
    piece: &[u8],
    direction: Direction,
    state: &ConnectionState,
    shared: &ProxyShared,
) -> PieceAction {
    let (passed, lost) = match direction {
        Direction::ToServer => (&shared.counters.requests, &shared.counters.lost_requests),
        Direction::ToClient => (&shared.counters.replies, &shared.counters.lost_replies),
    };
    if direction == Direction::ToServer && shared.springs_trap(piece) {
        state.trapped.store(true, SeqCst);
    }
    if shared.fault().swallows(direction) || state.torn(direction).load(SeqCst) {
        state.torn(direction).store(true, SeqCst);
        count(lost);
        return PieceAction::Drop;
    }
    let trapped = direction == Direction::ToClient && state.trapped.swap(false, SeqCst);
    if trapped || direction == Direction::ToClient && shared.takes_reply() {
        count(lost);
        return PieceAction::Cut;
    }
    count(passed);
    PieceAction::Pass
}

async fn swallow(client: &mut TcpStream, shared: &ProxyShared) -> ConnectionEnd {
    let mut piece = vec![0; PIECE];
    while client.read(&mut piece).await.is_ok_and(|length| length > 0) {
        count(&shared.counters.lost_requests);
    }
    ConnectionEnd::Closed
}

/// Waits until bytes were dropped and the fault that dropped them has ended.
async fn torn_without_fault(state: &ConnectionState, shared: &ProxyShared) {
    let mut faults = shared.faults();
    loop {
        let fault = *faults.borrow_and_update();
        let explained = fault.swallows(Direction::ToClient) || fault.swallows(Direction::ToServer);
        if state.is_torn() && !explained {
            return;
        }
        // The sender lives as long as the proxy.
        if faults.changed().await.is_err() {
            return;
        }
    }
}

/// Closes with a reset instead of a normal end.
fn reset(stream: &TcpStream) {
    let _ = stream.set_zero_linger();
}
