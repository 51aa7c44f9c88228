//! A server for a test, on a free port, and a body in parts.

use highwire::server::Handle;
use highwire::{App, body};

/// Starts a server with one worker. Returns its handle and its URL.
pub(crate) fn serve(app: App) -> (Handle, String) {
    let server = app.configure(|config| config.workers = 1).listen("127.0.0.1:0").expect("an address");
    let url = format!("http://{}", server.addresses()[0]);
    (server.start().expect("cannot start"), url)
}

/// Stops servers at once.
pub(crate) fn stop(handles: impl IntoIterator<Item = Handle>) {
    for handle in handles {
        handle.abort();
        handle.join().expect("cannot stop");
    }
}

/// Returns a body of these parts.
pub(crate) fn body_of<const N: usize>(parts: [&'static str; N]) -> body::Receiver {
    let (mut sender, receiver) = body::channel();
    highwire::spawn(async move {
        for part in parts {
            if sender.send(part).await.is_err() {
                return;
            }
        }
        sender.finish();
    });
    receiver
}
