//! The errors of topics.

use super::filter::InvalidTopic;
use crate::{IntoResponse, Response, StatusCode};
use std::fmt;

/// The reason why a message was not sent to the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BrokerError {
    /// The broker is not connected, or its queue is full. A later attempt may succeed.
    Unavailable,
    /// The message is larger than the broker permits. It can never be sent.
    TooLarge,
}

impl fmt::Display for BrokerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BrokerError::Unavailable => "the broker is not connected or its queue is full; the message was not sent",
            BrokerError::TooLarge => "the message is larger than the broker permits",
        })
    }
}

impl std::error::Error for BrokerError {}

/// The reason why a message was not published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PublishError {
    /// The topic's name is invalid.
    Topic(InvalidTopic),
    /// Only text and binary messages can be published.
    NotData,
    /// The message was not given to the broker.
    Broker(BrokerError),
    /// The memory budget has no room for the message.
    NoMemory,
}

impl fmt::Display for PublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PublishError::Topic(error) => error.fmt(f),
            PublishError::NotData => f.write_str("only text and binary messages can be published"),
            PublishError::Broker(error) => error.fmt(f),
            PublishError::NoMemory => f.write_str("the server has no memory for this message now"),
        }
    }
}

impl std::error::Error for PublishError {}

impl From<InvalidTopic> for PublishError {
    fn from(error: InvalidTopic) -> PublishError {
        PublishError::Topic(error)
    }
}

impl From<BrokerError> for PublishError {
    fn from(error: BrokerError) -> PublishError {
        PublishError::Broker(error)
    }
}

/// The reason why a subscription was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SubscribeError {
    /// The filter is invalid.
    Filter(InvalidTopic),
    /// [`Start::Last`](super::Start::Last) and [`Start::After`](super::Start::After) need a filter without a wildcard,
    /// whose topic has a history.
    NoHistory,
    /// The WebSocket has 1,000 subscriptions.
    TooMany,
}

impl fmt::Display for SubscribeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SubscribeError::Filter(error) => error.fmt(f),
            SubscribeError::NoHistory => {
                f.write_str("only a topic with a history can be resumed, not a filter with a wildcard")
            }
            SubscribeError::TooMany => f.write_str("the WebSocket has 1,000 subscriptions already"),
        }
    }
}

impl std::error::Error for SubscribeError {}

impl From<InvalidTopic> for SubscribeError {
    fn from(error: InvalidTopic) -> SubscribeError {
        SubscribeError::Filter(error)
    }
}

/// Responds with 400 and the reason.
impl IntoResponse for SubscribeError {
    fn into_response(self) -> Response {
        Response::error(StatusCode::BAD_REQUEST, format!("{self}\n"))
    }
}

/// Responds with 400 and the reason if the name or the kind of the message is wrong, with 413 if the broker takes no such long message, and
/// otherwise with 503.
impl IntoResponse for PublishError {
    fn into_response(self) -> Response {
        let status = match self {
            PublishError::Topic(_) | PublishError::NotData => StatusCode::BAD_REQUEST,
            PublishError::Broker(BrokerError::TooLarge) => StatusCode::PAYLOAD_TOO_LARGE,
            PublishError::Broker(BrokerError::Unavailable) | PublishError::NoMemory => StatusCode::SERVICE_UNAVAILABLE,
        };
        Response::error(status, format!("{self}\n"))
    }
}

/// Responds with 400 and the reason if the name or the information is wrong, and with 503 if the topic is full.
impl IntoResponse for JoinError {
    fn into_response(self) -> Response {
        let status = match self {
            JoinError::Topic(_) | JoinError::TooLong => StatusCode::BAD_REQUEST,
            JoinError::Full => StatusCode::SERVICE_UNAVAILABLE,
        };
        Response::error(status, format!("{self}\n"))
    }
}

/// The reason why a member could not join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JoinError {
    /// The topic's name is invalid.
    Topic(InvalidTopic),
    /// The name or the information is longer than 256 bytes.
    TooLong,
    /// The topic has 1,000 members on this machine.
    Full,
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JoinError::Topic(error) => error.fmt(f),
            JoinError::TooLong => f.write_str("a member's name and information must have at most 256 bytes"),
            JoinError::Full => f.write_str("the topic has 1,000 members on this machine already"),
        }
    }
}

impl std::error::Error for JoinError {}

impl From<InvalidTopic> for JoinError {
    fn from(error: InvalidTopic) -> JoinError {
        JoinError::Topic(error)
    }
}
