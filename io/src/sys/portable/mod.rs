//! Substitutes for the modules that use system calls of Linux.

#[cfg(not(target_os = "linux"))]
pub(crate) mod affinity;
#[cfg(not(target_os = "linux"))]
pub(crate) mod embed;
pub(crate) mod file;
#[cfg(not(target_os = "linux"))]
pub(crate) mod socket;
#[cfg(not(target_os = "linux"))]
pub(crate) mod uring;
