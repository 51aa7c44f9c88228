//! NATS as a broker, without JetStream: subjects, and no history.

use super::broker::{Broker, Link};
use super::error::BrokerError;
use super::remote::{Outgoing, Protocol, Remote, STEP, Session, in_time};
use async_nats::client::PublishErrorKind;
use async_nats::{Client, ConnectOptions, Event, ServerAddr, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt;
use highwire_io::random;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::AbortHandle;
use tokio::time::timeout;

/// The interval in which an idle connection is checked.
const PING: Duration = Duration::from_secs(5);

/// The characters that have a meaning in a subject or must not be in one.
const ENCODED: &AsciiSet = &CONTROLS.add(b' ').add(b'.').add(b'*').add(b'>').add(b'%');

/// A [`Broker`] that shares topics through NATS (feature `nats`).
///
/// NATS keeps no messages, so the history of a topic begins on each machine with the topic's first listener there,
/// and begins anew when the connection was lost.
#[derive(Debug)]
pub struct Nats {
    server: Server,
    remote: Remote,
}

#[derive(Clone)]
struct Server {
    address: ServerAddr,
    prefix: String,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL may contain a password.
        write!(f, "nats at {}:{}", self.address.host(), self.address.port())
    }
}

impl Nats {
    /// Creates a broker for a URL such as `nats://user:password@127.0.0.1:4222`. It connects when the topics are built,
    /// and again whenever the connection is lost.
    ///
    /// # Errors
    /// Returns an error if the URL is invalid.
    pub fn new(url: &str) -> io::Result<Nats> {
        let server = Server { address: url.parse()?, prefix: "highwire".into() };
        Ok(Nats { server, remote: Remote::default() })
    }

    /// Sets the first token of all subjects; the default is `highwire`.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Nats {
        self.server.prefix = prefix.into();
        self
    }
}

impl Broker for Nats {
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
    /// Returns the subjects of a topic or filter. A `#` also stands for no level, for which NATS needs a subject of its
    /// own.
    fn subjects(&self, filter: &str) -> Vec<String> {
        let mut subject = self.prefix.clone();
        let mut subjects = Vec::new();
        for level in filter.split('/') {
            if level == "#" && subject != self.prefix {
                subjects.push(subject.clone());
            }
            subject.push('.');
            match level {
                "+" => subject.push('*'),
                "#" => subject.push('>'),
                _ => subject.extend(utf8_percent_encode(level, ENCODED)),
            }
        }
        subjects.push(subject);
        subjects
    }
}

impl Protocol for Server {
    type Session = Connected;

    async fn connect(&self, link: Link) -> Result<Connected, String> {
        let (sender, events) = unbounded_channel();
        let options = ConnectOptions::new()
            .connection_timeout(STEP)
            .request_timeout(Some(STEP))
            .ping_interval(PING)
            .event_callback(move |event| {
                // Fails if the session has ended.
                let _ = sender.send(event);
                async {}
            });
        let client = options.connect(self.address.clone()).await.map_err(|error| error.to_string())?;
        let (events, listeners) = (RefCell::new(events), RefCell::default());
        Ok(Connected { server: self.clone(), link, client, events, listeners })
    }
}

/// A connection to NATS.
pub(super) struct Connected {
    server: Server,
    link: Link,
    client: Client,
    events: RefCell<UnboundedReceiver<Event>>,
    /// The tasks that receive the messages of each filter.
    listeners: RefCell<HashMap<String, Vec<AbortHandle>>>,
}

impl Connected {
    /// Waits until the server has processed all earlier commands, by sending a message to this client.
    async fn settle(&self) -> Result<(), String> {
        let subject = format!("{}.$settled.{:x}", self.server.prefix, random::system());
        let mut echo = in_time(self.client.subscribe(subject.clone())).await?;
        in_time(self.client.publish(subject, Bytes::new())).await?;
        timeout(STEP, echo.next()).await.ok().flatten().map(drop).ok_or_else(|| "the broker does not answer".into())
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.listeners.borrow().values().flatten().for_each(AbortHandle::abort);
    }
}

async fn listen(mut messages: Subscriber, filter: String, link: Link) {
    while let Some(message) = messages.next().await {
        link.received(&filter, &message.payload);
    }
}

impl Session for Connected {
    fn most_bytes(&self) -> usize {
        self.client.server_info().max_payload
    }

    async fn subscribe(&self, filters: &[(String, bool)]) -> Result<(), String> {
        for (filter, _) in filters {
            if self.listeners.borrow().contains_key(filter) {
                continue;
            }
            for subject in self.server.subjects(filter) {
                let messages = in_time(self.client.subscribe(subject)).await?;
                let task = tokio::spawn(listen(messages, filter.clone(), self.link.clone()));
                self.listeners.borrow_mut().entry(filter.clone()).or_default().push(task.abort_handle());
            }
        }
        self.settle().await?;
        for (topic, _) in filters.iter().filter(|(_, has_history)| *has_history) {
            self.link.history(topic, None);
        }
        Ok(())
    }

    async fn unsubscribe(&self, filters: &[String]) -> Result<(), String> {
        // The end of the task drops the subscription, which tells the server.
        let mut listeners = self.listeners.borrow_mut();
        let ended = filters.iter().filter_map(|filter| listeners.remove(filter));
        ended.flatten().for_each(|task| task.abort());
        Ok(())
    }

    async fn publish(&self, batch: Vec<Outgoing>) -> Result<(), String> {
        for Outgoing { topic, payload, .. } in batch {
            for subject in self.server.subjects(&topic) {
                match timeout(STEP, self.client.publish(subject, payload.clone())).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) if error.kind() == PublishErrorKind::Send => return Err(error.to_string()),
                    Ok(Err(error)) => {
                        tracing::warn!(broker = ?self.server, %error, "the broker has refused a message; it is lost");
                    }
                    Err(_) => return Err("the broker does not answer".into()),
                }
            }
        }
        Ok(())
    }

    async fn receive(&self) -> String {
        loop {
            match poll_fn(|cx| self.events.borrow_mut().poll_recv(cx)).await {
                // Messages may have been lost. A new session also fetches the histories, which the client's own
                // reconnection would not do.
                Some(Event::Disconnected | Event::Closed | Event::Draining) | None => {
                    return "the connection was closed".into();
                }
                Some(Event::SlowConsumer(_)) => return "messages arrived faster than they were delivered".into(),
                Some(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_become_subjects() {
        let nats = Nats::new("nats://127.0.0.1").expect("a valid URL");
        for (filter, subjects) in [
            ("a/b", &["highwire.a.b"][..]),
            ("a/+/c", &["highwire.a.*.c"]),
            ("a/#", &["highwire.a", "highwire.a.>"]),
            ("#", &["highwire.>"]),
            ("a.b/c d/*>%é", &["highwire.a%2Eb.c%20d.%2A%3E%25%C3%A9"]),
        ] {
            assert_eq!(nats.server.subjects(filter), subjects, "{filter}");
        }
    }
}
