//! What Linux does with calls of its own, done on any other system.

#[cfg(not(target_os = "linux"))]
pub(crate) mod affinity;
#[cfg(not(target_os = "linux"))]
pub(crate) mod embed;
pub(crate) mod file;
#[cfg(not(target_os = "linux"))]
pub(crate) mod uring;
