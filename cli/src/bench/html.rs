//! The report as one HTML page, which loads nothing and has no script.

use super::record::Record;
use super::report::{Report, grouped, latencies};
use super::verdict::Limit;
use super::watch::time;
use std::fmt::Write;
use std::time::Duration;

/// The size of the plot, in units of its own, with margins for the labels.
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 84.0;
const BOTTOM: f64 = 32.0;

/// The most nines of the plot: 99.999 %.
const NINES: f64 = 5.0;

const STYLE: &str = "
:root { color-scheme: light dark; --text: #1c2530; --soft: #5a6674; --line: #d5dbe1; --back: #fff; --card: #f4f6f8; --one: #0b63c5; --two: #b45309; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e4e9ee; --soft: #9aa7b4; --line: #333d47; --back: #12171c; --card: #1b2229; --one: #6cb2ff; --two: #f2a65a; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 56rem; padding: 1.5rem 1rem 3rem; background: var(--back); color: var(--text);
  font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.3rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; margin: 2rem 0 .5rem; }
p { margin: .25rem 0; color: var(--soft); }
.verdict { margin: 1rem 0; padding: .75rem 1rem; background: var(--card); border-left: 4px solid var(--one); color: var(--text); }
.verdict.held { border-color: var(--two); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .75rem; padding: 0; margin: 1rem 0; }
.cards div { background: var(--card); padding: .6rem .8rem; border-radius: .4rem; }
.cards dt { color: var(--soft); font-size: .85rem; }
.cards dd { margin: 0; font-size: 1.2rem; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid var(--line); text-align: right; }
th:first-child, td:first-child { text-align: left; }
td.text { text-align: left; overflow-wrap: anywhere; }
svg { width: 100%; height: auto; }
svg text { fill: var(--soft); font-size: 12px; }
@media (max-width: 600px) { svg text { font-size: 19px; } svg text.last { display: none; } }
svg .grid { stroke: var(--line); }
svg .one { stroke: var(--one); fill: none; stroke-width: 2; }
svg .two { stroke: var(--two); fill: none; stroke-width: 2; stroke-dasharray: 6 4; }
.key { display: inline-block; width: 1.5rem; height: 0; border-top: 2px solid var(--one); vertical-align: middle; margin-right: .4rem; }
.key.two { border-top: 2px dashed var(--two); margin-left: 1rem; }
";

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn shown(microseconds: u64) -> String {
    time(Duration::from_micros(microseconds))
}

/// Returns the page.
pub fn page(report: &Report) -> String {
    let (setup, record) = (&report.setup, &report.record);
    let url = escaped(&setup.url);
    let held = if report.verdict.limit == Limit::Generator { " held" } else { "" };
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{url}: highwire bench</title>\n<style>{STYLE}</style>\n<main>\n<h1>{} {url}</h1>\n\
         <p>{}, {} connections, {} requests at a time, {} threads, {}</p>\n\
         <p class=\"verdict{held}\">{}</p>\n",
        escaped(&setup.method),
        escaped(&setup.protocol),
        setup.connections,
        setup.depth,
        setup.threads,
        setup.rate.as_deref().map_or("closed loop: shows capacity, not latency".into(), escaped),
        escaped(&report.verdict.line()),
    );
    let mut cards = vec![
        ("responses", grouped(record.responses)),
        ("a second", grouped(record.rate().round() as u64)),
        ("seconds", format!("{:.2}", record.elapsed.as_secs_f64())),
        ("errors", grouped(record.all_errors())),
        ("unsent", grouped(record.unsent)),
        ("generator, CPU a response", report.cost(report.watched.cpu())),
    ];
    cards.extend(report.watched.server_cpu().map(|cpu| ("server, CPU a response", report.cost(cpu))));
    page.push_str("<dl class=\"cards\">\n");
    for (name, value) in cards {
        let _ = writeln!(page, "<div><dt>{name}</dt><dd>{value}</dd></div>");
    }
    page.push_str("</dl>\n<h2>Latency</h2>\n");
    if record.intended.is_empty() {
        page.push_str("<p>No response had an expected status.</p>\n");
    } else {
        plot(record, &mut page);
        table(record, &mut page);
    }
    counts(record, &mut page);
    page.push_str("</main>\n");
    page
}

