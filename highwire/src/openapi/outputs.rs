//! What the responses of this crate say of themselves.

use super::description::Status;
use super::{Description, OperationOutput};
use crate::{Html, IntoResponse, IntoResponseParts, Json, Problem, Redirect, Response, StatusCode};
use bytes::Bytes;
use http::HeaderMap;
use schemars::JsonSchema;
use std::borrow::Cow;
use std::convert::Infallible;

const OK: Status = Status::Code(200);

impl<T: JsonSchema> OperationOutput for Json<T> {
    fn describe_output(description: &mut Description<'_>) {
        let schema = description.schema_of_result::<T>();
        description.result(OK, Some(("application/json", Some(schema))));
    }
}

macro_rules! texts {
    ($($text:ty),*) => {$(
        impl OperationOutput for $text {
            fn describe_output(description: &mut Description<'_>) {
                let schema = description.schema_of_result::<String>();
                description.result(OK, Some(("text/plain", Some(schema))));
            }
        }
    )*};
}

texts!(&'static str, String, Cow<'static, str>);

macro_rules! bytes {
    ($($bytes:ty),*) => {$(
        impl OperationOutput for $bytes {
            fn describe_output(description: &mut Description<'_>) {
                description.result(OK, Some(("application/octet-stream", None)));
            }
        }
    )*};
}

bytes!(Bytes, Vec<u8>, &'static [u8]);

impl<T> OperationOutput for Html<T> {
    fn describe_output(description: &mut Description<'_>) {
        let schema = description.schema_of_result::<String>();
        description.result(OK, Some(("text/html", Some(schema))));
    }
}

#[cfg(feature = "templates")]
impl<C> OperationOutput for crate::templates::Template<C> {
    fn describe_output(description: &mut Description<'_>) {
        Html::<String>::describe_output(description);
    }
}

impl OperationOutput for () {
    fn describe_output(description: &mut Description<'_>) {
        description.result(OK, None);
    }
}

impl OperationOutput for HeaderMap {
    fn describe_output(description: &mut Description<'_>) {
        description.result(OK, None);
    }
}

/// The type does not tell the status, nor the content.
impl OperationOutput for Response {
    fn describe_output(description: &mut Description<'_>) {
        description.result(Status::Other, None);
    }
}

impl OperationOutput for StatusCode {
    fn describe_output(description: &mut Description<'_>) {
        description.result(Status::Other, None);
    }
}

impl OperationOutput for Problem {
    fn describe_output(description: &mut Description<'_>) {
        let schema = description.schema_of_result::<Problem>();
        description.result(Status::Other, Some(("application/problem+json", Some(schema))));
    }
}

/// Errors that are sent with one of several statuses and a text.
macro_rules! errors {
    ($($(#[$feature:meta])? $error:ty,)*) => {$(
        $(#[$feature])?
        impl OperationOutput for $error {
            fn describe_output(description: &mut Description<'_>) {
                description.result(Status::Other, None);
            }
        }
    )*};
}

errors! {
    crate::SpawnBlockingError,
    #[cfg(feature = "client")]
    crate::client::Error,
    crate::form::MultipartError,
    crate::task::JoinError,
    crate::topics::SubscribeError,
    #[cfg(feature = "client")]
    crate::ws::ConnectError,
    highwire_engine::body::BodyError,
    #[cfg(feature = "cookies")]
    crate::session::SessionError,
    #[cfg(feature = "templates")]
    crate::templates::TemplateError,
}

impl OperationOutput for Redirect {
    fn describe_output(description: &mut Description<'_>) {
        description.result(Status::Range(3), None);
    }
}

impl OperationOutput for Infallible {
    fn describe_output(_: &mut Description<'_>) {}
}

impl<const CODE: u16, R: OperationOutput> OperationOutput for crate::Status<CODE, R> {
    fn describe_output(description: &mut Description<'_>) {
        description.with_status(Status::Code(CODE), None, R::describe_output);
    }
}

impl<T: OperationOutput, E: OperationOutput> OperationOutput for Result<T, E> {
    fn describe_output(description: &mut Description<'_>) {
        T::describe_output(description);
        E::describe_output(description);
    }
}

impl<T: OperationOutput> OperationOutput for Option<T> {
    fn describe_output(description: &mut Description<'_>) {
        T::describe_output(description);
        description.status(StatusCode::NOT_FOUND, "There is no such thing.");
    }
}

macro_rules! tuples {
    ($(($($part:ident)*))*) => {$(
        impl<$($part: IntoResponseParts,)* R: OperationOutput> OperationOutput for ($($part,)* R,) {
            fn describe_output(description: &mut Description<'_>) {
                R::describe_output(description);
            }
        }

        impl<$($part: IntoResponseParts,)* R: OperationOutput> OperationOutput for (StatusCode, $($part,)* R,) {
            fn describe_output(description: &mut Description<'_>) {
                description.with_status(Status::Other, None, R::describe_output);
            }
        }
    )*};
}

/// The type does not tell the status; [`Status`](crate::Status) does.
impl<R: OperationOutput + IntoResponse> OperationOutput for (StatusCode, R) {
    fn describe_output(description: &mut Description<'_>) {
        description.with_status(Status::Other, None, R::describe_output);
    }
}

tuples!((A) (A B) (A B C));
