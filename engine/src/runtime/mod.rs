//! What tasks on a worker need: the driver, wakes, clocks and deadlines, connections that they open, memory that is kept, the
//! blocking pool.

pub mod connect;
pub mod context;
pub(crate) mod deadline;
pub(crate) mod driver;
pub(crate) mod free_list;
pub mod memory;
pub(crate) mod panics;
pub(crate) mod pool;
pub(crate) mod promise;
pub(crate) mod queue;
pub mod rate_limited;
pub(crate) mod remote;
pub(crate) mod spawn_blocking;
pub mod time;
