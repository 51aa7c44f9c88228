//! Checks, before any request comes, whether a type can be read from the parameters of a route's template.

use serde::de::{self, DeserializeOwned, Deserializer, Visitor};
use std::fmt;

/// Checks that a type can be read from parameters of these names. Returns the reason why it never can.
pub(crate) fn check<T: DeserializeOwned>(names: &[Box<str>]) -> Result<(), String> {
    match T::deserialize(Shape(names)) {
        Err(Verdict(Some(text))) => Err(text),
        _ => Ok(()),
    }
}

/// A deserializer without values: it only looks at what a type asks for.
struct Shape<'n>(&'n [Box<str>]);

/// The end of a look, with the reason why the type does not fit.
#[derive(Debug)]
struct Verdict(Option<String>);

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_deref().unwrap_or_default())
    }
}

impl std::error::Error for Verdict {}

impl de::Error for Verdict {
    fn custom<T: fmt::Display>(_: T) -> Verdict {
        Verdict(None)
    }
}

impl Shape<'_> {
    /// Returns the end of a look at a type of exactly `wanted` parameters.
    fn has<T>(&self, wanted: usize) -> Result<T, Verdict> {
        self.fits(self.0.len() == wanted, wanted)
    }

    /// Returns the end of a look at a type of `wanted` parameters or more; a tuple leaves the further ones out.
    fn has_at_least<T>(&self, wanted: usize) -> Result<T, Verdict> {
        self.fits(self.0.len() >= wanted, wanted)
    }

    fn fits<T>(&self, fits: bool, wanted: usize) -> Result<T, Verdict> {
        let parameters =
            |count: usize| if count == 1 { "1 parameter".to_string() } else { format!("{count} parameters") };
        Err(Verdict(
            (!fits).then(|| format!("takes {}, but the template has {}", parameters(wanted), parameters(self.0.len()))),
        ))
    }
}

macro_rules! of_one {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Verdict> {
            self.has(1)
        }
    )*};
}

impl<'de> Deserializer<'de> for Shape<'_> {
    type Error = Verdict;

    of_one! {
        deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128 deserialize_f32 deserialize_f64
        deserialize_char deserialize_str deserialize_string deserialize_bytes deserialize_byte_buf
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Verdict> {
        Err(Verdict(None))
    }

    // The members of a structure may have defaults.
    serde::forward_to_deserialize_any! { identifier seq map unit unit_struct struct ignored_any }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Verdict> {
        if self.0.is_empty() { Err(Verdict(None)) } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Verdict> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, _: V) -> Result<V::Value, Verdict> {
        self.has_at_least(length)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        length: usize,
        _: V,
    ) -> Result<V::Value, Verdict> {
        self.has_at_least(length)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Verdict> {
        self.has(1)
    }
}

#[cfg(test)]
mod tests {
    use super::check;
    use std::collections::HashMap;

    #[test]
    fn types_that_never_fit_are_found() {
        #[derive(serde::Deserialize)]
        #[expect(dead_code, reason = "only its shape counts")]
        struct Id(u64);
        #[derive(serde::Deserialize)]
        #[expect(dead_code, reason = "only its shape counts")]
        struct Named {
            a: String,
        }
        let names = |count: usize| (0..count).map(|at| at.to_string().into_boxed_str()).collect::<Vec<_>>();
        let (none, one, two) = (&names(0)[..], &names(1)[..], &names(2)[..]);
        let text = "takes 1 parameter, but the template has 2 parameters";
        assert_eq!(check::<u32>(two), Err(text.to_string()));
        assert_eq!((check::<u32>(one), check::<String>(one), check::<Id>(one)), (Ok(()), Ok(()), Ok(())));
        assert!(check::<Id>(two).is_err() && check::<Option<u8>>(two).is_err() && check::<u32>(none).is_err());
        assert_eq!((check::<(u8, String)>(two), check::<Option<u8>>(none)), (Ok(()), Ok(())));
        assert_eq!(check::<(u8, String)>(one), Err("takes 2 parameters, but the template has 1 parameter".to_string()));
        assert_eq!((check::<(u8,)>(two), check::<[String; 1]>(two)), (Ok(()), Ok(())));
        assert_eq!((check::<Vec<String>>(two), check::<HashMap<String, String>>(none)), (Ok(()), Ok(())));
        assert_eq!(check::<Named>(none), Ok(()));
    }
}
