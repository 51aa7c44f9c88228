//! Where a check does not hold, and why. `path` is a file, or a folder with its last `/`.

/// One exception.
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
        reason: "not shipped; may_minihttp gives a number where the socket should be, and TCP_NODELAY can be set in no other way",
    },
    Exception {
        check: "unsafe-place",
        path: "highwire/tests/allocations.rs",
        reason: "a global allocator is unsafe by its nature; this one counts and hands on, in a test program of its own",
    },
];
