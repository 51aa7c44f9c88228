//! What the clients of other projects share: the arguments and the measurement of `highwire/examples/client_cost.rs`.

use std::cell::Cell;
use std::error::Error;
use std::fs;
use std::future::Future;
use std::rc::Rc;
use std::time::{Duration, Instant};

pub type Failure = Box<dyn Error + Send + Sync>;

pub struct Arguments {
    pub url: String,
    pub requests: u64,
    pub connections: usize,
    pub streams: Option<usize>,
}

pub fn arguments() -> Result<Arguments, Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, requests, connections, streams @ ..] = &arguments[..] else {
        return Err("usage: CLIENT URL REQUESTS CONNECTIONS [STREAMS]".into());
    };
    let streams = streams.first().map(|streams| streams.parse()).transpose()?;
    Ok(Arguments { url: url.clone(), requests: requests.parse()?, connections: connections.parse()?, streams })
}

/// Sends the requests with `get`, whose first argument is the number of a connection, and prints the figures.
pub fn measure<F: Future<Output = Result<usize, Failure>> + 'static>(
    arguments: &Arguments,
    get: impl Fn(usize) -> F + Clone + 'static,
) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let tasks = arguments.connections * arguments.streams.unwrap_or(1);
    tokio::task::LocalSet::new().block_on(&runtime, async {
        run(tasks as u64 * 2, tasks, arguments.connections, get.clone()).await?;
        let (begun, before) = (Instant::now(), cpu()?);
        let bytes = run(arguments.requests, tasks, arguments.connections, get).await?;
        let (elapsed, cpu) = (begun.elapsed(), cpu()? - before);
        println!(
            "{:.0} requests/s, {:.3} us CPU a request, {bytes} bytes",
            arguments.requests as f64 / elapsed.as_secs_f64(),
            cpu.as_secs_f64() * 1e6 / arguments.requests as f64
        );
        Ok(())
    })
}

async fn run<F: Future<Output = Result<usize, Failure>> + 'static>(
    requests: u64,
    tasks: usize,
    connections: usize,
    get: impl Fn(usize) -> F + Clone + 'static,
) -> Result<u64, Failure> {
    let (left, bytes) = (Rc::new(Cell::new(requests)), Rc::new(Cell::new(0)));
    let all: Vec<_> = (0..tasks)
        .map(|task| {
            let (left, bytes, get) = (left.clone(), bytes.clone(), get.clone());
            tokio::task::spawn_local(async move {
                while left.get() > 0 {
                    left.set(left.get() - 1);
                    let length = get(task % connections).await?;
                    bytes.set(bytes.get() + length as u64);
                }
                Ok::<_, Failure>(())
            })
        })
        .collect();
    for one in all {
        one.await??;
    }
    Ok(bytes.get())
}

/// Returns the CPU time of this process's threads.
fn cpu() -> Result<Duration, Failure> {
    let mut all = 0;
    for task in fs::read_dir("/proc/self/task")? {
        let stat = fs::read_to_string(task?.path().join("schedstat"))?;
        all += stat.split_whitespace().next().ok_or("no time in schedstat")?.parse::<u64>()?;
    }
    Ok(Duration::from_nanos(all))
}
