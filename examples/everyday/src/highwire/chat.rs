//! A chat over WebSockets.

use highwire::topics::{Start, Topics};
use highwire::ws::{WebSocket, WebSocketUpgrade};
use highwire::{App, Response, State};

fn chat(upgrade: WebSocketUpgrade, topics: State<Topics>) -> Response {
    upgrade.on_upgrade(async move |mut socket: WebSocket| {
        if socket.subscribe(&topics, "chat", Start::Next).is_ok() {
            while let Some(Ok(message)) = socket.recv().await {
                let _ = topics.publish("chat", message);
            }
        }
    })
}

pub fn app() -> App {
    App::new().get("/chat", chat).state(Topics::new())
}
