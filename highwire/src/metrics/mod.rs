//! The metrics of an app: how many requests each route has answered, with which status, and how long they took.
//!
//! Each worker counts in numbers that only it writes, so a request takes no lock and no atomic read-modify-write. A scrape, on a thread
//! of the blocking pool, adds up the numbers of all workers.

mod process;
mod series;
mod text;

use crate::{Accept, HeaderName, header};
use highwire_engine::Stats;
use series::{Totals, WorkerSeries};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

pub(crate) use series::Counting;

/// The metrics of an app: the numbers of all its workers.
#[derive(Default)]
pub(crate) struct Metrics {
    workers: Mutex<Workers>,
    /// How the series name the routes, once the app is built.
    labels: OnceLock<Vec<RouteLabels>>,
}

#[derive(Default)]
struct Workers {
    running: Vec<Weak<WorkerSeries>>,
    /// The number of the next worker.
    next: usize,
    /// What workers have counted that have ended.
    ended: Totals,
}

impl Metrics {
    /// Sets how the series name the routes, by the numbers of the routes.
    pub(crate) fn name_routes(&self, labels: Vec<RouteLabels>) {
        // An app is built once.
        _ = self.labels.set(labels);
    }

    /// Makes the numbers of a worker that starts. On the engine `threads`, each connection has a worker, and `is_numbered` is false.
    pub(crate) fn add_worker(self: &Arc<Metrics>, routes: usize, is_numbered: bool) -> Counting {
        let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        let series = Arc::new(WorkerSeries::new(routes, is_numbered.then_some(workers.next)));
        workers.next += 1;
        workers.running.push(Arc::downgrade(&series));
        Counting::new(series, self.clone())
    }

    /// Keeps what a worker has counted that ends.
    fn end_worker(&self, series: &Arc<WorkerSeries>) {
        let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        workers.ended.add(series);
        workers.running.retain(|running| !std::ptr::eq(running.as_ptr(), Arc::as_ptr(series)));
    }

    /// Returns the sums over all workers, and the number and the requests of each numbered worker that runs.
    fn totals(&self) -> (Totals, Vec<(usize, u64)>) {
        let workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut totals = workers.ended.clone();
        let running = workers.running.iter().filter_map(Weak::upgrade);
        let requests = running.filter_map(|series| {
            let requests = totals.add(&series);
            series.number.map(|number| (number, requests))
        });
        let requests = requests.collect();
        (totals, requests)
    }
}

const TEXT_OFFER: &str = "text/plain;version=0.0.4";
const OPEN_METRICS_OFFER: &str = "application/openmetrics-text;version=1.0.0";
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Returns a handler that writes the metrics.
pub(crate) fn handler(
    metrics: Arc<Metrics>,
) -> impl Fn(Stats, Accept) -> ([(HeaderName, &'static str); 1], String) + Send + Sync + 'static {
    move |stats: Stats, accept: Accept| {
        let is_open = accept.media_type(&[TEXT_OFFER, OPEN_METRICS_OFFER]) == Some(OPEN_METRICS_OFFER);
        let (totals, workers) = metrics.totals();
        let labels = metrics.labels.get().map(Vec::as_slice).unwrap_or_default();
        let text = text::write(&totals, &workers, labels, &stats, is_open);
        ([(header::CONTENT_TYPE, if is_open { OPEN_METRICS } else { TEXT })], text)
    }
}

pub(crate) use text::RouteLabels;
