//! Measures what a request costs the client: sends GET requests over a number of connections, and prints the CPU time of
//! this process per request. `cargo xtask bench clients` runs it beside other clients.
//!
//! ```text
//! client_cost URL REQUESTS CONNECTIONS [STREAMS]
//! ```
//!
//! With STREAMS it speaks HTTP/2, with that many requests at the same time on each connection.

use highwire::client::{Bounds, Client, block_on};
use std::cell::Cell;
use std::error::Error;
use std::fs;
use std::rc::Rc;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, requests, connections, streams @ ..] = &arguments[..] else {
        return Err("usage: client_cost URL REQUESTS CONNECTIONS [STREAMS]".into());
    };
    let (requests, connections): (u64, usize) = (requests.parse()?, connections.parse()?);
    let streams: Option<usize> = streams.first().map(|streams| streams.parse()).transpose()?;
    let bounds = Bounds::default().connections(connections).streams(streams.unwrap_or(1));
    let builder = Client::builder().bounds(bounds);
    let builder = if streams.is_some() { builder.http2_prior_knowledge() } else { builder };
    let client = builder.build()?;
    let tasks = connections * streams.unwrap_or(1);
    let measured = block_on(async {
        // Opens the connections.
        run(&client, url, tasks as u64 * 2, tasks).await?;
        let (begun, cpu) = (Instant::now(), cpu()?);
        let bytes = run(&client, url, requests, tasks).await?;
        Ok::<_, Box<dyn Error>>((begun.elapsed(), self::cpu()? - cpu, bytes, client.connections().0))
    })?;
    let (elapsed, cpu, bytes, connections) = measured?;
    println!(
        "{:.0} requests/s, {:.3} us CPU a request, {bytes} bytes, {connections} connections",
        requests as f64 / elapsed.as_secs_f64(),
        cpu.as_secs_f64() * 1e6 / requests as f64,
    );
    Ok(())
}

/// Sends requests from a number of tasks, and returns the number of received bytes.
async fn run(client: &Client, url: &str, requests: u64, tasks: usize) -> Result<u64, Box<dyn Error>> {
    let (left, bytes, failed) = (Rc::new(Cell::new(requests)), Rc::new(Cell::new(0)), Rc::new(Cell::new(None)));
    let done = (0..tasks).map(|_| {
        let (client, url, left, bytes) = (client.clone(), url.to_string(), left.clone(), bytes.clone());
        let (promise, asked) = highwire_engine::promise();
        let failed = failed.clone();
        highwire::spawn(async move {
            let all = async {
                while left.get() > 0 {
                    left.set(left.get() - 1);
                    let body = client.get(&url).send().await?.bytes().await?;
                    bytes.set(bytes.get() + body.len() as u64);
                }
                Ok::<_, highwire::client::Error>(())
            };
            if let Err(error) = all.await {
                failed.set(Some(error));
            }
            promise.keep(());
        });
        asked
    });
    for mut asked in done.collect::<Vec<_>>() {
        std::future::poll_fn(|cx| asked.poll(cx)).await;
    }
    failed.take().map_or(Ok(bytes.get()), |error| Err(error.into()))
}

/// Returns the CPU time of this process's threads.
fn cpu() -> Result<Duration, Box<dyn Error>> {
    let mut all = 0;
    for task in fs::read_dir("/proc/self/task")? {
        let stat = fs::read_to_string(task?.path().join("schedstat"))?;
        all += stat.split_whitespace().next().ok_or("no time in schedstat")?.parse::<u64>()?;
    }
    Ok(Duration::from_nanos(all))
}
