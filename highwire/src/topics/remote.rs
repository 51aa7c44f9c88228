//! The connection to a broker: one thread that connects, connects again, and moves messages in both directions.

use super::broker::{BrokerError, Link};
use bytes::Bytes;
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep, timeout};

/// The most messages, and the most of their bytes, that may wait to be sent to the broker. Beyond it, publishing fails.
const QUEUE_MESSAGES: usize = 16 * 1024;
const QUEUE_BYTES: usize = 16 * 1024 * 1024;

/// The most messages that are sent, and the most filters that are listened to, at once.
pub(super) const BATCH: usize = 256;

/// The time limit of each step: to connect, to subscribe, to send a batch, to answer a ping.
pub(super) const STEP: Duration = Duration::from_secs(5);

/// The waits between attempts to connect double from the first to the last of these.
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_LAST: Duration = Duration::from_secs(2);

/// A message for the broker.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) topic: String,
    pub(super) payload: Bytes,
    pub(super) keep: usize,
}

#[derive(Debug)]
enum Command {
    Publish(Outgoing),
    Subscribe(String, bool),
    Unsubscribe(String),
}

/// The client of one kind of broker.
pub(super) trait Protocol: Clone + fmt::Debug + Send + Sync + 'static {
    type Session: Session;

    /// Connects to the broker.
    fn connect(&self, link: Link) -> impl Future<Output = Result<Self::Session, String>>;
}

/// A connection to a broker. Each method returns an error if the connection is lost, or if a step takes longer than
/// [`STEP`]. A message that the broker refuses is not an error: it is lost, and logged.
pub(super) trait Session {
    /// Returns the most bytes of a message.
    fn most_bytes(&self) -> usize;

    /// Listens to at most [`BATCH`] filters, each with true if the broker must report the topic's history
    /// ([`Link::history`]).
    fn subscribe(&mut self, filters: &[(String, bool)]) -> impl Future<Output = Result<(), String>>;

    /// Stops listening to a filter.
    fn unsubscribe(&mut self, filter: &str) -> impl Future<Output = Result<(), String>>;

    /// Sends messages in this order.
    fn publish(&mut self, batch: Vec<Outgoing>) -> impl Future<Output = Result<(), String>>;

    /// Delivers what arrives, until the connection is lost. It may be dropped while it waits.
    fn receive(&mut self) -> impl Future<Output = String>;
}

/// The queue to the thread of a broker.
#[derive(Debug, Default)]
pub(super) struct Remote {
    commands: OnceLock<UnboundedSender<Command>>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    is_connected: AtomicBool,
    messages: AtomicUsize,
    bytes: AtomicUsize,
    /// The most bytes of a message.
    most_bytes: AtomicUsize,
}

impl Remote {
    /// Starts the thread.
    pub(super) fn start(&self, protocol: impl Protocol, link: Link) {
        let (sender, commands) = unbounded_channel();
        let _ = self.commands.set(sender);
        let shared = self.shared.clone();
        let body = move || match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(run(protocol, link, commands, shared)),
            Err(error) => tracing::error!(%error, "the client of a broker cannot start"),
        };
        if let Err(error) = std::thread::Builder::new().name("highwire-broker".into()).spawn(body) {
            tracing::error!(%error, "the thread for a broker cannot start");
        }
    }

    pub(super) fn publish(&self, topic: &str, payload: Bytes, keep: usize) -> Result<(), BrokerError> {
        let shared = &self.shared;
        if payload.len() > shared.most_bytes.load(Ordering::Relaxed) && shared.is_connected.load(Ordering::Acquire) {
            return Err(BrokerError::TooLarge);
        }
        let is_full = shared.messages.load(Ordering::Relaxed) >= QUEUE_MESSAGES
            || shared.bytes.load(Ordering::Relaxed).saturating_add(payload.len()) > QUEUE_BYTES;
        if is_full || !shared.is_connected.load(Ordering::Acquire) {
            return Err(BrokerError::Unavailable);
        }
        shared.messages.fetch_add(1, Ordering::Relaxed);
        shared.bytes.fetch_add(payload.len(), Ordering::Relaxed);
        self.send(Command::Publish(Outgoing { topic: topic.into(), payload, keep }))
    }

    pub(super) fn subscribe(&self, filter: &str, has_history: bool) {
        // Fails only if the thread has ended, which was logged.
        let _ = self.send(Command::Subscribe(filter.into(), has_history));
    }

    pub(super) fn unsubscribe(&self, filter: &str) {
        let _ = self.send(Command::Unsubscribe(filter.into()));
    }

    fn send(&self, command: Command) -> Result<(), BrokerError> {
        self.commands.get().and_then(|commands| commands.send(command).ok()).ok_or(BrokerError::Unavailable)
    }
}

