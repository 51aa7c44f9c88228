//! The live view of a run on a terminal: the rate, latencies of the last moment and of the whole run, errors, and CPU.

use super::record::Record;
use super::report::{QUANTILES, Setup, grouped};
use super::watch::{Cpu, Process, time};
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

/// What a worker has measured so far.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    pub(super) intended: Histogram<u64>,
    pub(super) sent: Histogram<u64>,
    pub(super) responses: u64,
    pub(super) errors: Vec<(&'static str, u64)>,
    pub(super) cpu: Option<Cpu>,
    /// The time of the snapshot, from the start of the run.
    pub(super) at: Duration,
}

impl Snapshot {
    pub(super) fn of(record: &Record, cpu: Option<Cpu>, at: Duration) -> Snapshot {
        Snapshot {
            intended: record.intended.clone(),
            sent: record.sent.clone(),
            responses: record.responses + record.late,
            errors: record.faults.iter().map(|(fault, (count, _))| (fault.name(), *count)).collect(),
            cpu,
            at,
        }
    }
}

/// The last snapshot of each worker.
#[derive(Debug)]
pub(super) struct Snapshots(Vec<Mutex<Option<Snapshot>>>);

impl Snapshots {
    pub(super) fn new(workers: usize) -> Snapshots {
        Snapshots((0..workers).map(|_| Mutex::new(None)).collect())
    }

    /// Publishes a worker's snapshot.
    pub(super) fn put(&self, worker: usize, snapshot: Snapshot) {
        *self.0[worker].lock().unwrap_or_else(PoisonError::into_inner) = Some(snapshot);
    }

    /// Returns all workers' snapshots as one.
    fn sum(&self) -> Option<Snapshot> {
        let mut sum: Option<Snapshot> = None;
        for snapshot in &self.0 {
            let Some(snapshot) = snapshot.lock().unwrap_or_else(PoisonError::into_inner).clone() else { continue };
            let Some(all) = &mut sum else {
                sum = Some(snapshot);
                continue;
            };
            all.intended.add(&snapshot.intended).expect("the same bounds");
            all.sent.add(&snapshot.sent).expect("the same bounds");
            all.at = all.at.max(snapshot.at);
            all.responses += snapshot.responses;
            for (name, count) in snapshot.errors {
                match all.errors.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, sum)) => *sum += count,
                    None => all.errors.push((name, count)),
                }
            }
            if let (Some(ours), Some(theirs)) = (&mut all.cpu, snapshot.cpu) {
                ours.used += theirs.used;
            }
        }
        sum
    }
}

/// The view. Dropping it gives the terminal back.
pub(super) struct View {
    terminal: ratatui::DefaultTerminal,
    length: Option<Duration>,
    title: String,
    pid: Option<u32>,
    rates: VecDeque<u64>,
    before: Option<(Snapshot, Option<Process>, Duration)>,
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
        if self.before.as_ref().is_some_and(|(before, ..)| before.at == now.at) {
            // No worker has published anything since.
            return;
        }
        let server = self.pid.and_then(Process::read);
        let (mut last, mut last_sent, mut lines) = (now.intended.clone(), now.sent.clone(), Vec::new());
        if let Some((before, server_before, at)) = &self.before {
            // Workers publish at slightly different times, so a worker's values never shrink.
            let _ = last.subtract(&before.intended);
            let _ = last_sent.subtract(&before.sent);
            let seconds = (now.at.saturating_sub(before.at)).as_secs_f64().max(1e-3);
            let server_seconds = (elapsed - *at).as_secs_f64().max(1e-3);
            self.rates.push_back((now.responses.saturating_sub(before.responses) as f64 / seconds) as u64);
            if self.rates.len() > REMEMBERED {
                self.rates.pop_front();
            }
            if let (Some(cpu), Some(earlier)) = (now.cpu, before.cpu) {
                lines.push(format!("generator  {:.2} CPUs", (cpu.used - earlier.used) / seconds));
            }
            if let (Some(server), Some(earlier)) = (server, server_before) {
                let resident = server.resident as f64 / 1e6;
                lines.push(format!(
                    "server     {:.2} CPUs, {resident:.1} MB",
                    (server.cpu - earlier.cpu) / server_seconds
                ));
            }
        }
        let errors: u64 = now.errors.iter().map(|(_, count)| count).sum();
        lines.push(format!("responses  {}", grouped(now.responses)));
        lines.push(format!("errors     {}", grouped(errors)));
        lines.extend(now.errors.iter().map(|(name, count)| format!("  {name}: {}", grouped(*count))));
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
    let value = |histogram: &Histogram<u64>, of: &dyn Fn(&Histogram<u64>) -> u64| {
        if histogram.is_empty() { "-".to_owned() } else { time(Duration::from_micros(of(histogram))) }
    };
    let row = |name: &str, of: &dyn Fn(&Histogram<u64>) -> u64| {
        Row::new(std::iter::once(name.to_owned()).chain(histograms.map(|histogram| value(histogram, of))))
    };
    let mut rows: Vec<Row<'_>> =
        QUANTILES.iter().map(|(name, at)| row(name, &|histogram| histogram.value_at_quantile(*at))).collect();
    rows.push(row("max", &Histogram::max));
    let header = Row::new(["", "now", "now, sent", "all", "all, sent"]).style(Style::new().bold());
    let widths = [7, 11, 11, 11, 11].map(Constraint::Length);
    let block = Block::bordered().title(" latency from intended time and from send ");
    frame.render_widget(Table::new(rows, widths).header(header).block(block), left);
    let text: Vec<Line<'_>> = lines.iter().map(|line| Line::from(line.as_str())).collect();
    frame.render_widget(Paragraph::new(text).block(Block::bordered().title(" cost and errors ")), right);
}
