//! Extractors and responses through serde: path parameters, queries, JSON.

use crate::request::{BodyUse, FromRequest, Request};
use crate::{IntoResponse, Response};
use http::StatusCode;
use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{self, DeserializeOwned, Deserializer, IntoDeserializer, Visitor};
use std::fmt;

/// The parameters of the path: one value, a tuple in the template's order, a struct or a map by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path<T>(pub T);

impl<T: DeserializeOwned> FromRequest for Path<T> {
    fn from_request(request: &mut Request<'_>) -> Result<Path<T>, Response> {
        let pairs: Vec<_> = request.params().iter().map(|(name, value)| (name.to_string(), value)).collect();
        // A path that names nothing that exists is not found, rather than a bad request.
        T::deserialize(Pairs(pairs))
            .map(Path)
            .map_err(|error| Response::error(StatusCode::NOT_FOUND, format!("the path does not fit: {error}\n")))
    }
}

/// The query, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query<T>(pub T);

impl<T: DeserializeOwned> FromRequest for Query<T> {
    fn from_request(request: &mut Request<'_>) -> Result<Query<T>, Response> {
        serde_urlencoded::from_str(request.query().unwrap_or_default())
            .map(Query)
            .map_err(|error| Response::error(StatusCode::BAD_REQUEST, format!("the query does not fit: {error}\n")))
    }
}

/// JSON: a body that is read, or one that is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Json<T>(pub T);

impl<T: DeserializeOwned> FromRequest for Json<T> {
    const BODY: BodyUse = BodyUse::Whole;
    fn from_request(request: &mut Request<'_>) -> Result<Json<T>, Response> {
        let media_type = request.field("content-type").unwrap_or_default();
        let media_type = media_type.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii();
        let is_json =
            media_type.eq_ignore_ascii_case(b"application/json") || media_type.to_ascii_lowercase().ends_with(b"+json");
        if !is_json {
            return Err(Response::error(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the body is not application/json\n"));
        }
        serde_json::from_slice(&request.take_body()?).map(Json).map_err(|error| {
            let status = match error.classify() {
                serde_json::error::Category::Data => StatusCode::UNPROCESSABLE_ENTITY,
                _ => StatusCode::BAD_REQUEST,
            };
            Response::error(status, format!("the JSON does not fit: {error}\n"))
        })
    }
}

impl<T: serde::Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(bytes) => Response::bytes("application/json", bytes),
            Err(error) => {
                tracing::error!(%error, "a value cannot be written as JSON");
                Response::error(StatusCode::INTERNAL_SERVER_ERROR, "internal server error\n")
            }
        }
    }
}

/// Why a value does not fit its type.
#[derive(Debug)]
struct Misfit(String);

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Misfit {}

impl de::Error for Misfit {
    fn custom<T: fmt::Display>(message: T) -> Misfit {
        Misfit(message.to_string())
    }
}

/// One parameter's text, read as whatever is asked for.
struct Text(String);

impl<'de> IntoDeserializer<'de, Misfit> for Text {
    type Deserializer = Text;
    fn into_deserializer(self) -> Text {
        self
    }
}

macro_rules! parsed {
    ($($method:ident $visit:ident $kind:ty,)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
            match self.0.parse::<$kind>() {
                Ok(value) => visitor.$visit(value),
                Err(error) => Err(Misfit(format!("{:?}: {error}", self.0))),
            }
        }
    )*};
}

impl<'de> Deserializer<'de> for Text {
    type Error = Misfit;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        visitor.visit_string(self.0)
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

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Misfit> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        visitor.visit_enum(self.0.into_deserializer())
    }

    serde::forward_to_deserialize_any! {
        str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

/// All parameters: a value where one is asked for, a sequence or a map where those are.
struct Pairs(Vec<(String, String)>);

impl Pairs {
    fn one(mut self) -> Result<Text, Misfit> {
        match (self.0.pop(), self.0.is_empty()) {
            (Some((_, value)), true) => Ok(Text(value)),
            _ => Err(Misfit("the template has not exactly one parameter".to_string())),
        }
    }
}

macro_rules! of_one {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
            self.one()?.$method(visitor)
        }
    )*};
}

impl<'de> Deserializer<'de> for Pairs {
    type Error = Misfit;

    of_one! {
        deserialize_any deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128 deserialize_f32 deserialize_f64
        deserialize_char deserialize_str deserialize_string deserialize_bytes deserialize_byte_buf deserialize_option
        deserialize_identifier
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
        visitor.visit_seq(SeqDeserializer::new(self.0.into_iter().map(|(_, value)| Text(value))))
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
        visitor.visit_map(MapDeserializer::new(self.0.into_iter().map(|(name, value)| (name, Text(value)))))
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
        self.one()?.deserialize_enum(name, variants, visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn pairs(pairs: &[(&str, &str)]) -> Pairs {
        Pairs(pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect())
    }

    #[test]
    fn one_value_a_tuple_a_struct_a_map() {
        #[derive(serde::Deserialize, Debug, PartialEq)]
        struct Both {
            a: u8,
            b: String,
        }
        assert_eq!(u64::deserialize_from(pairs(&[("id", "7")])), Ok(7));
        assert_eq!(String::deserialize_from(pairs(&[("id", "x y")])), Ok("x y".to_string()));
        assert_eq!(<(u8, String)>::deserialize_from(pairs(&[("a", "1"), ("b", "2")])), Ok((1, "2".to_string())));
        assert_eq!(Both::deserialize_from(pairs(&[("b", "2"), ("a", "1")])), Ok(Both { a: 1, b: "2".to_string() }));
        let map = HashMap::<String, u8>::deserialize_from(pairs(&[("a", "1")]));
        assert_eq!(map, Ok(HashMap::from([("a".to_string(), 1)])));
        assert!(u64::deserialize_from(pairs(&[("id", "x")])).is_err());
        assert!(u64::deserialize_from(pairs(&[])).is_err());
    }

    trait DeserializeFrom: DeserializeOwned {
        fn deserialize_from(pairs: Pairs) -> Result<Self, String> {
            Self::deserialize(pairs).map_err(|error| error.to_string())
        }
    }
    impl<T: DeserializeOwned> DeserializeFrom for T {}
}
