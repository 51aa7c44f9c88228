//! `router-highwire PORT`: the router on `highwire::tower::serve`, with one worker.

fn main() {
    let port: u16 = std::env::args().nth(1).and_then(|port| port.parse().ok()).expect("usage: router-highwire PORT");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await.expect("a listener");
        let serving = highwire::tower::serve(listener, database::router::router());
        serving.configure(|config| config.workers = 1).await.expect("a server");
    });
}
