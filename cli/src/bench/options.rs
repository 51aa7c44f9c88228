//! The values of options.

use super::plan;

pub(super) fn at_least_one(text: &str) -> Result<usize, String> {
    let number = plan::number(text)?;
    if (1.0..=1e9).contains(&number) { Ok(number as usize) } else { Err("must be a number from 1 to 1e9".into()) }
}

pub(super) fn field(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("a header field is NAME: VALUE")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

pub(super) fn statuses(text: &str) -> Result<(u16, u16), String> {
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if (100..=999).contains(&first) && first <= last => Ok((first, last)),
        _ => Err("must be a status such as 200, or a range such as 200..299".into()),
    }
}
