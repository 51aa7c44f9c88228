//! A serde deserializer for names and values: path parameters, and the fields of queries and forms.
//!
//! All values are text and are parsed as the target type requires. In a map or struct, a name with several values is a
//! sequence. An error names the field if it concerns a single one.

use crate::message::problem::shortened;
use serde::de::value::{CowStrDeserializer, SeqDeserializer};
use serde::de::{self, Deserializer, IntoDeserializer, Visitor};
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

/// How many characters of a text [`Shown`] displays at most.
const SHOWN: usize = 40;

/// The error for names and values that do not fit the target type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Misfit {
    /// The name of the field, if the error concerns a single one.
    pub(crate) field: Option<String>,
    pub(crate) what: String,
}

impl Misfit {
    fn new(what: impl Into<String>) -> Misfit {
        // The error of a type's own `Deserialize` may contain the whole value.
        Misfit { field: None, what: shortened(what.into()) }
    }

    pub(crate) fn of(self, field: &str) -> Misfit {
        Misfit { field: self.field.or_else(|| Some(field.to_string())), ..self }
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Misfit {}

impl de::Error for Misfit {
    fn custom<T: fmt::Display>(message: T) -> Misfit {
        Misfit::new(message.to_string())
    }

    fn missing_field(field: &'static str) -> Misfit {
        Misfit::new(format!("missing field `{field}`")).of(field)
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Misfit {
        let shown = Shown(field);
        Misfit::new(format!("unknown field {shown}, expected one of {}", expected.join(", "))).of(field)
    }
}

/// Displays a text in quotes, or only the start of a long text.
struct Shown<'t>(&'t str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth(SHOWN) {
            Some((end, _)) => write!(f, "{:?} and more", &self.0[..end]),
            None => write!(f, "{:?}", self.0),
        }
    }
}

/// The values of a field. Reading them as a number, a text or another single value returns an error if there are
/// several.
#[derive(Debug)]
struct Values<'t> {
    first: Cow<'t, str>,
    more: Vec<Cow<'t, str>>,
}

impl<'t> Values<'t> {
    fn new(value: impl Into<Cow<'t, str>>) -> Values<'t> {
        Values { first: value.into(), more: Vec::new() }
    }

    fn one(self) -> Result<Cow<'t, str>, Misfit> {
        match self.more.len() {
            0 => Ok(self.first),
            more => Err(Misfit::new(format!("it is given {} times", more + 1))),
        }
    }

    fn visit_text<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match self.one()? {
            Cow::Borrowed(text) => visitor.visit_str(text),
            Cow::Owned(text) => visitor.visit_string(text),
        }
    }
}

impl<'de, 't> IntoDeserializer<'de, Misfit> for Values<'t> {
    type Deserializer = Values<'t>;
    fn into_deserializer(self) -> Values<'t> {
        self
    }
}

macro_rules! parsed {
    ($($method:ident $visit:ident $kind:ty,)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
            let text = self.one()?;
            match text.parse::<$kind>() {
                Ok(value) => visitor.$visit(value),
                Err(error) => Err(Misfit::new(format!("{}: {error}", Shown(&text)))),
            }
        }
    )*};
}

macro_rules! as_text {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
            self.visit_text(visitor)
        }
    )*};
}

impl<'de> Deserializer<'de> for Values<'_> {
    type Error = Misfit;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        if self.more.is_empty() { self.visit_text(visitor) } else { self.deserialize_seq(visitor) }
    }

    parsed! {
        deserialize_bool visit_bool bool,
        deserialize_i8 visit_i8 i8,
        deserialize_i16 visit_i16 i16,
        deserialize_i32 visit_i32 i32,
        deserialize_i64 visit_i64 i64,
        deserialize_i128 visit_i128 i128,
        deserialize_u8 visit_u8 u8,
        deserialize_u16 visit_u16 u16,
        deserialize_u32 visit_u32 u32,
        deserialize_u64 visit_u64 u64,
        deserialize_u128 visit_u128 u128,
        deserialize_f32 visit_f32 f32,
        deserialize_f64 visit_f64 f64,
        deserialize_char visit_char char,
    }

    as_text! { deserialize_str deserialize_string deserialize_bytes deserialize_byte_buf deserialize_identifier }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Misfit> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        let more = self.more.into_iter().map(Values::new);
        visitor.visit_seq(SeqDeserializer::new(std::iter::once(Values::new(self.first)).chain(more)))
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Misfit> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        let variant: CowStrDeserializer<'_, Misfit> = self.one()?.into_deserializer();
        visitor.visit_enum(variant)
    }

    serde::forward_to_deserialize_any! { unit unit_struct tuple_struct map struct }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        visitor.visit_unit()
    }
}

