//! Requests and responses: what handlers take from one and make the other of, header fields, and their values.

pub(crate) mod async_request;
pub(crate) mod auth;
pub(crate) mod base64;
pub(crate) mod dot_segments;
pub(crate) mod extract;
#[cfg(feature = "json")]
pub(crate) mod fields;
pub(crate) mod html;
pub(crate) mod media;
pub(crate) mod negotiate;
pub(crate) mod problem;
pub(crate) mod provided;
pub(crate) mod redirect;
pub(crate) mod reply;
pub(crate) mod request;
pub(crate) mod response;
#[cfg(feature = "json")]
pub(crate) mod typed;
#[cfg(feature = "headers")]
pub(crate) mod typed_header;
pub(crate) mod upgrade;
#[cfg(feature = "garde")]
pub(crate) mod valid;
pub(crate) mod weight;
