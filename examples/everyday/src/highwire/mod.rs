//! The tasks on Highwire.

pub mod background;
pub mod bearer;
pub mod call;
pub mod chat;
pub mod cors;
pub mod errors;
pub mod events;
pub mod files;
pub mod https;
pub mod json;
pub mod limits;
pub mod login;
pub mod observe;
pub mod openapi;
pub mod proxy;
pub mod query;
pub mod rate_limit;
pub mod test;
pub mod upload;
pub mod validation;
