//! The connection to a broker: one thread that connects, reconnects, and moves messages in both directions.
//!
//! Messages wait in a queue. Filters do not: the topics record which filters they want, and the thread brings the
//! broker to that state, in batches, beside the messages. Peers that join and leave faster than the broker follows
//! cause no queue, and no message waits for them.

use super::broker::Link;
use super::error::BrokerError;
use super::lock::lock;
use bytes::Bytes;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tokio::sync::Notify;
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

/// A filter that has a listener in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wish {
    has_history: bool,
    /// Differs each time the filter gets its first listener, so that its history is fetched anew.
    number: u64,
}

/// The filters that the topics want.
#[derive(Debug, Default)]
struct Wanted {
    filters: HashMap<String, Wish>,
    /// The filters that were added or removed and that the thread has not seen.
    changed: HashSet<String>,
    number: u64,
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
    /// ([`Link::history`]). It may listen to some of them already.
    fn subscribe(&self, filters: &[(String, bool)]) -> impl Future<Output = Result<(), String>>;

    /// Stops listening to at most [`BATCH`] filters.
    fn unsubscribe(&self, filters: &[String]) -> impl Future<Output = Result<(), String>>;

    /// Sends messages in this order, concurrently with the other methods.
    fn publish(&self, batch: Vec<Outgoing>) -> impl Future<Output = Result<(), String>>;

    /// Delivers what arrives, until the connection is lost.
    fn receive(&self) -> impl Future<Output = String>;
}

/// The queue to the thread of a broker.
#[derive(Debug, Default)]
pub(super) struct Remote {
    outgoing: OnceLock<UnboundedSender<Outgoing>>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    is_connected: AtomicBool,
    messages: AtomicUsize,
    bytes: AtomicUsize,
    /// The most bytes of a message.
    most_bytes: AtomicUsize,
    wanted: Mutex<Wanted>,
    /// Notified when `wanted` has changed.
    wishes: Notify,
}

impl Remote {
    /// Starts the thread.
    pub(super) fn start(&self, protocol: impl Protocol, link: Link) {
        let (sender, outgoing) = unbounded_channel();
        let _ = self.outgoing.set(sender);
        let shared = self.shared.clone();
        let body = move || match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(run(protocol, link, outgoing, shared)),
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
        let outgoing = Outgoing { topic: topic.into(), payload, keep };
        let sent = self.outgoing.get().and_then(|queue| queue.send(outgoing).ok());
        // Fails only if the thread has ended, which was logged.
        sent.ok_or(BrokerError::Unavailable)
    }

    pub(super) fn subscribe(&self, filter: &str, has_history: bool) {
        self.shared.want(filter, |wanted| {
            wanted.number += 1;
            wanted.filters.insert(filter.into(), Wish { has_history, number: wanted.number });
        });
    }

    pub(super) fn unsubscribe(&self, filter: &str) {
        self.shared.want(filter, |wanted| {
            wanted.filters.remove(filter);
        });
    }
}

impl Shared {
    fn took(&self, outgoing: &Outgoing) {
        self.messages.fetch_sub(1, Ordering::Relaxed);
        self.bytes.fetch_sub(outgoing.payload.len(), Ordering::Relaxed);
    }

    fn want(&self, filter: &str, change: impl FnOnce(&mut Wanted)) {
        let mut wanted = lock(&self.wanted);
        change(&mut wanted);
        wanted.changed.insert(filter.into());
        drop(wanted);
        self.wishes.notify_one();
    }
}

