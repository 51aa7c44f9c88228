//! The app's metrics.

use super::App;
use crate::handler::private::IntoRoute;
use crate::metrics::{Metrics, handler};
use crate::router::MethodFilter;
use crate::{Error, Method, blocking};
use std::sync::Arc;

impl App {
    /// Measures each request, and serves the metrics at a path, such as `/metrics`, for Prometheus: as its text, or as OpenMetrics if
    /// the scraper prefers that. docs/metrics.md lists them. Requests of nested apps are measured, too. Only the outermost app may
    /// call this, and once.
    ///
    /// The page tells others about the app. Let only the scraper get it: docs/metrics.md shows how middleware checks its path.
    ///
    /// ```
    /// use highwire::App;
    /// use highwire::testing::Client;
    ///
    /// let app = App::new().get("/hello/{name}", || "hello").metrics("/metrics");
    /// let mut client = Client::new(app)?;
    /// client.get("/hello/ann").send();
    /// let answer = client.get("/metrics").send();
    /// let series = concat!(
    ///     r#"http_server_request_duration_seconds_count{http_request_method="GET",url_scheme="http","#,
    ///     r#"http_response_status_code="200",network_protocol_version="1.1",http_route="/hello/{name}"} 1"#
    /// );
    /// assert!(answer.text().contains(series), "{}", answer.text());
    /// # Ok::<(), highwire::Error>(())
    /// ```
    pub fn metrics(mut self, path: &str) -> App {
        self.outermost.push("metrics");
        if self.metrics.is_some() {
            let text = "App::metrics was called twice; an app has one page of metrics".to_string();
            self.mistake = self.mistake.take().or(Some(Error::Setting(text)));
            return self;
        }
        let metrics = Arc::<Metrics>::default();
        self.metrics = Some(metrics.clone());
        self.register(MethodFilter::One(Method::GET), path, blocking(handler(metrics)).into_route());
        self
    }
}
