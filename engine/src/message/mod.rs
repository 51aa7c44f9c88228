//! Requests and responses, and their parts: fields, trailers, parts of files, the caller.

pub(crate) mod caller;
pub(crate) mod date;
pub(crate) mod fields;
pub mod file_part;
pub mod reply;
pub mod request;
pub mod response;
pub(crate) mod trailers;
