//! HTTPS with files that are reloaded, and a redirect from HTTP.

use axum::Router;
use axum::handler::HandlerWithoutStateExt;
use axum::http::uri::{Authority, Scheme};
use axum::http::{StatusCode, Uri};
use axum::response::Redirect;
use axum::routing::get;
use axum_extra::TypedHeader;
use axum_extra::headers::Host;
use axum_server::tls_rustls::RustlsConfig;
use std::time::Duration;

async fn redirect(TypedHeader(host): TypedHeader<Host>, uri: Uri) -> Result<Redirect, StatusCode> {
    let mut parts = uri.into_parts();
    parts.scheme = Some(Scheme::HTTPS);
    parts.authority = Some(Authority::try_from(host.hostname()).map_err(|_| StatusCode::BAD_REQUEST)?);
    let uri = Uri::from_parts(parts).map_err(|_| StatusCode::BAD_REQUEST)?;
    Ok(Redirect::permanent(&uri.to_string()))
}

pub async fn run() -> std::io::Result<()> {
    let config = RustlsConfig::from_pem_file("site.pem", "site.key").await?;
    let reloaded = config.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_secs(60)).await;
            if let Err(error) = reloaded.reload_from_pem_file("site.pem", "site.key").await {
                tracing::error!(%error, "cannot reload the certificate");
            }
        }
    });
    let plain = tokio::net::TcpListener::bind("0.0.0.0:80").await?;
    tokio::spawn(async move { axum::serve(plain, redirect.into_make_service()).await });
    let app = Router::new().route("/", get(async || "hello"));
    let address = std::net::SocketAddr::from(([0, 0, 0, 0], 443));
    axum_server::bind_rustls(address, config).serve(app.into_make_service()).await
}
