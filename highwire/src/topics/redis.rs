//! Redis as a broker: PUBLISH and SUBSCRIBE, with histories in lists.

use super::broker::{Broker, Link};
use super::error::BrokerError;
use super::remote::{BATCH, Outgoing, Protocol, Remote, STEP, Session, in_time};
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};
use redis::aio::{MultiplexedConnection, PubSubSink, PubSubStream};
use redis::{AsyncConnectionConfig, Client, Msg, RedisError, cmd, pipe};
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// The interval in which an idle connection is checked.
const PING: Duration = Duration::from_secs(5);

/// The time after which Redis forgets the history of a topic to which nothing is published.
const HISTORY: Duration = Duration::from_secs(24 * 60 * 60);

/// The most bytes of a message, which is also the most that may wait to be sent. Redis permits 512 MB.
const MOST_BYTES: usize = 16 * 1024 * 1024;

/// The most topics whose histories are requested at once.
const HISTORIES: usize = 64;

/// Publishes a message and keeps it in the history, as one step, so that the list has the order of the messages.
const KEEP: &str = "redis.call('RPUSH', KEYS[1], ARGV[1])
redis.call('LTRIM', KEYS[1], -tonumber(ARGV[2]), -1)
redis.call('EXPIRE', KEYS[1], ARGV[3])
return redis.call('PUBLISH', ARGV[4], ARGV[1])";

/// A [`Broker`] that shares topics through Redis or Valkey (feature `redis`).
///
/// Each process has two connections: one receives the messages of the filters that have a listener in the process, the
/// other sends. The last messages of topics with a history are kept in Redis for 24 hours after the latest of them, so
/// that any machine can resume a client.
#[derive(Debug)]
pub struct Redis {
    server: Server,
    remote: Remote,
}

#[derive(Clone)]
struct Server {
    client: Client,
    prefix: String,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL may contain a password.
        write!(f, "redis at {}", self.client.get_connection_info().addr())
    }
}

impl Redis {
    /// Creates a broker for a URL such as `redis://user:password@127.0.0.1:6379/0`, or `unix:///run/redis.sock`. It
    /// connects when the topics are built, and again whenever the connection is lost.
    ///
    /// # Errors
    /// Returns an error if the URL is invalid. `rediss:` is not supported.
    pub fn new(url: &str) -> Result<Redis, RedisError> {
        let server = Server { client: Client::open(url)?, prefix: "highwire:".into() };
        Ok(Redis { server, remote: Remote::default() })
    }

    /// Sets the beginning of all names in Redis; the default is `highwire:`.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Redis {
        self.server.prefix = prefix.into();
        self
    }
}

impl Broker for Redis {
    fn start(&self, link: Link) {
        self.remote.start(self.server.clone(), link);
    }

    fn publish(&self, topic: &str, payload: Bytes, keep: usize) -> Result<(), BrokerError> {
        self.remote.publish(topic, payload, keep)
    }

    fn subscribe(&self, filter: &str, has_history: bool) {
        self.remote.subscribe(filter, has_history);
    }

    fn unsubscribe(&self, filter: &str) {
        self.remote.unsubscribe(filter);
    }
}

impl Server {
    fn channel(&self, topic: &str) -> String {
        format!("{}{topic}", self.prefix)
    }

    fn history(&self, topic: &str) -> String {
        format!("{}history:{topic}", self.prefix)
    }

    /// Returns a pattern of Redis that matches all topics of a filter, and possibly others, or `None` if the filter has
    /// no wildcard.
    fn pattern(&self, filter: &str) -> Option<String> {
        let is_wildcard = |level: &str| level == "+" || level == "#";
        if !filter.split('/').any(is_wildcard) {
            return None;
        }
        let mut pattern = String::new();
        for character in self.prefix.chars() {
            escape(character, &mut pattern);
        }
        for (at, level) in filter.split('/').enumerate() {
            if at > 0 && level != "#" {
                pattern.push('/');
            }
            match level {
                "+" | "#" => pattern.push('*'),
                _ => level.chars().for_each(|character| escape(character, &mut pattern)),
            }
        }
        Some(pattern)
    }
}

