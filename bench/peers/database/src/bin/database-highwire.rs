//! `database-highwire`: the application on Highwire, with the features `tokio`.

use database::{Arguments, Redis};
use highwire::{App, PerWorker, State};
use sqlx::postgres::PgPool;

fn main() {
    let arguments = Arguments::read();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let entered = runtime.enter();
    let pool = database::pool(arguments.postgresql);
    drop(entered);
    let redis = arguments.redis;
    let app = App::new()
        .state(pool)
        .per_worker(move || Redis::new(redis))
        .get("/hello", || "Hello, World!")
        .get("/row", async |State(pool): State<PgPool>| database::row(&pool).await)
        .get("/ping", async |PerWorker(redis): PerWorker<Redis>| redis.ping().await)
        .configure(|config| config.workers = arguments.workers);
    app.listen(&format!("127.0.0.1:{}", arguments.port)).and_then(|server| server.run()).expect("a server");
}
