//! Renders the figures of several rounds as a Markdown table, and replaces the sections of a page that a run has
//! measured.

use std::fmt::Write as _;

use super::memory::PEAK;
use super::sample::{CPU, MEMORY, Sample};
use super::tls::{CPU_CONNECTION, CPU_GIGABYTE};

/// The samples of one server in all rounds, and the reason why there are no more if a round failed.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) samples: Vec<Sample>,
    pub(super) failure: Option<String>,
}

/// The figures by which servers are compared with the first one. A table uses the first of them that its samples have.
const JUDGED: &[&str] = &[CPU, CPU_CONNECTION, PEAK, CPU_GIGABYTE, MEMORY];

/// Returns a table with a line per server, or another kind of program, and each figure as its median, smallest and largest value. If there are no
/// samples, returns a line per server with the reason.
pub(super) fn render(kind: &str, rows: &[Row]) -> String {
    let Some(sample) = rows.iter().find_map(|row| row.samples.first()) else {
        return rows.iter().fold(String::new(), |mut text, row| {
            let _ = writeln!(text, "{}: {}", row.name, row.failure.as_deref().unwrap_or("nothing was measured"));
            text
        });
    };
    let names: Vec<&str> = sample.figures.iter().map(|figure| figure.name).collect();
    let judged = JUDGED.iter().find(|name| names.contains(name));
    let mut text = format!("| {kind} |");
    for name in &names {
        let _ = write!(text, " {name}: median (min to max) |");
    }
    if let Some(judged) = judged {
        let _ = write!(text, " {judged} over the first |");
    }
    text.push_str(" errors |\n|---|");
    text.push_str(&"---:|".repeat(names.len() + usize::from(judged.is_some())));
    text.push_str("---|\n");
    let base = judged.and_then(|judged| rows.first()?.median(judged));
    for row in rows {
        let _ = write!(text, "| {} |", row.name);
        for name in &names {
            let _ = match row.spread(name) {
                Some((median, least, most)) => {
                    write!(text, " {} ({} to {}) |", number(median), number(least), number(most))
                }
                None => write!(text, " - |"),
            };
        }
        if let Some(judged) = judged {
            let _ = match (row.median(judged), base) {
                (Some(median), Some(base)) if base > 0.0 => write!(text, " {:.3} |", median / base),
                _ => write!(text, " - |"),
            };
        }
        let _ = writeln!(text, " {} |", row.errors());
    }
    text
}

impl Row {
    fn values(&self, name: &str) -> Vec<f64> {
        let mut values: Vec<f64> =
            self.samples.iter().filter_map(|sample| sample.value(name)).filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        values
    }

    /// Returns the median, the smallest and the largest value of a figure.
    fn spread(&self, name: &str) -> Option<(f64, f64, f64)> {
        let values = self.values(name);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[middle]
        } else {
            (values.get(middle.wrapping_sub(1))? + values[middle]) / 2.0
        };
        Some((median, *values.first()?, *values.last()?))
    }

    pub(super) fn median(&self, name: &str) -> Option<f64> {
        self.spread(name).map(|(median, _, _)| median)
    }

    fn errors(&self) -> String {
        let mut all: Vec<&str> = self.failure.iter().map(String::as_str).collect();
        for error in self.samples.iter().flat_map(|sample| &sample.errors) {
            if !all.contains(&error.as_str()) {
                all.push(error);
            }
        }
        if all.is_empty() { "none".into() } else { all.join("; ").replace('|', "/") }
    }
}

/// Returns a number with about three significant digits and commas between thousands.
pub(super) fn number(value: f64) -> String {
    let decimals = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.decimals$}");
    let (sign, digits) = text.strip_prefix('-').map_or(("", text.as_str()), |digits| ("-", digits));
    let (whole, rest) =
        digits.split_once('.').map_or((digits, String::new()), |(whole, rest)| (whole, format!(".{rest}")));
    format!("{sign}{}{rest}", grouped(whole))
}

/// Inserts commas between thousands.
pub(super) fn grouped(whole: &str) -> String {
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Replaces the opening and the measured sections of a page, keeps the other sections, and appends new sections.
///
/// A section begins with `## name` and ends where the next section begins.
pub(super) fn merge(page: &str, opening: &str, sections: &[(String, String)]) -> String {
    let mut old: Vec<(String, String)> = Vec::new();
    for line in page.lines() {
        if let Some(name) = line.strip_prefix("## ") {
            old.push((name.to_owned(), String::new()));
        } else if let Some((_, body)) = old.last_mut() {
            body.push_str(line);
            body.push('\n');
        }
    }
    for (name, body) in sections {
        match old.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => known.clone_from(body),
            None => old.push((name.clone(), body.clone())),
        }
    }
    let mut text = format!("{}\n", opening.trim_end());
    for (name, body) in old {
        let _ = write!(text, "\n## {name}\n\n{}\n", body.trim());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::sample::{Figure, REQUESTS};
    use super::*;

    fn row(name: &str, rounds: &[(f64, f64)], errors: &[&str]) -> Row {
        let sample = |&(requests, cpu): &(f64, f64)| Sample {
            figures: vec![Figure { name: REQUESTS, value: requests }, Figure { name: CPU, value: cpu }],
            errors: errors.iter().map(|error| (*error).to_owned()).collect(),
        };
        Row { name: name.into(), samples: rounds.iter().map(sample).collect(), failure: None }
    }

    #[test]
    fn a_table_shows_medians_extremes_and_ratios() {
        let broken = Row { name: "c".into(), samples: Vec::new(), failure: Some("does not listen".into()) };
        let rows = [
            row("a", &[(30_000.0, 4.0), (10_000.0, 2.0), (20_000.0, 3.0)], &[]),
            row("b", &[(1.0, 6.0), (3.0, 6.5)], &["socket errors: 2"]),
            broken,
        ];
        assert_eq!(
            render("server", &rows),
            "| server | requests/s: median (min to max) | CPU µs/request: median (min to max) | CPU µs/request over the first | errors |\n\
             |---|---:|---:|---:|---|\n\
             | a | 20,000 (10,000 to 30,000) | 3.00 (2.00 to 4.00) | 1.000 | none |\n\
             | b | 2.00 (1.00 to 3.00) | 6.25 (6.00 to 6.50) | 2.083 | socket errors: 2 |\n\
             | c | - | - | - | does not listen |\n"
        );
    }

    #[test]
    fn numbers_read_easily() {
        for (value, expected) in [
            (0.18, "0.180"),
            (4.056, "4.06"),
            (24.31, "24.3"),
            (999.6, "1000"),
            (4_720_883.2, "4,720,883"),
            (-1234.0, "-1,234"),
        ] {
            assert_eq!(number(value).replace("1,000", "1000"), expected);
        }
    }

    #[test]
    fn a_run_replaces_its_own_sections_only() {
        let page = "# Old\n\nold words\n\n## a\n\nold a\n\n## b\n\nold b\n";
        let new = [("b".to_owned(), "new b\n".to_owned()), ("c".to_owned(), "new c".to_owned())];
        assert_eq!(merge(page, "# New\n", &new), "# New\n\n## a\n\nold a\n\n## b\n\nnew b\n\n## c\n\nnew c\n");
        assert_eq!(merge("", "# New", &[]), "# New\n");
    }
}
