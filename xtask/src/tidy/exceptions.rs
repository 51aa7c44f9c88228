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
    // Data of both layers side by side: no operation is named next to a parser.
    Exception {
        check: "layers",
        path: "highwire/src/request.rs",
        reason: "data only: who asks and what was asked, which is what a request is",
    },
    Exception {
        check: "layers",
        path: "highwire/src/server/blocking.rs",
        reason: "the engine of threads stands where a driver and a worker stand; it lends connections a head and does not look into it",
    },
    Exception {
        check: "layers",
        path: "highwire/src/server/config.rs",
        reason: "gathers the options of both layers and hands each to its owner",
    },
    Exception {
        check: "layers",
        path: "highwire/src/server/worker/context.rs",
        reason: "hands a parsed head to a handler together with the peer and the time; no bytes pass",
    },
    Exception {
        check: "layers",
        path: "highwire/src/server/exchange/log.rs",
        reason: "says what a head said, and how long ago that was",
    },
    Exception {
        check: "layers",
        path: "highwire/src/middleware/wait.rs",
        reason: "data only: a request that is kept, as it was",
    },
    Exception {
        check: "layers",
        path: "highwire/src/testing.rs",
        reason: "the other side of a connection, for users' tests: a client's protocol over the simulated network",
    },
    Exception {
        check: "layers",
        path: "highwire/src/server/worker/state.rs",
        reason: "lends each connection in turn the worker's one head to parse into, and does not look into it",
    },
    // Locks: never for a request.
    Exception {
        check: "no-lock",
        path: "highwire/src/server/accept.rs",
        reason: "connections of an address are counted over all workers: locked once when one comes and once when it goes",
    },
    Exception {
        check: "no-lock",
        path: "highwire/src/server/calls.rs",
        reason: "requests that come from other threads are left here; locked when one is left and by the turn that it woke",
    },
    Exception {
        check: "no-lock",
        path: "highwire/src/server/pool.rs",
        reason: "threads that run blocking calls wait here for the next one, which is what they are for",
    },
    Exception {
        check: "no-lock",
        path: "highwire/src/server/remote.rs",
        reason: "an acceptor leaves connections here; locked when one is left and by the turn that it woke",
    },
    // Shared ownership: made at the start, or by what crosses threads on purpose.
    Exception {
        check: "no-arc",
        path: "highwire/src/server/blocking.rs",
        reason: "each thread of this engine holds what the server shares; cloned once a connection",
    },
    Exception {
        check: "no-arc",
        path: "highwire/src/server/budget.rs",
        reason: "each worker's share points at the one budget; cloned once a worker",
    },
    Exception {
        check: "no-arc",
        path: "highwire/src/server/calls.rs",
        reason: "where other threads leave requests for a worker; cloned once a worker",
    },
    Exception {
        check: "no-arc",
        path: "highwire/src/server/context.rs",
        reason: "what runs on a worker's thread reaches the blocking pool by it; cloned once a worker",
    },
    Exception { check: "no-arc", path: "highwire/src/server/pool.rs", reason: "each thread of the pool holds it" },
    Exception { check: "no-arc", path: "highwire/src/server/run.rs", reason: "made once, before the workers start" },
    Exception { check: "no-arc", path: "highwire/src/server/shared.rs", reason: "made once, before the workers start" },
    Exception {
        check: "no-arc",
        path: "highwire/src/server/worker/",
        reason: "what other threads know of a worker, and what all workers share; cloned once a worker",
    },
    Exception {
        check: "no-arc",
        path: "highwire/src/dispatch.rs",
        reason: "what all workers share; cloned once a worker",
    },
    Exception {
        check: "no-arc",
        path: "highwire/src/server/remote.rs",
        reason: "what a worker shows of the handler that it is in, made once; the watching thread reads it",
    },
];
