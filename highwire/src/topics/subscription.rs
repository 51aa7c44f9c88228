//! Subscriptions, and event streams of topics.

use super::filter::PRESENCE;
use super::histories::Kept;
use super::history::Start;
use super::hub::Hub;
use super::local::Local;
use super::message::Delivery;
use super::subscriber::{Queued, Sink, Subscriber};
use super::tree::{Key, cost};
use super::{SubscribeError, Topics};
use crate::sse::{self, Event, LastEventId};
use crate::{Response, body};
use bytes::Bytes;
use futures_core::Stream;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// A subscription to the topics that match a filter. It belongs to the worker that has created it, and ends when it is
/// dropped.
///
/// Messages wait in it until they are received; their number is limited by the settings of their topics
/// ([`Topic::queue`](super::Topic::queue)).
///
/// ```
/// use highwire::topics::{Start, Topics};
/// use highwire::testing::Client;
/// use highwire::{App, State};
///
/// let app = App::new().state(Topics::new()).get("/next", async |State(topics): State<Topics>| {
///     let mut news = topics.subscribe("news/#", Start::Next).expect("a valid filter");
///     topics.publish("news/sport", "one to nil").expect("a valid name");
///     let delivery = news.recv().await.expect("a message");
///     format!("{}: {:?}", delivery.topic(), delivery.message())
/// });
/// assert_eq!(Client::new(app)?.get("/next").send().text(), "news/sport: Text(\"one to nil\")");
/// # Ok::<(), highwire::Error>(())
/// ```
#[must_use]
pub struct Subscription {
    local: Rc<Local>,
    filter: Rc<str>,
    subscriber: Rc<Subscriber>,
    key: Key,
    /// The topic's history, which is kept as long as it has a subscriber.
    history: Option<Arc<Kept>>,
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").field("filter", &self.filter).finish_non_exhaustive()
    }
}

impl Subscription {
    /// Subscribes. Messages go to the sink while it has room, and otherwise wait.
    pub(crate) fn new(
        hub: &Arc<Hub>,
        filter: &str,
        start: Start,
        sink: Option<(Weak<dyn Sink>, Queued)>,
    ) -> Result<Subscription, SubscribeError> {
        let has_history = hub.has_history(filter)?;
        if !has_history && start != Start::Next {
            return Err(SubscribeError::NoHistory);
        }
        let local = Local::get_or_create(hub);
        let subscriber = Rc::new(Subscriber::new(sink, filter.starts_with(PRESENCE)));
        hub.listen(filter, has_history);
        let filter: Rc<str> = filter.into();
        let history = has_history.then(|| hub.history(&(&*filter).into(), hub.rule(&filter)));
        let key = match &history {
            // The lock is held until the subscriber is added: messages that are published later go to the worker's
            // mailbox.
            Some(kept) => hub.histories.change(kept, |history| {
                history.listeners += 1;
                if history.is_complete {
                    subscriber.replay(history, start);
                } else {
                    subscriber.wait_for_history(start);
                }
                local.add(&filter, subscriber.clone())
            }),
            None => local.add(&filter, subscriber.clone()),
        };
        Ok(Subscription { local, filter, subscriber, key, history })
    }

    /// Returns about how many bytes the subscription holds, without messages.
    pub(crate) fn cost(&self) -> usize {
        cost(&self.filter)
    }

    /// Returns the filter.
    pub fn filter(&self) -> &str {
        &self.filter
    }

    /// Waits for the next message. Returns `None` when the subscription has ended, because its reader was slow and the
    /// topic's policy is [`SlowReader::Disconnect`](super::SlowReader::Disconnect).
    pub async fn recv(&mut self) -> Option<Delivery> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// Polls for the next message, as [`recv`](Self::recv) does.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<Delivery>> {
        self.subscriber.poll_next(cx)
    }

    pub(crate) fn subscriber(&self) -> &Subscriber {
        &self.subscriber
    }

    /// Returns true if this is a subscription of a hub to a filter.
    pub(crate) fn is_of(&self, hub: &Arc<Hub>, filter: &str) -> bool {
        Arc::ptr_eq(&self.local.hub, hub) && *self.filter == *filter
    }
}

impl Stream for Subscription {
    type Item = Delivery;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Delivery>> {
        self.poll_recv(cx)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.subscriber.end();
        self.local.remove(&self.filter, self.key);
        let hub = &self.local.hub;
        if let Some(kept) = &self.history {
            hub.histories.change(kept, |history| history.listeners -= 1);
            hub.histories.keep_bounds();
        }
        hub.unlisten(&self.filter);
    }
}

impl Topics {
    /// Responds with the text messages of a filter's topics as Server-Sent Events. If the topic has a history, a page
    /// that reconnects resumes after the last event that it has received, and a new page begins with `start`. Before an
    /// event that follows lost messages, an event of the type `missed` is sent. Binary messages are left out.
    ///
    /// ```
    /// use highwire::sse::LastEventId;
    /// use highwire::topics::{Start, Topic, Topics};
    /// use highwire::{App, State};
    ///
    /// let topics = Topics::builder().topic("news", Topic::new().history(50)).build();
    /// let app = App::new().state(topics).get("/news", |State(topics): State<Topics>, last: LastEventId| {
    ///     topics.events("news", Start::Last(10), last)
    /// });
    /// # let _ = app;
    /// ```
    ///
    /// # Errors
    /// As [`subscribe`](Self::subscribe).
    pub fn events(&self, filter: &str, start: Start, last: LastEventId) -> Result<Response, SubscribeError> {
        let after = last.0.and_then(|id| id.parse().ok()).map(Start::After);
        // Topics without a history cannot be resumed.
        let start = after.filter(|_| self.hub().has_history(filter) == Ok(true)).unwrap_or(start);
        let subscription = self.subscribe(filter, start)?;
        Ok(sse::response(TopicEvents { subscription, next: None, missed: false }))
    }
}

/// The events of a subscription.
struct TopicEvents {
    subscription: Subscription,
    /// The event behind a report of lost messages.
    next: Option<Bytes>,
    /// True if messages were lost before the next event.
    missed: bool,
}

impl Stream for TopicEvents {
    type Item = Result<Bytes, body::BodyError>;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(event) = self.next.take() {
            return Poll::Ready(Some(Ok(event)));
        }
        loop {
            // If the subscription has ended, the page reconnects and resumes.
            let Some(delivery) = ready!(self.subscription.poll_recv(cx)) else { return Poll::Ready(None) };
            self.missed |= delivery.missed();
            let Some(event) = delivery.published.event() else { continue };
            if std::mem::take(&mut self.missed) {
                self.next = Some(event);
                return Poll::Ready(Some(Ok(Event::new("").name("missed").into_bytes())));
            }
            return Poll::Ready(Some(Ok(event)));
        }
    }
}
