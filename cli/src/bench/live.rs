//! The live view of a run on a terminal: the rate, latencies of the last moment and of the whole run, errors, and CPU.

use super::record::Record;
use super::report::{QUANTILES, Setup, grouped, latencies};
use super::watch::Process;
use hdrhistogram::Histogram;
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Gauge, Paragraph, Row, Sparkline, Table};
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How often the view is drawn, and workers publish what they have measured.
pub(super) const DRAW: Duration = Duration::from_millis(250);

/// The draws whose rates are remembered for the plot.
const REMEMBERED: usize = 400;

/// What each worker has measured so far.
#[derive(Debug)]
pub(super) struct Snapshots(Vec<Mutex<Option<Record>>>);

impl Snapshots {
    pub(super) fn new(workers: usize) -> Snapshots {
        Snapshots((0..workers).map(|_| Mutex::new(None)).collect())
    }

    /// Publishes what a worker has measured.
    pub(super) fn put(&self, worker: usize, record: Record) {
        *self.0[worker].lock().unwrap_or_else(PoisonError::into_inner) = Some(record);
    }

    /// Returns what all workers have measured; `None` if none has published anything.
    fn sum(&self) -> Option<Record> {
        let records = self.0.iter().filter_map(|record| record.lock().unwrap_or_else(PoisonError::into_inner).clone());
        records.reduce(|mut sum, record| {
            sum.merge(&record);
            sum
        })
    }
}

/// The view. Dropping it gives the terminal back.
pub(super) struct View {
    terminal: ratatui::DefaultTerminal,
    length: Option<Duration>,
    title: String,
    pid: Option<u32>,
    rates: VecDeque<u64>,
    before: Option<(Record, Option<Process>, Duration)>,
}

impl View {
    /// Takes the terminal; `None` if that fails.
    pub(super) fn open(setup: &Setup, length: Option<Duration>, pid: Option<u32>) -> Option<View> {
        let loop_ = setup.rate.as_deref().unwrap_or("closed loop: shows capacity, not latency");
        let title = format!(
            " {} {} · {} · {} connections · {loop_} ",
            setup.method, setup.url, setup.protocol, setup.connections
        );
        let Ok(terminal) = ratatui::try_init() else {
            ratatui::restore();
            return None;
        };
        Some(View { terminal, length, title, pid, rates: VecDeque::new(), before: None })
    }

    /// Returns true if a key asks for the end: q, Escape or Ctrl-C. Waits for a key a moment.
    pub(super) fn asks_for_end(&self, wait: Duration) -> bool {
        loop {
            match event::poll(wait) {
                Ok(true) => {}
                Ok(false) => return false,
                Err(_) => {
                    // The terminal is gone.
                    std::thread::park_timeout(wait);
                    return false;
                }
            }
            if let Ok(Event::Key(key)) = event::read()
                && key.kind == KeyEventKind::Press
            {
                let is_control_c = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
                if is_control_c || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
                    return true;
                }
            }
        }
    }

    /// Draws what has been measured until `elapsed`.
    pub(super) fn draw(&mut self, snapshots: &Snapshots, elapsed: Duration) {
        let Some(now) = snapshots.sum() else { return };
        if self.before.as_ref().is_some_and(|(before, ..)| before.elapsed == now.elapsed) {
            // No worker has published anything since.
            return;
        }
        let server = self.pid.and_then(Process::read);
        let (mut last, mut last_sent, mut lines) = (now.intended.clone(), now.sent.clone(), Vec::new());
        if let Some((before, server_before, at)) = &self.before {
            // Workers publish at slightly different times, so a worker's values never shrink.
            let _ = last.subtract(&before.intended);
            let _ = last_sent.subtract(&before.sent);
            let seconds = now.elapsed.saturating_sub(before.elapsed).as_secs_f64().max(1e-3);
            let server_seconds = (elapsed - *at).as_secs_f64().max(1e-3);
            self.rates.push_back((now.answered().saturating_sub(before.answered()) as f64 / seconds) as u64);
            if self.rates.len() > REMEMBERED {
                self.rates.pop_front();
            }
            let used = |record: &Record| record.cpus.iter().map(|cpu| cpu.used).sum::<f64>();
            if !now.cpus.is_empty() {
                lines.push(format!("generator  {:.2} CPUs", (used(&now) - used(before)) / seconds));
            }
            if let (Some(server), Some(earlier)) = (server, server_before) {
                let resident = server.resident as f64 / 1e6;
                lines.push(format!(
                    "server     {:.2} CPUs, {resident:.1} MB",
                    (server.cpu - earlier.cpu) / server_seconds
                ));
            }
        }
        lines.push(format!("responses  {}", grouped(now.answered())));
        lines.push(format!("errors     {}", grouped(now.all_errors())));
        lines.extend(now.faults.iter().map(|(fault, (count, _))| format!("  {}: {}", fault.name(), grouped(*count))));
        let rates = self.rates.make_contiguous();
        let (title, length) = (&self.title, self.length);
        // A terminal that is gone is no reason to end the run.
        let _ = self.terminal.draw(|frame| {
            draw(frame, title, elapsed, length, rates, [&last, &last_sent, &now.intended, &now.sent], &lines);
        });
        self.before = Some((now, server, elapsed));
    }
}

impl Drop for View {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

fn draw(
    frame: &mut Frame<'_>,
    title: &str,
    elapsed: Duration,
    length: Option<Duration>,
    rates: &[u64],
    histograms: [&Histogram<u64>; 4],
    lines: &[String],
) {
    let outer = Block::bordered().title(title.to_owned()).title_bottom(Line::from(" q ends the run ").right_aligned());
    let area = outer.inner(frame.area());
    frame.render_widget(outer, frame.area());
    let heights = [Constraint::Length(1), Constraint::Min(4), Constraint::Length(QUANTILES.len() as u16 + 4)];
    let [top, middle, bottom] = Layout::vertical(heights).areas(area);
    let ratio = length.map_or(0.0, |length| elapsed.as_secs_f64() / length.as_secs_f64()).clamp(0.0, 1.0);
    let of = length.map_or(String::new(), |length| format!(" of {:.0} s", length.as_secs_f64()));
    let label = format!("{:.1} s{of}", elapsed.as_secs_f64());
    frame.render_widget(Gauge::default().ratio(ratio).label(label).gauge_style(Style::new().fg(Color::Blue)), top);
    let plot = Block::bordered().title(format!(" {} responses a second ", grouped(rates.last().copied().unwrap_or(0))));
    let width = usize::from(middle.width.saturating_sub(2));
    let shown = &rates[rates.len().saturating_sub(width)..];
    frame.render_widget(Sparkline::default().block(plot).data(shown).style(Style::new().fg(Color::Cyan)), middle);
    let [left, right] = Layout::horizontal([Constraint::Length(58), Constraint::Min(20)]).areas(bottom);
    // The mean is left out.
    let rows = latencies(histograms).into_iter().skip(1);
    let rows = rows.map(|(name, values)| Row::new(std::iter::once(name.to_owned()).chain(values)));
    let header = Row::new(["", "now", "now, sent", "all", "all, sent"]).style(Style::new().bold());
    let widths = [7, 11, 11, 11, 11].map(Constraint::Length);
    let block = Block::bordered().title(" latency from intended time and from send ");
    frame.render_widget(Table::new(rows, widths).header(header).block(block), left);
    let text: Vec<Line<'_>> = lines.iter().map(|line| Line::from(line.as_str())).collect();
    frame.render_widget(Paragraph::new(text).block(Block::bordered().title(" cost and errors ")), right);
}
