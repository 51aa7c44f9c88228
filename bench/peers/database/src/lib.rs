//! The queries of `cargo xtask bench database`, which both servers make in the same way.

pub mod router;

use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use std::env;
use std::sync::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The number of connections of the pool.
const CONNECTIONS: u32 = 32;

/// What a server is started with: `PORT WORKERS POSTGRESQL-PORT REDIS-PORT`.
pub struct Arguments {
    pub port: u16,
    pub workers: usize,
    pub postgresql: u16,
    pub redis: u16,
}

impl Arguments {
    /// Reads them from the command line.
    pub fn read() -> Arguments {
        let numbers: Vec<u16> = env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
        let [port, workers, postgresql, redis] = numbers[..] else {
            panic!("usage: PROGRAM PORT WORKERS POSTGRESQL-PORT REDIS-PORT")
        };
        Arguments { port, workers: workers.into(), postgresql, redis }
    }
}

/// Creates a pool. It connects when it is used.
pub fn pool(port: u16) -> PgPool {
    let options = PgConnectOptions::new().host("127.0.0.1").port(port).username("test").database("test");
    PgPoolOptions::new().max_connections(CONNECTIONS).min_connections(0).test_before_acquire(false).connect_lazy_with(options)
}

/// SELECTs one row.
pub async fn row(pool: &PgPool) -> String {
    let selected: Result<(i32, String), _> =
        sqlx::query_as("SELECT id, message FROM messages WHERE id = $1").bind(7).fetch_one(pool).await;
    let (id, message) = selected.expect("a row");
    format!("{id} {message}")
}

/// Idle connections to Redis.
pub struct Redis {
    port: u16,
    idle: Mutex<Vec<TcpStream>>,
}

impl Redis {
    pub fn new(port: u16) -> Redis {
        Redis { port, idle: Mutex::default() }
    }

    /// Sends a PING and reads the reply.
    pub async fn ping(&self) -> &'static str {
        let idle = self.idle.lock().expect("no panic").pop();
        let mut stream = match idle {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect(("127.0.0.1", self.port)).await.expect("a connection");
                stream.set_nodelay(true).expect("an option");
                stream
            }
        };
        stream.write_all(b"PING\r\n").await.expect("a request");
        let mut reply = [0; 7];
        stream.read_exact(&mut reply).await.expect("a reply");
        assert_eq!(&reply, b"+PONG\r\n");
        self.idle.lock().expect("no panic").push(stream);
        "PONG"
    }
}