/// Appends a character of a pattern that stands for itself.
fn escape(character: char, pattern: &mut String) {
    if matches!(character, '*' | '?' | '[' | ']' | '^' | '-' | '\\') {
        pattern.push('\\');
    }
    pattern.push(character);
}

impl Protocol for Server {
    type Session = Connected;

    async fn connect(&self, link: Link) -> Result<Connected, String> {
        let config = AsyncConnectionConfig::new().set_connection_timeout(Some(STEP)).set_response_timeout(Some(STEP));
        let to_say = |error: RedisError| error.to_string();
        let sending = self.client.get_multiplexed_async_connection_with_config(&config).await.map_err(to_say)?;
        let (listening, messages) = self.client.get_async_pubsub().await.map_err(to_say)?.split();
        let check = tokio::spawn(check(sending.clone(), listening.clone()));
        let (messages, check) = (RefCell::new(messages), RefCell::new(check));
        let patterns = RefCell::default();
        Ok(Connected { server: self.clone(), link, sending, listening, messages, patterns, check })
    }
}

/// The two connections to Redis.
pub(super) struct Connected {
    server: Server,
    link: Link,
    sending: MultiplexedConnection,
    listening: PubSubSink,
    messages: RefCell<PubSubStream>,
    /// The filters of each pattern to which Redis listens.
    patterns: RefCell<HashMap<String, Vec<String>>>,
    /// The task that checks both connections. It ends with the reason if one of them is lost.
    check: RefCell<JoinHandle<String>>,
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.check.borrow().abort();
    }
}

/// Checks both connections again and again. Returns an error when one of them does not answer.
async fn check(mut sending: MultiplexedConnection, mut listening: PubSubSink) -> String {
    loop {
        sleep(PING).await;
        let ping = cmd("PING");
        if let Err(error) = in_time(ping.query_async::<redis::Value>(&mut sending)).await {
            return error;
        }
        if let Err(error) = in_time(listening.ping::<redis::Value>()).await {
            return error;
        }
    }
}

impl Connected {
    async fn listen(&self, filters: &[(String, bool)]) -> Result<(), String> {
        let (mut channels, mut patterns) = (Vec::new(), Vec::new());
        for (filter, _) in filters {
            match self.server.pattern(filter) {
                None => channels.push(self.server.channel(filter)),
                Some(pattern) => {
                    let mut all = self.patterns.borrow_mut();
                    let known = all.entry(pattern.clone()).or_default();
                    if known.is_empty() {
                        patterns.push(pattern);
                    }
                    if !known.contains(filter) {
                        known.push(filter.clone());
                    }
                }
            }
        }
        let mut listening = self.listening.clone();
        if !patterns.is_empty() {
            in_time(listening.psubscribe(patterns)).await?;
        }
        if !channels.is_empty() {
            in_time(listening.subscribe(channels)).await?;
        }
        let topics: Vec<_> = filters.iter().filter(|(_, has_history)| *has_history).map(|(topic, _)| topic).collect();
        for topics in topics.chunks(HISTORIES) {
            let mut requests = pipe();
            for topic in topics {
                let most = isize::try_from(self.link.history_length(topic)).unwrap_or(isize::MAX);
                requests.cmd("LRANGE").arg(self.server.history(topic)).arg(-most).arg(-1);
            }
            let mut sending = self.sending.clone();
            let histories: Vec<Vec<Vec<u8>>> = in_time(requests.query_async(&mut sending)).await?;
            if histories.len() != topics.len() {
                return Err("the broker has returned another number of histories than requested".into());
            }
            // Redis has sent all messages of these histories before it answers this ping, so these messages are
            // delivered first, and the histories then tell which of them are known.
            in_time(listening.ping::<redis::Value>()).await?;
            while let Some(Some(message)) = self.next_message().now_or_never() {
                self.deliver(&message);
            }
            for (topic, kept) in topics.iter().zip(histories) {
                self.link.history(topic, Some(kept));
            }
        }
        Ok(())
    }