/// How fields are read as a type that is neither a map nor a struct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// The fields are values without names: one value, or several in order. Used for paths.
    Values,
    /// The fields are a sequence of pairs of name and value. Used for queries and forms.
    Pairs,
}

/// A field's name and one of its values.
pub(crate) type Pair<'t> = (Cow<'t, str>, Cow<'t, str>);

/// The deserializer: all fields of a path, query or form.
#[derive(Debug)]
pub(crate) struct Fields<'t> {
    pairs: Vec<Pair<'t>>,
    shape: Shape,
}

impl<'t> Fields<'t> {
    /// Creates a deserializer for path parameters, which are read as one value, a sequence, a map or a struct.
    pub(crate) fn of_path(pairs: Vec<Pair<'t>>) -> Fields<'t> {
        Fields { pairs, shape: Shape::Values }
    }

    /// Creates a deserializer for a query or form, which is read as a map, a struct or a sequence of pairs.
    pub(crate) fn of_form(pairs: Vec<Pair<'t>>) -> Fields<'t> {
        Fields { pairs, shape: Shape::Pairs }
    }

    /// Reads the only parameter of a path. Returns an error if the path has none or several, or if this is a query or
    /// form.
    fn read_one<T>(mut self, read: impl FnOnce(Values<'_>) -> Result<T, Misfit>) -> Result<T, Misfit> {
        match (self.shape, self.pairs.pop(), self.pairs.is_empty()) {
            (Shape::Values, Some((name, value)), true) => read(Values::new(value)).map_err(|misfit| misfit.of(&name)),
            (Shape::Values, ..) => Err(Misfit::new("the template has not exactly one parameter")),
            (Shape::Pairs, ..) => Err(Misfit::new("fields are read as a struct, a map or a sequence of pairs")),
        }
    }
}

/// Up to this number of names, a linear search is quicker than a map, and it needs no allocation.
const FEW_NAMES: usize = 8;

/// Groups values by name, in the order in which the names first appear. The map's hash function is seeded, so that a
/// client cannot choose names that collide.
fn grouped(pairs: Vec<Pair<'_>>) -> Vec<(Cow<'_, str>, Values<'_>)> {
    let mut places = HashMap::<Cow<'_, str>, usize>::new();
    let mut groups: Vec<(Cow<'_, str>, Values<'_>)> = Vec::with_capacity(pairs.len());
    for (name, value) in pairs {
        if groups.len() == FEW_NAMES && places.is_empty() {
            places.extend(groups.iter().enumerate().map(|(place, (name, _))| (name.clone(), place)));
        }
        let place = match places.is_empty() {
            true => groups.iter().position(|(known, _)| *known == name),
            false => places.get(&name).copied(),
        };
        if let Some(place) = place {
            groups[place].1.more.push(value);
            continue;
        }
        if !places.is_empty() {
            places.insert(name.clone(), groups.len());
        }
        groups.push((name, Values::new(value)));
    }
    groups
}

/// A serde map over groups, whose errors name the field.
struct Groups<'t> {
    rest: std::vec::IntoIter<(Cow<'t, str>, Values<'t>)>,
    value: Option<(Cow<'t, str>, Values<'t>)>,
}

impl<'de> de::MapAccess<'de> for Groups<'_> {
    type Error = Misfit;

    fn next_key_seed<K: de::DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Misfit> {
        let Some((name, values)) = self.rest.next() else { return Ok(None) };
        let key = seed.deserialize(Values::new(&*name)).map_err(|misfit| misfit.of(&name));
        self.value = Some((name, values));
        key.map(Some)
    }

    fn next_value_seed<V: de::DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Misfit> {
        let (name, values) = self.value.take().ok_or_else(|| Misfit::new("a value is read before its name"))?;
        seed.deserialize(values).map_err(|misfit| misfit.of(&name))
    }
}

/// A serde sequence over path parameters, whose errors name the parameter.
struct Parameters<'t>(std::vec::IntoIter<Pair<'t>>);

