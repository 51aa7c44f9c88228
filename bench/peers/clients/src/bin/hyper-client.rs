//! hyper's client: over HTTP/1 with the pool of hyper-util; over HTTP/2 with one connection of hyper for each number.

use bytes::Bytes;
use clients::{Failure, arguments, measure};
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::sync::Arc;

fn main() -> Result<(), Failure> {
    let arguments = arguments()?;
    let uri: http::Uri = arguments.url.parse()?;
    if arguments.streams.is_none() {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new()).build(connector);
        let client = Arc::new(client);
        return measure(&arguments, move |_| {
            let (client, uri) = (client.clone(), uri.clone());
            async move { Ok(client.get(uri).await?.into_body().collect().await?.to_bytes().len()) }
        });
    }
    let (host, port) = (uri.host().ok_or("no host")?, uri.port_u16().unwrap_or(80));
    let address = format!("{host}:{port}");
    let senders = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    senders.borrow_mut().resize_with(arguments.connections, || None);
    measure(&arguments, move |number| {
        let (senders, address, uri) = (senders.clone(), address.clone(), uri.clone());
        async move {
            let known = senders.borrow()[number].clone();
            let mut sender: hyper::client::conn::http2::SendRequest<Empty<Bytes>> = match known {
                Some(sender) => sender,
                None => {
                    let stream = tokio::net::TcpStream::connect(address).await?;
                    stream.set_nodelay(true)?;
                    let (sender, connection) =
                        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
                    tokio::task::spawn_local(connection);
                    senders.borrow_mut()[number].get_or_insert(sender).clone()
                }
            };
            let request = http::Request::get(uri).body(Empty::new())?;
            Ok(sender.send_request(request).await?.into_body().collect().await?.to_bytes().len())
        }
    })
}
