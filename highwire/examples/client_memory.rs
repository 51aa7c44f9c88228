//! Measures the memory of idle pooled connections: opens a number of connections with one request each, waits until all are
//! idle, and prints the growth of this process's resident memory per connection.
//!
//! ```text
//! client_memory URL CONNECTIONS
//! ```
//!
//! It accepts any certificate, because it runs against a server on the same machine.

use highwire::client::{Bounds, Client, block_on};
use std::cell::Cell;
use std::error::Error;
use std::fs;
use std::rc::Rc;
use std::time::Duration;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, connections] = &arguments[..] else {
        return Err("usage: client_memory URL CONNECTIONS".into());
    };
    let connections: usize = connections.parse()?;
    let (most, waiting) = (2 * connections, connections);
    let bounds = Bounds::default().connections(most).connections_in_all(most).waiting(waiting);
    let builder = Client::builder().bounds(bounds).http1_only();
    #[cfg(feature = "tls")]
    let builder = builder.tls(highwire::tls::ClientTls::new().accept_invalid_certificates());
    let client = builder.build()?;
    block_on(async {
        // The first connections bring the pages of the program and of the allocator into memory.
        open(&client, url, connections / 10).await;
        let (before, opened) = (resident()?, client.connections().0);
        open(&client, url, connections).await;
        let (after, all) = (resident()?, client.connections());
        println!("{all:?} connections (all, idle): {} bytes each", (after - before) / (all.0 - opened) as i64);
        Ok(())
    })?
}

/// Sends a request on each of a number of connections, and waits until all are answered.
async fn open(client: &Client, url: &str, connections: usize) {
    let left = Rc::new(Cell::new(connections));
    for _ in 0..connections {
        let (request, left) = (client.get(url).send(), left.clone());
        highwire::spawn(async move {
            if let Err(error) = async { request.await?.bytes().await }.await {
                eprintln!("{error}");
            }
            left.set(left.get() - 1);
        });
    }
    while left.get() > 0 {
        highwire::time::sleep(Duration::from_millis(20)).await;
    }
    highwire::time::sleep(Duration::from_secs(1)).await;
}

/// Returns this process's resident memory in bytes.
fn resident() -> Result<i64, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<i64>()? * 1024)
}
