//! Serves the tasks. Settings, as environment variables: `DATABASE_URL`; `SECRET`, at least 32 random bytes, for the sessions;
//! `FILES`, the folder of the files; `ADDRESS`.

use highwire::cookie::Keys;
use sqlx::postgres::PgPoolOptions;
use std::env;
use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let setting = |name: &str| env::var(name).map_err(|_| format!("set {name}"));
    let keys = Keys::new(&[setting("SECRET")?])?;
    let folder = PathBuf::from(setting("FILES")?);
    std::fs::create_dir_all(&folder)?;
    let pool = PgPoolOptions::new().max_connections(20).acquire_timeout(Duration::from_secs(5));
    let pool = pool.connect_lazy(&setting("DATABASE_URL")?)?;
    let address = env::var("ADDRESS").unwrap_or_else(|_| "127.0.0.1:8080".to_string());
    let server = tasks::app(pool, keys, folder).listen(&address)?;
    for address in server.addresses() {
        tracing::info!(%address, "listening");
    }
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    let stop = async move {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        }
    };
    server.serve().with_graceful_shutdown(stop).await?;
    Ok(())
}