fn table(record: &Record, page: &mut String) {
    page.push_str(
        "<div class=\"wide\"><table><tr><th></th><th>from the intended time</th><th>from the actual send</th></tr>\n",
    );
    for (name, [intended, sent]) in latencies([&record.intended, &record.sent]) {
        let _ = writeln!(page, "<tr><td>{name}</td><td>{intended}</td><td>{sent}</td></tr>");
    }
    page.push_str("</table></div>\n");
}

fn counts(record: &Record, page: &mut String) {
    page.push_str(
        "<h2>Responses and errors</h2>\n<div class=\"wide\"><table><tr><th>what</th><th>number</th><th></th></tr>\n",
    );
    for (status, count) in &record.statuses {
        let _ = writeln!(page, "<tr><td>status {status}</td><td>{}</td><td></td></tr>", grouped(*count));
    }
    for (fault, (count, example)) in &record.faults {
        let (name, example) = (escaped(fault.name()), escaped(example));
        let _ = writeln!(page, "<tr><td>{name}</td><td>{}</td><td class=\"text\">{example}</td></tr>", grouped(*count));
    }
    page.push_str("</table></div>\n");
}

/// Draws both histograms: the share of the requests by its nines, and the latency on a logarithmic scale.
fn plot(record: &Record, page: &mut String) {
    let histograms =
        [(&record.intended, "one"), (&record.sent, "two")].into_iter().filter(|(histogram, _)| !histogram.is_empty());
    let histograms: Vec<_> = histograms.collect();
    let lowest = histograms.iter().map(|(histogram, _)| histogram.min()).min().unwrap_or(1).max(1) as f64;
    let highest = histograms.iter().map(|(histogram, _)| histogram.max()).max().unwrap_or(1) as f64;
    // Whole powers of ten.
    let (low, high) = (lowest.log10().floor(), (highest.log10().ceil()).max(lowest.log10().floor() + 1.0));
    let x = |nines: f64| LEFT + nines / NINES * (WIDTH - LEFT - 16.0);
    let y = |microseconds: f64| {
        let share = (microseconds.max(1.0).log10() - low) / (high - low);
        HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - 16.0)
    };
    let _ = writeln!(
        page,
        "<p><span class=\"key\"></span>from the intended time <span class=\"key two\"></span>from the actual send</p>\n\
         <svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"latency by share of the requests; the table has the values\">"
    );
    for power in low as i32..=high as i32 {
        let (value, at) = (10f64.powi(power), y(10f64.powi(power)));
        let _ = writeln!(
            page,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - 16.0,
            LEFT - 8.0,
            at + 4.0,
            shown(value as u64)
        );
    }
    for (nines, name) in
        [(0.0, "0 %"), (1.0, "90 %"), (2.0, "99 %"), (3.0, "99.9 %"), (4.0, "99.99 %"), (5.0, "99.999 %")]
    {
        let (anchor, last) = if nines == NINES { ("end", " class=\"last\"") } else { ("middle", "") };
        let at = x(nines);
        let _ = writeln!(
            page,
            "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"16\" y2=\"{:.1}\"/>\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\"{last}>{name}</text>",
            HEIGHT - BOTTOM,
            HEIGHT - 10.0
        );
    }
    for (histogram, class) in histograms {
        // A share has a value only if there are as many requests as it needs.
        let most = (histogram.len() as f64).log10().min(NINES);
        let points: Vec<String> = (0..=100)
            .map(|step| f64::from(step) / 100.0 * most)
            .map(|nines| {
                let value = histogram.value_at_quantile(1.0 - 10f64.powf(-nines)) as f64;
                format!("{:.1},{:.1}", x(nines), y(value))
            })
            .collect();
        let _ = writeln!(page, "<polyline class=\"{class}\" points=\"{}\"/>", points.join(" "));
    }
    page.push_str("</svg>\n");
}
