//! The strings of ASGI, made once for each worker.

macro_rules! words {
    ($($name:ident = $text:literal),* $(,)?) => {
        /// Interned strings, which the interpreter compares by their addresses.
        pub(crate) struct Words {
            $(pub(crate) $name: pyo3::Py<pyo3::types::PyString>,)*
        }

        impl Words {
            pub(crate) fn new(py: pyo3::Python<'_>) -> Words {
                Words { $($name: pyo3::types::PyString::intern(py, $text).unbind()),* }
            }
        }
    };
}

pub(crate) use words;

words! {
    kind = "type",
    http = "http",
    https = "https",
    asgi = "asgi",
    http_version = "http_version",
    server = "server",
    client = "client",
    scheme = "scheme",
    method = "method",
    root_path = "root_path",
    path = "path",
    raw_path = "raw_path",
    query_string = "query_string",
    headers = "headers",
    state = "state",
    extensions = "extensions",
    tls = "tls",
    status = "status",
    body = "body",
    more_body = "more_body",
    request = "http.request",
    disconnect = "http.disconnect",
    start = "http.response.start",
    response_body = "http.response.body",
    done = "done",
    add_done_callback = "add_done_callback",
    set_result = "set_result",
    set_exception = "set_exception",
    create_future = "create_future",
    websocket = "websocket",
    ws = "ws",
    wss = "wss",
    subprotocols = "subprotocols",
    subprotocol = "subprotocol",
    websocket_connect = "websocket.connect",
    websocket_receive = "websocket.receive",
    websocket_disconnect = "websocket.disconnect",
    websocket_send = "websocket.send",
    websocket_accept = "websocket.accept",
    websocket_close = "websocket.close",
    denial_start = "websocket.http.response.start",
    denial_body = "websocket.http.response.body",
    text = "text",
    bytes = "bytes",
    code = "code",
    reason = "reason",
    trailers = "trailers",
    more_trailers = "more_trailers",
    response_trailers = "http.response.trailers",
    response_pathsend = "http.response.pathsend",
    response_early_hint = "http.response.early_hint",
    links = "links",
    version_10 = "1.0",
    version_11 = "1.1",
    version_2 = "2",
    get = "GET",
    head = "HEAD",
    post = "POST",
    put = "PUT",
    delete = "DELETE",
    patch = "PATCH",
    options = "OPTIONS",
}
