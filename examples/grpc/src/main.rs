//! Serves `prices.proto` on 127.0.0.1:8080, for example to grpcurl:
//!
//! `grpcurl -plaintext -proto examples/grpc/prices.proto -d '{"name": "bread"}' 127.0.0.1:8080 prices.Prices/Get`

use grpc_example::{Shop, app};

fn main() -> highwire::Result<()> {
    app(Shop::default()).listen("127.0.0.1:8080")?.run()
}