/// Keeps the connection until the topics are gone.
async fn run<P: Protocol>(protocol: P, link: Link, mut outgoing: UnboundedReceiver<Outgoing>, shared: Arc<Shared>) {
    let mut wait = RETRY_FIRST;
    while link.is_alive() {
        let error = match timeout(STEP, protocol.connect(link.clone())).await {
            Ok(Ok(session)) => {
                let begun = Instant::now();
                shared.most_bytes.store(session.most_bytes(), Ordering::Relaxed);
                shared.is_connected.store(true, Ordering::Release);
                link.connected();
                tracing::info!(broker = ?protocol, "connected to the broker");
                let ended = serve(&session, &mut outgoing, &shared).await;
                shared.is_connected.store(false, Ordering::Release);
                link.disconnected();
                let Err(error) = ended else { return };
                // For a broker that accepts connections and breaks them, the waits keep growing.
                if begun.elapsed() > STEP {
                    wait = RETRY_FIRST;
                }
                error
            }
            Ok(Err(error)) => error,
            Err(_) => "the broker does not answer".into(),
        };
        tracing::warn!(broker = ?protocol, error, "the broker cannot be reached; trying again");
        let retry = sleep(wait);
        tokio::pin!(retry);
        loop {
            tokio::select! {
                () = &mut retry => break,
                // Messages that were queued when the connection was lost are lost.
                lost = outgoing.recv() => match lost {
                    Some(lost) => shared.took(&lost),
                    None => return,
                },
            }
        }
        wait = (wait * 2).min(RETRY_LAST);
    }
}

/// Serves a connection until it is lost. Returns `Ok` if the topics are gone.
async fn serve(
    session: &impl Session,
    outgoing: &mut UnboundedReceiver<Outgoing>,
    shared: &Shared,
) -> Result<(), String> {
    tokio::select! {
        error = session.receive() => Err(error),
        ended = send(session, outgoing, shared) => ended,
        Err(error) = listen(session, shared) => Err(error),
    }
}

/// Sends the queued messages.
async fn send(
    session: &impl Session,
    outgoing: &mut UnboundedReceiver<Outgoing>,
    shared: &Shared,
) -> Result<(), String> {
    let mut batch = Vec::new();
    while outgoing.recv_many(&mut batch, BATCH).await > 0 {
        batch.iter().for_each(|message| shared.took(message));
        session.publish(std::mem::take(&mut batch)).await?;
    }
    Ok(())
}

/// Listens to the filters that the topics want, and to no others.
async fn listen(session: &impl Session, shared: &Shared) -> Result<(), String> {
    // The filters to which the broker listens, with the numbers of their wishes.
    let mut known: HashMap<String, u64> = HashMap::new();
    {
        let wanted = &mut *lock(&shared.wanted);
        wanted.changed.clear();
        wanted.changed.extend(wanted.filters.keys().cloned());
    }
    loop {
        let (mut begun, mut ended) = (Vec::new(), Vec::new());
        {
            let wanted = &mut *lock(&shared.wanted);
            let some: Vec<String> = wanted.changed.iter().take(BATCH).cloned().collect();
            for filter in some {
                wanted.changed.remove(&filter);
                match wanted.filters.get(&filter) {
                    Some(wish) if known.insert(filter.clone(), wish.number) != Some(wish.number) => {
                        begun.push((filter, wish.has_history));
                    }
                    None if known.remove(&filter).is_some() => ended.push(filter),
                    // The filter was added and removed meanwhile.
                    _ => {}
                }
            }
            if wanted.changed.capacity() > 64 * BATCH && wanted.changed.is_empty() {
                // A flood of filters must not stay in memory.
                wanted.changed = HashSet::new();
                wanted.filters.shrink_to_fit();
            }
        }
        if !begun.is_empty() {
            session.subscribe(&begun).await?;
        }
        if !ended.is_empty() {
            session.unsubscribe(&ended).await?;
        }
        let has_more = !lock(&shared.wanted).changed.is_empty();
        if !has_more {
            shared.wishes.notified().await;
        }
    }
}

/// Performs a step of a session within [`STEP`].
pub(super) async fn in_time<T, E: fmt::Display>(step: impl Future<Output = Result<T, E>>) -> Result<T, String> {
    match timeout(STEP, step).await {
        Ok(done) => done.map_err(|error| error.to_string()),
        Err(_) => Err("the broker does not answer".into()),
    }
}
