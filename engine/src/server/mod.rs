//! The server: its settings, its listeners, its workers, and what they share.

pub(crate) mod accept;
pub(crate) mod blocking;
pub(crate) mod budget;
pub(crate) mod config;
pub(crate) mod listen;
pub(crate) mod peers;
pub(crate) mod rules;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod shared;
pub(crate) mod stats;
pub(crate) mod trimming;
