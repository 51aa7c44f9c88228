//! What the extractors of this crate say of a request.

use super::{Description, OperationInput, SecurityScheme};
use crate::body::Body;
use crate::cookie::Cookies;
use crate::form::Multipart;
use crate::middleware::{ClientAddress, Forwarded, RequestId, TraceParent};
use crate::sse::LastEventId;
use crate::ws::WebSocketUpgrade;
use crate::{
    Accept, Authority, Basic, Bearer, Disconnect, Extension, Form, HeaderMap, InterimResponses, Json, MatchedPath,
    Method, OptionalFromRequest, Path, Peer, PerWorker, Query, RawQuery, Reply, Request, Response, Scheme, State,
    StatusCode, Tls, Upgrade, Version,
};
use bytes::Bytes;
use schemars::JsonSchema;

/// Extractors of what the connection, the app or the middleware knows, and of fields that any request may have.
macro_rules! nothing {
    ($($extractor:ty,)*) => {$(
        impl OperationInput for $extractor {}
    )*};
}

nothing! {
    Accept, Authority, Cookies, Disconnect, Forwarded, HeaderMap, InterimResponses, MatchedPath, Method, Peer,
    RawQuery, Reply, RequestId, Scheme, highwire_engine::Stats, TraceParent, Upgrade, Version,
}

impl<T> OperationInput for State<T> {}
impl<T> OperationInput for PerWorker<T> {}
impl<T> OperationInput for Extension<T> {}
#[cfg(feature = "cookies")]
impl<T> OperationInput for crate::session::Session<T> {}

impl<T: OperationInput + OptionalFromRequest> OperationInput for Option<T> {
    fn describe_input(description: &mut Description<'_>) {
        description.optional(T::describe_input);
    }
}

/// The handler gets what the extractor refuses, so nothing must be there.
impl<T: OperationInput> OperationInput for Result<T, Response> {
    fn describe_input(description: &mut Description<'_>) {
        description.without_refusals(T::describe_input);
    }
}

impl<T: JsonSchema> OperationInput for Path<T> {
    fn describe_input(description: &mut Description<'_>) {
        description.path_parameters::<T>();
        description.refusal(StatusCode::NOT_FOUND, "Nothing has this path.");
    }
}

impl<T: JsonSchema> OperationInput for Query<T> {
    fn describe_input(description: &mut Description<'_>) {
        description.query_parameters::<T>();
        description.refusal(StatusCode::BAD_REQUEST, "The query is malformed or does not fit.");
    }
}

/// The refusal of a body that exceeds the limit. The engine words it, or `App::on_error`, so it has no schema.
fn limited(description: &mut Description<'_>) {
    description.refusal_status(StatusCode::PAYLOAD_TOO_LARGE, "The body is too large.");
}

impl<T: JsonSchema> OperationInput for Json<T> {
    fn describe_input(description: &mut Description<'_>) {
        description.body::<T>("application/json");
        description.refusal(StatusCode::BAD_REQUEST, "The JSON is malformed.");
        limited(description);
        description.refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, "The body is not JSON.");
        description.refusal(StatusCode::UNPROCESSABLE_ENTITY, "The JSON does not fit.");
    }
}

impl<T: JsonSchema> OperationInput for Form<T> {
    fn describe_input(description: &mut Description<'_>) {
        description.body::<T>("application/x-www-form-urlencoded");
        description.body::<T>("multipart/form-data");
        description.refusal(StatusCode::BAD_REQUEST, "The form is malformed.");
        limited(description);
        description.refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, "The body is not a form.");
        description.refusal(StatusCode::UNPROCESSABLE_ENTITY, "The form does not fit.");
    }
}

impl OperationInput for Multipart {
    fn describe_input(description: &mut Description<'_>) {
        description.bytes_body("multipart/form-data");
        description.refusal(StatusCode::BAD_REQUEST, "The form is malformed.");
        limited(description);
        description.refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, "The body is not a multipart form.");
    }
}

impl OperationInput for Bytes {
    fn describe_input(description: &mut Description<'_>) {
        description.optional(|description| description.bytes_body("*/*"));
        limited(description);
    }
}

impl OperationInput for Body {
    fn describe_input(description: &mut Description<'_>) {
        description.optional(|description| description.bytes_body("*/*"));
        limited(description);
    }
}

impl OperationInput for String {
    fn describe_input(description: &mut Description<'_>) {
        description.optional(|description| description.body::<String>("text/plain"));
        description.refusal_status(StatusCode::BAD_REQUEST, "The body is not UTF-8.");
        limited(description);
    }
}

impl OperationInput for ClientAddress {
    fn describe_input(description: &mut Description<'_>) {
        description.refusal_status(StatusCode::BAD_REQUEST, "What a proxy says about the client is malformed.");
    }
}

impl OperationInput for WebSocketUpgrade {
    fn describe_input(description: &mut Description<'_>) {
        description.refusal_status(StatusCode::BAD_REQUEST, "The handshake is malformed.");
        description.refusal_status(StatusCode::FORBIDDEN, "Pages of this origin may not connect.");
        description.refusal_status(StatusCode::UPGRADE_REQUIRED, "The request opens no WebSocket.");
    }
}

impl OperationInput for LastEventId {
    fn describe_input(description: &mut Description<'_>) {
        description
            .optional(|description| description.header("last-event-id", "The id of the last event that was seen."));
    }
}

impl OperationInput for Tls {
    fn describe_input(description: &mut Description<'_>) {
        if !description.is_optional() {
            description.refusal_status(StatusCode::FORBIDDEN, "The request did not come by https.");
        }
    }
}

impl OperationInput for Basic {
    fn describe_input(description: &mut Description<'_>) {
        description.security("basic", SecurityScheme::Basic);
        description.refusal(StatusCode::UNAUTHORIZED, "The name or the password is missing or wrong.");
    }
}

impl OperationInput for Bearer {
    fn describe_input(description: &mut Description<'_>) {
        description.security("bearer", SecurityScheme::Bearer);
        description.refusal(StatusCode::UNAUTHORIZED, "The token is missing or not valid.");
    }
}

#[cfg(feature = "headers")]
impl<H: headers::Header> OperationInput for crate::TypedHeader<H> {
    fn describe_input(description: &mut Description<'_>) {
        description.header(H::name().as_str(), "");
        description.refusal(StatusCode::BAD_REQUEST, "A header field is missing or malformed.");
    }
}

#[cfg(feature = "garde")]
impl<E: OperationInput> OperationInput for crate::Valid<E> {
    fn describe_input(description: &mut Description<'_>) {
        E::describe_input(description);
        description.refusal(StatusCode::UNPROCESSABLE_ENTITY, "A value breaks a rule.");
    }
}

#[cfg(feature = "garde")]
impl<E: OperationInput> OperationInput for crate::Checked<E> {
    fn describe_input(description: &mut Description<'_>) {
        E::describe_input(description);
    }
}

/// For functions of the whole request, whose types say nothing about what they read.
impl OperationInput for Request<'_> {}

macro_rules! tuples {
    ($($part:ident)*) => {
        impl<$($part: OperationInput),*> OperationInput for ($($part,)*) {
            fn describe_input(description: &mut Description<'_>) {
                $($part::describe_input(description);)*
            }
        }
    };
}

tuples!(A);
tuples!(A B);
tuples!(A B C);
tuples!(A B C D);
