//! Fields as people declare them, before they have places.

use std::sync::Arc;

use crate::field::FieldType;

/// How a field goes together with other versions of its format. It is part of the format's description, and so of its id.
#[derive(Clone, PartialEq, Eq, Debug, Default, Hash)]
pub struct Evolution {
    /// The value of the field in a record that is converted from one without it, or with null where the field is never
    /// null: a value as in CSV; `[]` for a list. So it does in a record that is read from an encoding, but a field that
    /// may be null is null where it is left out, unless the whole input has no place for it.
    pub default: Option<String>,
    /// Names that the field, nested record or union had in other versions: it is found by the first of them that there is
    /// where there is none of its own name.
    pub aliases: Vec<String>,
    /// Of an enumeration: the symbol that stands for those that it lacks.
    pub unknown: Option<String>,
}

/// A field as people declare it, before it has a place.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub struct FieldSpec {
    /// The name, unique among its neighbours, 1 to 255 bytes with no control characters.
    pub name: String,
    /// The type of its values.
    pub ty: TypeSpec,
    /// Whether a record may hold null here.
    pub nullable: bool,
    /// How it goes together with other versions of the format, if anything is said of that.
    pub evolution: Option<Arc<Evolution>>,
}

impl FieldSpec {
    /// A field that is never null.
    #[must_use]
    pub fn new(name: impl Into<String>, ty: impl Into<TypeSpec>) -> Self {
        Self { name: name.into(), ty: ty.into(), nullable: false, evolution: None }
    }

    /// A field that may be null.
    #[must_use]
    pub fn nullable(name: impl Into<String>, ty: impl Into<TypeSpec>) -> Self {
        Self { nullable: true, ..Self::new(name, ty) }
    }

    /// The same field with a default (see [`Evolution::default`]).
    #[must_use]
    pub fn with_default(mut self, value: impl Into<String>) -> Self {
        self.evolution_mut().default = Some(value.into());
        self
    }

    /// The same field with one more name that it had (see [`Evolution::aliases`]).
    #[must_use]
    pub fn with_alias(mut self, name: impl Into<String>) -> Self {
        self.evolution_mut().aliases.push(name.into());
        self
    }

    /// The same field with a symbol for those that it lacks (see [`Evolution::unknown`]).
    #[must_use]
    pub fn with_unknown(mut self, symbol: impl Into<String>) -> Self {
        self.evolution_mut().unknown = Some(symbol.into());
        self
    }

    fn evolution_mut(&mut self) -> &mut Evolution {
        Arc::make_mut(self.evolution.get_or_insert_default())
    }
}

/// The type of a field as it is declared: of one value, of a nested record, of a list.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub enum TypeSpec {
    /// One value. An enumeration given so has no symbols.
    Scalar(FieldType),
    /// A number that stands for a symbol.
    Enum {
        /// Bytes of the number: 1, 2, 4 or 8.
        bytes: u8,
        /// Whether the number has a sign; one of 8 bytes must.
        signed: bool,
        /// The symbols and their numbers. A number may have several symbols: the first is the one that is written.
        symbols: Vec<(String, i64)>,
    },
    /// Elements of one type, none of them null. An element is one value, a record, or a list.
    List {
        /// The type of the elements.
        element: Box<TypeSpec>,
        /// The number of elements, if it is constant; they then lie in the fixed part.
        count: Option<u32>,
    },
    /// Fields under one name.
    Record(Vec<FieldSpec>),
    /// Fields; a record has exactly one of them (or none, if the union is nullable).
    Union(Vec<FieldSpec>),
}

impl TypeSpec {
    /// An enumeration of four bytes with a sign.
    pub fn enumeration<S: Into<String>>(symbols: impl IntoIterator<Item = (S, i64)>) -> Self {
        let symbols = symbols.into_iter().map(|(symbol, number)| (symbol.into(), number)).collect();
        Self::Enum { bytes: 4, signed: true, symbols }
    }

    /// A list of any length.
    pub fn list(element: impl Into<TypeSpec>) -> Self {
        Self::List { element: Box::new(element.into()), count: None }
    }

    /// A list of a fixed number of elements.
    pub fn array(element: impl Into<TypeSpec>, count: u32) -> Self {
        Self::List { element: Box::new(element.into()), count: Some(count) }
    }
}

impl From<FieldType> for TypeSpec {
    fn from(ty: FieldType) -> Self {
        Self::Scalar(ty)
    }
}

/// Equal to the declaration of one value of this type.
impl PartialEq<FieldType> for TypeSpec {
    fn eq(&self, ty: &FieldType) -> bool {
        matches!(self, Self::Scalar(own) if own == ty)
    }
}
