//! The metrics as text: Prometheus' own form, and OpenMetrics.

use super::process::Process;
use super::series::{BOUNDS, Key, Sums, Totals};
use highwire_engine::Stats;
use std::collections::BTreeMap;
use std::fmt::Write;

/// How the series of a route name it.
#[derive(Clone, Debug, Default)]
pub(crate) struct RouteLabels {
    /// The template of the path; `None` for a route without one.
    pub(crate) path: Option<String>,
    /// The host, for a route of one host only.
    pub(crate) host: Option<String>,
}

/// A text that grows by metrics.
struct Page {
    text: String,
    is_open: bool,
}

impl Page {
    /// Begins a metric. A counter's name has no `_total` here.
    fn begin(&mut self, name: &str, kind: &str, help: &str) {
        let name = if kind == "counter" && !self.is_open { format!("{name}_total") } else { name.to_string() };
        self.add(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    fn add(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.text.write_fmt(text);
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.begin(name, "counter", help);
        self.add(format_args!("{name}_total {value}\n"));
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.begin(name, "gauge", help);
        self.add(format_args!("{name} {value}\n"));
    }
}

pub(super) fn write(
    totals: &Totals,
    workers: &[(usize, u64)],
    labels: &[RouteLabels],
    stats: &Stats,
    is_open: bool,
) -> String {
    let mut page = Page { text: String::new(), is_open };
    requests(&mut page, totals, labels);
    page.begin("highwire_worker_requests", "counter", "Requests that a worker has answered.");
    for (worker, requests) in workers {
        page.add(format_args!("highwire_worker_requests_total{{worker=\"{worker}\"}} {requests}\n"));
    }
    server(&mut page, stats);
    process(&mut page);
    if is_open {
        page.text.push_str("# EOF\n");
    }
    page.text
}

/// Writes the durations and the bytes of requests by route.
fn requests(page: &mut Page, totals: &Totals, labels: &[RouteLabels]) {
    // Routes of one path, such as those for GET and POST, have the same labels.
    let mut merged: BTreeMap<String, Sums> = BTreeMap::new();
    for ((route, key), sums) in &totals.0 {
        merged.entry(labels_of(labels.get(*route), *key)).or_default().add(sums);
    }
    page.begin(
        "http_server_request_duration_seconds",
        "histogram",
        "Time from the arrival of a request's head to the end of its response.",
    );
    for (labels, sums) in &merged {
        let mut below = 0;
        for (bound, count) in BOUNDS.iter().zip(sums.buckets) {
            below += count;
            let bound = *bound as f64 / 1e6;
            page.add(format_args!(
                "http_server_request_duration_seconds_bucket{{{labels},le=\"{bound:?}\"}} {below}\n"
            ));
        }
        let (requests, seconds) = (sums.requests(), sums.nanoseconds as f64 / 1e9);
        page.add(format_args!("http_server_request_duration_seconds_bucket{{{labels},le=\"+Inf\"}} {requests}\n"));
        page.add(format_args!("http_server_request_duration_seconds_sum{{{labels}}} {seconds:?}\n"));
        page.add(format_args!("http_server_request_duration_seconds_count{{{labels}}} {requests}\n"));
    }
    page.begin("highwire_response_body_bytes", "counter", "Bytes of response bodies that were sent.");
    for (labels, sums) in &merged {
        page.add(format_args!("highwire_response_body_bytes_total{{{labels}}} {}\n", sums.bytes));
    }
}

/// Returns the labels of a series: OpenTelemetry's attributes with underscores.
fn labels_of(route: Option<&RouteLabels>, key: Key) -> String {
    if key == Key::OTHER {
        return "http_request_method=\"_OTHER\",http_route=\"_OTHER\"".to_string();
    }
    let scheme = if key.is_secure() { "https" } else { "http" };
    let mut labels = format!(
        "http_request_method=\"{}\",url_scheme=\"{scheme}\",http_response_status_code=\"{}\",network_protocol_version=\"{}\"",
        key.method(),
        key.status(),
        key.version(),
    );
    if let Some(path) = route.and_then(|route| route.path.as_ref()) {
        let _ = write!(labels, ",http_route=\"{}\"", escaped(path));
    }
    if let Some(host) = route.and_then(|route| route.host.as_ref()) {
        let _ = write!(labels, ",server_address=\"{}\"", escaped(host));
    }
    if key.is_cut() {
        labels.push_str(",error_type=\"cut\"");
    } else if key.status() >= 500 {
        let _ = write!(labels, ",error_type=\"{}\"", key.status());
    }
    labels
}

/// Escapes the value of a label.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn server(page: &mut Page, stats: &Stats) {
    page.gauge("highwire_connections", "Connections that are open.", stats.connections);
    page.counter("highwire_connections_accepted", "Connections that were accepted.", stats.accepted);
    page.counter(
        "highwire_connections_refused",
        "Connections that were refused, because their peer or the server had too many.",
        stats.refused,
    );
    page.counter("highwire_requests", "Requests with a valid head.", stats.requests);
    page.counter("highwire_streams", "Requests that came on streams of HTTP/2.", stats.streams);
    page.counter("highwire_cut", "Exchanges and connections that a deadline or a shutdown has cut.", stats.cut);
    page.begin("highwire_tls_handshakes", "counter", "TLS handshakes by their result.");
    for (result, count) in [("completed", stats.handshakes), ("failed", stats.handshakes_failed)] {
        page.add(format_args!("highwire_tls_handshakes_total{{result=\"{result}\"}} {count}\n"));
    }
    page.begin(
        "highwire_http2_ended",
        "counter",
        "HTTP/2 connections that ended because their peer used up an allowance.",
    );
    for (allowance, count) in stats.fired() {
        page.add(format_args!("highwire_http2_ended_total{{allowance=\"{}\"}} {count}\n", escaped(allowance)));
    }
    page.gauge("highwire_memory_bytes", "Bytes of the memory budget that connections hold.", stats.memory);
    page.gauge("highwire_memory_limit_bytes", "The memory budget.", stats.memory_limit);
}

fn process(page: &mut Page) {
    let Process { cpu_seconds, resident_bytes, descriptors, most_descriptors } = Process::now();
    if let Some(seconds) = cpu_seconds {
        page.begin("process_cpu_seconds", "counter", "CPU time of the process.");
        page.add(format_args!("process_cpu_seconds_total {seconds:?}\n"));
    }
    for (name, help, value) in [
        ("process_resident_memory_bytes", "Memory of the process that is in RAM.", resident_bytes),
        ("process_open_fds", "Descriptors that are open.", descriptors),
        ("process_max_fds", "The most descriptors that may be open.", Some(most_descriptors)),
    ] {
        value.into_iter().for_each(|value| page.gauge(name, help, value));
    }
}
