//! Exceptions to the checks, each with its reason. `path` is a file, or a folder if it ends with `/`.

/// An exception to a check.
#[derive(Debug)]
pub(super) struct Exception {
    pub(super) check: &'static str,
    pub(super) path: &'static str,
    pub(super) reason: &'static str,
}

impl Exception {
    pub(super) fn covers(&self, path: &str) -> bool {
        path == self.path || (self.path.ends_with('/') && path.starts_with(self.path))
    }
}

pub(super) const EXCEPTIONS: &[Exception] = &[
    Exception {
        check: "unsafe-place",
        path: "bench/peers/may/src/main.rs",
        reason: "not shipped; may_minihttp exposes its socket only as a number, and TCP_NODELAY must be set on it",
    },
    Exception {
        check: "unsafe-place",
        path: "highwire/tests/allocations.rs",
        reason: "a global allocator needs unsafe; this one counts calls and passes them to the system's, in one test program",
    },
];
