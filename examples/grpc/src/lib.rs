//! The service, and the app that has it beside a route of Highwire.

use crate::proto::prices_server::{Prices, PricesServer};
use crate::proto::{Item, Price};
use highwire::{App, tower};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio_stream::{Stream, StreamExt};
use tonic::service::Routes;
use tonic::{Request, Response, Status, Streaming};

/// The code that `build.rs` has made of `prices.proto`.
#[allow(clippy::all, missing_docs, reason = "generated code")]
pub mod proto {
    tonic::include_proto!("prices");
}

/// The shop. `watchers` is the number of clients that watch a price at the moment.
#[derive(Clone, Debug, Default)]
pub struct Shop {
    /// The number of open `Watch` calls.
    pub watchers: Arc<AtomicUsize>,
}

fn price(item: &Item) -> Result<Price, Status> {
    match item.name.len() as u64 {
        0 => Err(Status::invalid_argument("an item has a name")),
        _ if item.name == "nothing" => Err(Status::not_found("the shop does not have it")),
        length => Ok(Price { cents: length * 100 }),
    }
}

type Streamed = Pin<Box<dyn Stream<Item = Result<Price, Status>> + Send>>;

#[tonic::async_trait]
impl Prices for Shop {
    async fn get(&self, request: Request<Item>) -> Result<Response<Price>, Status> {
        if request.get_ref().name == "slow" {
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
        price(request.get_ref()).map(Response::new)
    }

    type WatchStream = Streamed;
    async fn watch(&self, request: Request<Item>) -> Result<Response<Streamed>, Status> {
        let price = price(request.get_ref())?;
        let watching = Watching::begin(self.watchers.clone());
        let prices = tokio_stream::iter(0..).then(move |number: u64| {
            // The stream owns `watching`, so it ends with the stream.
            let _ = &watching;
            async move {
                tokio::time::sleep(Duration::from_millis(10)).await;
                Ok(Price { cents: price.cents + number })
            }
        });
        Ok(Response::new(Box::pin(prices)))
    }

    async fn sum(&self, request: Request<Streaming<Item>>) -> Result<Response<Price>, Status> {
        let (mut items, mut cents) = (request.into_inner(), 0);
        while let Some(item) = items.message().await? {
            cents += price(&item)?.cents;
        }
        Ok(Response::new(Price { cents }))
    }

    type AskStream = Streamed;
    async fn ask(&self, request: Request<Streaming<Item>>) -> Result<Response<Streamed>, Status> {
        Ok(Response::new(Box::pin(request.into_inner().map(|item| price(&item?)))))
    }
}

/// Counts a watcher until it is dropped.
struct Watching(Arc<AtomicUsize>);

impl Watching {
    fn begin(watchers: Arc<AtomicUsize>) -> Watching {
        watchers.fetch_add(1, Ordering::Relaxed);
        Watching(watchers)
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns the app: a route of Highwire, and behind it the service.
pub fn app(shop: Shop) -> App {
    let service = Routes::new(PricesServer::new(shop)).prepare();
    App::new().get("/health", || "ok").fallback(tower::service(service))
}
