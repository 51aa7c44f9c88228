//! A server for a test, on a free port.

use highwire::App;
use highwire::server::Handle;

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
