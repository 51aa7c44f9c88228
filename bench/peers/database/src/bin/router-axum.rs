//! `router-axum PORT`: the router on `axum::serve`, with a tokio runtime of one thread.

use axum::serve::ListenerExt;

fn main() {
    let port: u16 = std::env::args().nth(1).and_then(|port| port.parse().ok()).expect("usage: router-axum PORT");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await.expect("a listener");
        let listener = listener.tap_io(|stream| {
            let _ = stream.set_nodelay(true);
        });
        axum::serve(listener, database::router::router()).await.expect("a server");
    });
}
