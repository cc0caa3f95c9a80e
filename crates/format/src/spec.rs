//! Fields as people declare them, before they have places.

use crate::field::FieldType;

/// A field as people declare it, before it has a place.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub struct FieldSpec {
    /// The name, unique among its neighbours, 1 to 255 bytes with no control characters.
    pub name: String,
    /// The type of its values.
    pub ty: TypeSpec,
    /// Whether a record may hold null here.
    pub nullable: bool,
}

impl FieldSpec {
    /// A field that is never null.
    #[must_use]
    pub fn new(name: impl Into<String>, ty: impl Into<TypeSpec>) -> Self {
        Self { name: name.into(), ty: ty.into(), nullable: false }
    }

    /// A field that may be null.
    #[must_use]
    pub fn nullable(name: impl Into<String>, ty: impl Into<TypeSpec>) -> Self {
        Self { name: name.into(), ty: ty.into(), nullable: true }
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
    /// Fields of which a record has exactly one (or none, if the union is nullable).
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