impl<'de> de::SeqAccess<'de> for Parameters<'_> {
    type Error = Misfit;

    fn next_element_seed<T: de::DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Misfit> {
        let Some((name, value)) = self.0.next() else { return Ok(None) };
        seed.deserialize(Values::new(value)).map(Some).map_err(|misfit| misfit.of(&name))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

macro_rules! of_one {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
            self.read_one(|value| value.$method(visitor))
        }
    )*};
}

impl<'de> Deserializer<'de> for Fields<'_> {
    type Error = Misfit;

    of_one! {
        deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128 deserialize_f32 deserialize_f64
        deserialize_char deserialize_str deserialize_string deserialize_bytes deserialize_byte_buf
        deserialize_identifier
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match self.shape {
            Shape::Values => self.read_one(|value| value.deserialize_any(visitor)),
            // `#[serde(flatten)]` and untagged enums call this method.
            Shape::Pairs => self.deserialize_map(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        if self.pairs.is_empty() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Misfit> {
        visitor.visit_unit()
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Misfit> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match self.shape {
            Shape::Values => visitor.visit_seq(Parameters(self.pairs.into_iter())),
            Shape::Pairs => {
                let pairs = self.pairs.into_iter().map(|(name, value)| Values { first: name, more: vec![value] });
                visitor.visit_seq(SeqDeserializer::new(pairs))
            }
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Misfit> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        visitor.visit_map(Groups { rest: grouped(self.pairs).into_iter(), value: None })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        self.read_one(|value| value.deserialize_enum(name, variants, visitor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde::de::DeserializeOwned;

    fn pairs<'t>(pairs: &[(&'t str, &'t str)]) -> Vec<Pair<'t>> {
        pairs.iter().map(|&(name, value)| (name.into(), value.into())).collect()
    }

    fn of_path<T: DeserializeOwned>(path: &[(&str, &str)]) -> Result<T, Misfit> {
        T::deserialize(Fields::of_path(pairs(path)))
    }

    fn of_form<T: DeserializeOwned>(form: &[(&str, &str)]) -> Result<T, Misfit> {
        T::deserialize(Fields::of_form(pairs(form)))
    }

    fn misfit<T>(field: &str, what: &str) -> Result<T, Misfit> {
        Err(Misfit { field: (!field.is_empty()).then(|| field.to_string()), what: what.to_string() })
    }

    #[derive(Deserialize, Debug, PartialEq)]
    struct Both {
        a: u8,
        b: String,
    }

    #[derive(Deserialize, Debug, PartialEq)]
    #[serde(rename_all = "snake_case")]
    enum Size {
        Small,
        Large,
    }

    #[derive(Deserialize, Debug, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Order {
        size: Size,
        #[serde(default)]
        topping: Vec<String>,
        count: Option<u8>,
        note: Option<String>,
    }

    #[test]
    fn of_a_path_one_value_a_tuple_a_struct_a_map() {
        assert_eq!(of_path::<u64>(&[("id", "7")]), Ok(7));
        assert_eq!(of_path::<String>(&[("id", "x y")]), Ok("x y".to_string()));
        assert_eq!(of_path::<Size>(&[("size", "large")]), Ok(Size::Large));
        assert_eq!(of_path::<(u8, String)>(&[("a", "1"), ("b", "2")]), Ok((1, "2".to_string())));
        assert_eq!(of_path::<Vec<u8>>(&[("a", "1"), ("b", "2")]), Ok(vec![1, 2]));
        assert_eq!(of_path::<Both>(&[("b", "2"), ("a", "1")]), Ok(Both { a: 1, b: "2".to_string() }));
        assert_eq!(of_path::<HashMap<String, u8>>(&[("a", "1")]), Ok(HashMap::from([("a".to_string(), 1)])));
        assert_eq!(of_path::<u64>(&[("id", "x")]), misfit("id", "\"x\": invalid digit found in string"));
        let ones = [("a", "1"), ("b", "x")];
        assert_eq!(of_path::<(u8, u8)>(&ones), misfit("b", "\"x\": invalid digit found in string"));
        assert_eq!(of_path::<u64>(&[]), misfit("", "the template has not exactly one parameter"));
    }

    #[test]
    fn of_a_form_a_struct_a_map_pairs() {
        let order = Order {
            size: Size::Small,
            topping: vec!["a".into(), "b".into()],
            count: Some(2),
            note: Some(String::new()),
        };
        let form = [("topping", "a"), ("size", "small"), ("note", ""), ("topping", "b"), ("count", "2")];
        assert_eq!(of_form(&form), Ok(order));
        assert_eq!(of_form::<Vec<(String, u8)>>(&[("a", "1"), ("a", "2")]), Ok(vec![("a".into(), 1), ("a".into(), 2)]));
        let map = HashMap::from([("a".to_string(), vec![1, 2]), ("b".to_string(), vec![3])]);
        assert_eq!(of_form::<HashMap<String, Vec<u8>>>(&[("a", "1"), ("b", "3"), ("a", "2")]), Ok(map));
        let numbers = HashMap::from([(1, "a".to_string()), (2, "b".to_string())]);
        assert_eq!(of_form::<HashMap<u8, String>>(&[("1", "a"), ("2", "b")]), Ok(numbers));
        assert_eq!(of_form::<HashMap<u8, String>>(&[("x", "a")]), misfit("x", "\"x\": invalid digit found in string"));
        assert_eq!(of_form::<()>(&[("a", "1")]), Ok(()));
        assert_eq!(of_form::<Option<Both>>(&[]), Ok(None));
    }

    #[test]
    fn few_names_and_many_are_grouped_alike() {
        for count in [1, FEW_NAMES - 1, FEW_NAMES, FEW_NAMES + 1, 3 * FEW_NAMES] {
            let names: Vec<String> = (0..count).map(|number| number.to_string()).collect();
            // Each name appears twice, the second time in reverse order.
            let form: Vec<_> = names.iter().chain(names.iter().rev()).map(|name| (&**name, &**name)).collect();
            let expected: HashMap<_, _> = names.iter().map(|name| (name.clone(), vec![name.clone(); 2])).collect();
            assert_eq!(of_form::<HashMap<String, Vec<String>>>(&form), Ok(expected), "{count} names");
        }
    }

    #[test]
    fn errors_name_the_field() {
        for (form, field, what) in [
            (&[][..], "size", "missing field `size`"),
            (&[("size", "huge")], "size", "unknown variant `huge`, expected `small` or `large`"),
            (&[("size", "small"), ("size", "large")], "size", "it is given 2 times"),
            (&[("size", "small"), ("count", "300")], "count", "\"300\": number too large to fit in target type"),
            (&[("size", "small"), ("x", "1")], "x", "unknown field \"x\", expected one of size, topping, count, note"),
        ] {
            assert_eq!(of_form::<Order>(form), misfit(field, what), "{form:?}");
        }
        let long = "x".repeat(100_000);
        let what = of_form::<Order>(&[("size", "small"), ("count", &long)]).expect_err("the value is no number").what;
        assert!(what.len() < 100, "{what}");
        let what = of_form::<Order>(&[("size", &long)]).expect_err("the value is no size").what;
        assert!(what.len() < 500, "{what}");
        let what = of_form::<u8>(&[("a", "1")]).expect_err("a query is no number").what;
        assert_eq!(what, "fields are read as a struct, a map or a sequence of pairs");
    }
}
