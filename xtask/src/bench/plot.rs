//! Renders a grouped bar chart as SVG.
//!
//! The bars are horizontal, so names are horizontal too, and more groups only make the chart longer. The chart fits the
//! width of a phone with readable letters.

use std::fmt::Write as _;

use super::table::number;

/// A chart with one bar per series in every group.
pub(super) struct Chart<'a> {
    pub(super) title: &'a str,
    /// The quantity that the length of a bar shows.
    pub(super) axis: &'a str,
    pub(super) series: Vec<String>,
    pub(super) groups: Vec<(String, Vec<Option<f64>>)>,
}

/// About the width of a phone in CSS pixels, so that letters of size 12 are about as large as the surrounding text.
const WIDTH: f64 = 400.0;
const MARGIN: f64 = 10.0;
/// The space on the right for a bar's number.
const NUMBER: f64 = 66.0;
const BAR: f64 = 13.0;
const STEP: f64 = 16.0;
const LINE: f64 = 18.0;

/// The palette of Okabe and Ito without yellow and with dark gray for black. Color-blind readers can tell these colors
/// apart.
const COLOURS: &[&str] = &["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#555555"];

pub(super) fn svg(chart: &Chart<'_>) -> String {
    let legend = LINE * chart.series.len() as f64;
    let top = MARGIN + LINE * 1.5 + legend + LINE;
    let group_height = LINE + STEP * chart.series.len() as f64 + LINE * 0.7;
    let bottom = top + group_height * chart.groups.len() as f64;
    let height = bottom + LINE * 2.5;
    let largest =
        chart.groups.iter().flat_map(|(_, values)| values).flatten().fold(0.0, |most: f64, value| most.max(*value));
    let (ticks, end) = ticks(largest);
    let scale = (WIDTH - 2.0 * MARGIN - NUMBER) / end;

    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" font-family=\"sans-serif\" font-size=\"12\" role=\"img\">\n\
         <title>{title}</title>\n\
         <rect width=\"{WIDTH}\" height=\"{height:.0}\" fill=\"#ffffff\"/>\n\
         <text x=\"{MARGIN}\" y=\"{:.1}\" font-size=\"14\" font-weight=\"bold\">{title}</text>\n",
        MARGIN + 12.0,
        title = escape(chart.title),
    );
    for (index, name) in chart.series.iter().enumerate() {
        let y = MARGIN + LINE * (1.5 + index as f64);
        let _ =
            writeln!(text, "<rect x=\"{MARGIN}\" y=\"{y:.1}\" width=\"12\" height=\"12\" fill=\"{}\"/>", colour(index));
        let _ = writeln!(text, "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>", MARGIN + 18.0, y + 10.5, escape(name));
    }
    for tick in ticks {
        let x = MARGIN + tick * scale;
        let _ = writeln!(
            text,
            "<line x1=\"{x:.1}\" y1=\"{:.1}\" x2=\"{x:.1}\" y2=\"{bottom:.1}\" stroke=\"#cccccc\"/>",
            top - 4.0
        );
        let anchor = if tick == 0.0 { "start" } else { "middle" };
        let _ = writeln!(
            text,
            "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\" fill=\"#333333\">{}</text>",
            bottom + 14.0,
            short(tick)
        );
    }
    let _ = writeln!(
        text,
        "<text x=\"{MARGIN}\" y=\"{:.1}\" fill=\"#333333\">{}</text>",
        bottom + 32.0,
        escape(chart.axis)
    );
    for (group, (name, values)) in chart.groups.iter().enumerate() {
        let mut y = top + group_height * group as f64;
        let _ =
            writeln!(text, "<text x=\"{MARGIN}\" y=\"{:.1}\" font-weight=\"bold\">{}</text>", y + 12.0, escape(name));
        y += LINE;
        for (index, value) in values.iter().enumerate() {
            let length = value.unwrap_or(0.0) * scale;
            let shown = value.map_or("no figure".to_owned(), number);
            let _ = writeln!(
                text,
                "<rect x=\"{MARGIN}\" y=\"{y:.1}\" width=\"{length:.1}\" height=\"{BAR}\" fill=\"{}\"/>",
                colour(index)
            );
            let _ = writeln!(
                text,
                "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"11\">{shown}</text>",
                MARGIN + length + 4.0,
                y + 10.5
            );
            y += STEP;
        }
    }
    text.push_str("</svg>\n");
    text
}

fn colour(index: usize) -> &'static str {
    COLOURS[index % COLOURS.len()]
}

/// Returns about five round values at equal distances, from 0 to at least `largest`, and the last of these values.
fn ticks(largest: f64) -> (Vec<f64>, f64) {
    if largest <= 0.0 {
        return (vec![0.0, 1.0], 1.0);
    }
    let rough = largest / 4.0;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0]
        .iter()
        .map(|factor| factor * power)
        .find(|step| *step >= rough * 0.999)
        .unwrap_or(rough);
    let count = (largest / step).ceil();
    ((0..=count as u32).map(|index| f64::from(index) * step).collect(), count * step)
}

/// Returns a short text for the value of a tick, such as `250k`.
fn short(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{}M", trimmed(value / 1e6)),
        value if value >= 1e3 => format!("{}k", trimmed(value / 1e3)),
        value => trimmed(value),
    }
}

fn trimmed(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_reach_the_largest() {
        for (largest, expected) in [
            (100.0, &[0.0, 25.0, 50.0, 75.0, 100.0][..]),
            (90_000.0, &[0.0, 25_000.0, 50_000.0, 75_000.0, 100_000.0]),
            (7.0, &[0.0, 2.0, 4.0, 6.0, 8.0]),
            (0.0, &[0.0, 1.0]),
        ] {
            assert_eq!(ticks(largest).0, expected, "{largest}");
        }
    }

    #[test]
    fn values_are_short() {
        for (value, expected) in [(0.0, "0"), (2.5, "2.5"), (250_000.0, "250k"), (1_500_000.0, "1.5M")] {
            assert_eq!(short(value), expected);
        }
    }

    #[test]
    fn a_chart_shows_every_bar_and_name_within_its_width() {
        let chart = Chart {
            title: "a < b",
            axis: "requests/s",
            series: vec!["one".into(), "two".into()],
            groups: vec![("64".into(), vec![Some(10.0), Some(40.0)]), ("512".into(), vec![None, Some(20.0)])],
        };
        let text = svg(&chart);
        for expected in ["a &lt; b", ">one<", ">two<", ">64<", ">512<", ">40.0<", ">no figure<", "requests/s"] {
            assert!(text.contains(expected), "{expected} in {text}");
        }
        assert_eq!(text.matches("height=\"13\"").count(), 4);
        let widest = text
            .split("width=\"")
            .skip(1)
            .filter_map(|rest| rest.split('"').next()?.parse::<f64>().ok())
            .fold(0.0, f64::max);
        assert!(widest <= WIDTH);
    }
}