impl Shared {
    fn took(&self, outgoing: &Outgoing) {
        self.messages.fetch_sub(1, Ordering::Relaxed);
        self.bytes.fetch_sub(outgoing.payload.len(), Ordering::Relaxed);
    }
}

/// The filters that have a listener in this process, with true for topics that have a history.
type Filters = HashMap<String, bool>;

/// Keeps the connection until the topics are gone.
async fn run<P: Protocol>(protocol: P, link: Link, mut commands: UnboundedReceiver<Command>, shared: Arc<Shared>) {
    let mut filters = Filters::new();
    let mut wait = RETRY_FIRST;
    while link.is_alive() {
        let error = match timeout(STEP, protocol.connect(link.clone())).await {
            Ok(Ok(mut session)) => {
                let begun = Instant::now();
                shared.most_bytes.store(session.most_bytes(), Ordering::Relaxed);
                shared.is_connected.store(true, Ordering::Release);
                link.connected();
                tracing::info!(broker = ?protocol, "connected to the broker");
                let ended = serve(&mut session, &mut filters, &mut commands, &shared).await;
                shared.is_connected.store(false, Ordering::Release);
                link.disconnected();
                let Err(error) = ended else { return };
                // A broker that accepts connections and breaks them is not asked again and again.
                if begun.elapsed() > STEP {
                    wait = RETRY_FIRST;
                }
                error
            }
            Ok(Err(error)) => error,
            Err(_) => "it does not answer".into(),
        };
        tracing::warn!(broker = ?protocol, error, "the broker cannot be reached; trying again");
        let retry = sleep(wait);
        tokio::pin!(retry);
        loop {
            tokio::select! {
                () = &mut retry => break,
                command = commands.recv() => match command {
                    // Messages that were queued when the connection was lost are lost.
                    Some(Command::Publish(outgoing)) => shared.took(&outgoing),
                    Some(Command::Subscribe(filter, has_history)) => drop(filters.insert(filter, has_history)),
                    Some(Command::Unsubscribe(filter)) => drop(filters.remove(&filter)),
                    None => return,
                },
            }
        }
        wait = (wait * 2).min(RETRY_LAST);
    }
}

/// Serves a connection until it is lost. Returns `Ok` if the topics are gone.
async fn serve(
    session: &mut impl Session,
    filters: &mut Filters,
    commands: &mut UnboundedReceiver<Command>,
    shared: &Shared,
) -> Result<(), String> {
    let all: Vec<_> = filters.iter().map(|(filter, has_history)| (filter.clone(), *has_history)).collect();
    for some in all.chunks(BATCH) {
        session.subscribe(some).await?;
    }
    loop {
        let first = tokio::select! {
            error = session.receive() => return Err(error),
            command = commands.recv() => command,
        };
        // Consecutive commands of a kind are done at once.
        let (mut outgoing, mut begun) = (Vec::new(), Vec::new());
        let mut next = first;
        loop {
            let is_other_kind = match &next {
                Some(Command::Publish(_)) => !begun.is_empty() || outgoing.len() >= BATCH,
                Some(Command::Subscribe(..)) => !outgoing.is_empty() || begun.len() >= BATCH,
                Some(Command::Unsubscribe(_)) | None => !outgoing.is_empty() || !begun.is_empty(),
            };
            if is_other_kind {
                flush(session, &mut outgoing, &mut begun).await?;
            }
            match next {
                Some(Command::Publish(message)) => {
                    shared.took(&message);
                    outgoing.push(message);
                }
                Some(Command::Subscribe(filter, has_history)) => {
                    filters.insert(filter.clone(), has_history);
                    begun.push((filter, has_history));
                }
                Some(Command::Unsubscribe(filter)) => {
                    filters.remove(&filter);
                    session.unsubscribe(&filter).await?;
                }
                None => return Ok(()),
            }
            match commands.try_recv() {
                Ok(command) => next = Some(command),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => next = None,
            }
        }
        flush(session, &mut outgoing, &mut begun).await?;
    }
}

/// Sends the collected messages, or listens to the collected filters.
async fn flush(
    session: &mut impl Session,
    outgoing: &mut Vec<Outgoing>,
    begun: &mut Vec<(String, bool)>,
) -> Result<(), String> {
    if !outgoing.is_empty() {
        session.publish(std::mem::take(outgoing)).await?;
    }
    if !begun.is_empty() {
        session.subscribe(&std::mem::take(begun)).await?;
    }
    Ok(())
}

/// Performs a step of a session within [`STEP`].
pub(super) async fn in_time<T, E: fmt::Display>(step: impl Future<Output = Result<T, E>>) -> Result<T, String> {
    match timeout(STEP, step).await {
        Ok(done) => done.map_err(|error| error.to_string()),
        Err(_) => Err("it does not answer".into()),
    }
}
