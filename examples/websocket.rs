//! Echoes messages over a WebSocket, and counts them.

use highwire::ws::{Message, WebSocket};
use highwire::{App, Html};

const PAGE: &str = "<!doctype html><meta name=viewport content='width=device-width'><title>Echo</title>
<form id=form><input id=text autofocus><button>Send</button></form><ol id=messages></ol><script>
const socket = new WebSocket('/echo');
const show = text => {
  const item = document.createElement('li');
  item.textContent = text;
  document.getElementById('messages').append(item);
};
socket.onmessage = event => show(event.data);
socket.onclose = event => show(`closed (${event.code})`);
document.getElementById('form').onsubmit = event => {
  event.preventDefault();
  socket.send(document.getElementById('text').value);
  document.getElementById('text').value = '';
};
</script>";

async fn echo(mut socket: WebSocket) {
    let mut count = 0;
    // `recv` also answers Ping and Close frames.
    while let Some(Ok(message)) = socket.recv().await {
        if let Message::Text(text) = message {
            count += 1;
            if socket.send(format!("{count}: {text}")).await.is_err() {
                // The client has disconnected.
                return;
            }
        }
    }
}

/// Returns the app.
pub(crate) fn app() -> App {
    App::new().get("/", || Html(PAGE)).ws("/echo", echo)
}

#[allow(dead_code, reason = "the tests have the routes only")]
fn main() -> highwire::Result<()> {
    app().listen("127.0.0.1:8080")?.run()
}
