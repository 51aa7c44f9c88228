//! The integration tests of this crate, in one program, because each program links everything. Tests that change their whole process
//! (a global subscriber or allocator, limits, a count of all memory) are programs of their own beside this folder.

#[cfg(feature = "tower")]
#[path = "../asked/mod.rs"]
mod asked;
#[path = "../engines/mod.rs"]
mod engines;
#[cfg(all(unix, feature = "compress", feature = "cookies", feature = "json", feature = "tls"))]
mod everything;
#[path = "../folder/mod.rs"]
mod folder;
#[path = "../memory/mod.rs"]
mod memory;
#[cfg(all(unix, feature = "compress", feature = "cookies", feature = "json", feature = "tls"))]
#[path = "../../../cli/tests/all/programs/mod.rs"]
mod programs;
mod served;
#[cfg(feature = "tls")]
#[path = "../tls_peer/mod.rs"]
mod tls_peer;

mod app {
    mod answers;
    mod blocking;
    #[cfg(feature = "compress")]
    mod compress;
    #[cfg(feature = "compress")]
    mod compress_programs;
    mod early_answers;
    #[cfg(feature = "json")]
    mod extractors;
    #[cfg(feature = "tls")]
    mod file_parts;
    #[cfg(feature = "json")]
    mod forms;
    mod hooks;
    mod http2_crowded;
    #[cfg(feature = "tls")]
    mod http2_versions;
    mod logged_panics;
    #[cfg(feature = "json")]
    mod metrics;
    mod middleware;
    mod middleware_ready;
    mod nested;
    #[cfg(feature = "openapi")]
    mod openapi;
    mod pipelined_bodies;
    mod receiving;
    #[cfg(feature = "json")]
    mod rejections;
    mod requests;
    #[cfg(feature = "tls")]
    mod reset_clients;
    mod responses;
    mod server;
    #[cfg(all(feature = "json", feature = "cookies"))]
    mod sessions;
    mod spans;
    #[cfg(feature = "tls")]
    mod streamed_bodies;
    mod tasks;
    #[cfg(feature = "templates")]
    mod templates;
    #[cfg(feature = "tokio")]
    mod tokio;
    #[cfg(feature = "tokio")]
    mod tokio_workers;
    #[cfg(feature = "garde")]
    mod valid;
}

mod client {
    #[cfg(feature = "json")]
    mod bodies;
    #[cfg(feature = "cookie-jar")]
    mod cookies;
    mod far;
    mod http2;
    mod replies;
    #[cfg(feature = "json")]
    mod requests;
    #[cfg(feature = "json")]
    mod rest;
    #[cfg(feature = "json")]
    mod retries;
    mod servers;
    mod stats;
    #[cfg(all(feature = "tower", feature = "json"))]
    mod tower;
    mod ways;
}

mod embedding {
    mod failed_driver;
    mod foreign_loop;
    mod wait_hooks;
    mod wakes;
}

mod files {
    mod answers;
    mod real;
}

mod proxy {
    mod edits;
    #[cfg(feature = "tls")]
    mod proxy_protocol;
    mod requests;
}

mod testing {
    #[cfg(feature = "tls")]
    mod https;
    mod time;
    mod websockets;
}

#[cfg(all(unix, feature = "compress", feature = "cookies", feature = "json", feature = "tls"))]
mod third_party {
    mod browser;
    mod clients;
    #[cfg(feature = "openapi")]
    mod openapi_page;
}

#[cfg(feature = "tls")]
mod tls {
    mod files;
    mod server;
    mod server_names;
    mod sessions;
}

mod tower {
    #[cfg(feature = "tower")]
    mod app;
    #[cfg(feature = "tower")]
    mod bodies;
    #[cfg(feature = "tower")]
    mod layers;
    #[cfg(all(feature = "axum", feature = "json"))]
    mod routes_in_layers;
    #[cfg(all(feature = "axum", feature = "json"))]
    mod serve;
    #[cfg(all(feature = "hyper", feature = "tokio"))]
    mod upgrade;
}

mod websocket {
    mod clients;
    mod connect;
}