    async fn forget(&self, filters: &[String]) -> Result<(), String> {
        let (mut channels, mut ended) = (Vec::new(), Vec::new());
        for filter in filters {
            let Some(pattern) = self.server.pattern(filter) else {
                channels.push(self.server.channel(filter));
                continue;
            };
            let mut patterns = self.patterns.borrow_mut();
            if let Some(filters) = patterns.get_mut(&pattern) {
                filters.retain(|known| known != filter);
                if filters.is_empty() {
                    patterns.remove(&pattern);
                    ended.push(pattern);
                }
            }
        }
        let mut listening = self.listening.clone();
        if !ended.is_empty() {
            in_time(listening.punsubscribe(ended)).await?;
        }
        if !channels.is_empty() {
            in_time(listening.unsubscribe(channels)).await?;
        }
        Ok(())
    }

    /// Waits for the next message. Returns `None` if the connection was closed.
    async fn next_message(&self) -> Option<Msg> {
        poll_fn(|cx| self.messages.borrow_mut().poll_next_unpin(cx)).await
    }

    fn deliver(&self, message: &Msg) {
        let payload = message.get_payload_bytes();
        match message.get_pattern::<Option<String>>() {
            Ok(Some(pattern)) => {
                let filters = self.patterns.borrow().get(&pattern).cloned().unwrap_or_default();
                filters.iter().for_each(|filter| self.link.received(filter, payload));
            }
            _ => {
                if let Some(topic) = message.get_channel_name().strip_prefix(&self.server.prefix) {
                    self.link.received(topic, payload);
                }
            }
        }
    }
}

impl Session for Connected {
    fn most_bytes(&self) -> usize {
        MOST_BYTES
    }

    async fn subscribe(&self, filters: &[(String, bool)]) -> Result<(), String> {
        self.listen(filters).await
    }

    async fn unsubscribe(&self, filters: &[String]) -> Result<(), String> {
        self.forget(filters).await
    }

    async fn publish(&self, batch: Vec<Outgoing>) -> Result<(), String> {
        let mut requests = pipe();
        // A refused command, such as one for which Redis has no memory, must not end the connection.
        requests.ignore_errors();
        for Outgoing { topic, payload, keep } in batch {
            let channel = self.server.channel(&topic);
            if keep == 0 {
                requests.cmd("PUBLISH").arg(channel).arg(&payload[..]);
            } else {
                let keep_it = requests.cmd("EVAL").arg(KEEP).arg(1).arg(self.server.history(&topic));
                keep_it.arg(&payload[..]).arg(keep).arg(HISTORY.as_secs()).arg(channel);
            }
        }
        let results: Vec<Result<redis::Value, RedisError>> =
            in_time(requests.query_async(&mut self.sending.clone())).await?;
        let mut refused = results.into_iter().filter_map(Result::err);
        if let Some(error) = refused.next() {
            let count = refused.count() + 1;
            tracing::warn!(broker = ?self.server, %error, count, "the broker has refused messages; they are lost");
        }
        Ok(())
    }

    async fn receive(&self) -> String {
        let mut count = 0;
        loop {
            tokio::select! {
                message = self.next_message() => match message {
                    Some(message) => self.deliver(&message),
                    None => return "the connection was closed".into(),
                },
                error = poll_fn(|cx| self.check.borrow_mut().poll_unpin(cx)) => {
                    return error.unwrap_or_else(|error| error.to_string());
                }
            }
            count += 1;
            if count % BATCH == 0 {
                // The messages to be sent have their turn, too.
                tokio::task::yield_now().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_become_patterns() {
        let redis = Redis::new("redis://127.0.0.1/").expect("a valid URL").prefix("app*:");
        for (filter, pattern) in [
            ("a/b", None),
            ("a/+", Some("app\\*:a/*")),
            ("+/b", Some("app\\*:*/b")),
            ("a/#", Some("app\\*:a*")),
            ("#", Some("app\\*:*")),
            ("a[b]?/+", Some("app\\*:a\\[b\\]\\?/*")),
        ] {
            assert_eq!(redis.server.pattern(filter).as_deref(), pattern, "{filter}");
        }
    }
}
