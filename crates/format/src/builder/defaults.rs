//! The values of fields that are not set: their defaults.

use super::{Place, RecordBuilder, ValueError, ValueProblem};
use crate::element::Count;
use crate::field::{Field, FieldType};
use crate::format::Format;
use crate::spec::FieldSpec;
use crate::text::{self, Rounding};

/// The only default that a list has: no elements.
const NO_ELEMENTS: &str = "[]";

impl Field {
    /// Whether its default, if it has one, is a value of it.
    pub(crate) fn is_default_valid(&self) -> bool {
        let Some(default) = self.default_text() else { return true };
        if let Some(element) = self.element() {
            return default == NO_ELEMENTS && element.count == Count::Slot;
        }
        // A format of its own: what the field lies in is not laid out yet.
        let alone = Format::natural([FieldSpec::new("value", self.type_spec())]);
        alone.is_ok_and(|format| RecordBuilder::new(&format).set_default(0, default).is_ok())
    }
}

impl RecordBuilder {
    /// A builder for what is read from elsewhere. Fields that are never null have their defaults where they are not set, or would be
    /// null. Fields that may be null are null, since most encodings leave a value out to say that; see
    /// [`RecordBuilder::start_with_default`]. An unknown symbol is the one that the field has for those.
    pub(crate) fn with_defaults(format: &Format) -> Self {
        let mut builder = Self::new(format);
        builder.fills_in = true;
        if builder.format.layout().has_defaults && builder.set_defaults().is_ok() {
            builder.keep_as_blank();
        }
        builder
    }

    /// Has every record hold its default in a field of the record itself, where it holds no other value: for a field that the
    /// input has no place for.
    pub(crate) fn start_with_default(&mut self, field: usize) {
        if !self.has_default(field) {
            return;
        }
        self.clear();
        if self.take_default(field) {
            self.keep_as_blank();
        }
    }

    /// Whether a field of the innermost open record has a default.
    pub(super) fn has_default(&self, field: usize) -> bool {
        self.format.fields().get(field).is_some_and(|field| field.default_text().is_some())
    }

    /// Has every record begin as the open one is now.
    pub(super) fn keep_as_blank(&mut self) {
        if self.has_dead {
            self.compact();
        }
        (self.blank, self.required) = (self.bytes.as_slice().into(), self.missing.as_slice().into());
    }

    /// Gives the fields of the record that are never null their defaults.
    ///
    /// # Errors
    /// The record would be too long.
    pub(super) fn set_defaults(&mut self) -> Result<(), ValueError> {
        let format = self.format.clone();
        for (index, field) in format.fields().iter().enumerate().filter(|(_, field)| !field.nullable) {
            if let Some(default) = field.default_text() {
                self.set_default(index, default)?;
            }
        }
        Ok(())
    }

    /// Gives a field its default, if it has one here; whether it has.
    #[cold]
    pub(super) fn take_default(&mut self, field: usize) -> bool {
        self.fills_in && self.has_default(field) && self.give_default(field).is_ok()
    }

    /// Gives a field its default.
    ///
    /// # Errors
    /// It has none, or the record would be too long.
    pub(crate) fn give_default(&mut self, field: usize) -> Result<(), ValueError> {
        let format = self.format.clone();
        match format.fields().get(field).and_then(Field::default_text) {
            Some(default) => self.set_default(field, default),
            None => Err(self.refuse(field, ValueProblem::NotSet)),
        }
    }

    fn set_default(&mut self, field: usize, default: &str) -> Result<(), ValueError> {
        let place = self.place(field)?;
        match place.ty() {
            FieldType::List => self.begin_list(field).and_then(|()| self.end_list()),
            _ => text::set_from_text(self, &mut Vec::new(), field, default.as_bytes(), Rounding::Refused)
                .map_err(|_| self.refuse(field, ValueProblem::NotSet)),
        }
    }

    /// The number for a symbol that an enumeration lacks, if it has one for those here. A number written as text is none, and neither
    /// is not text.
    pub(super) fn unknown_number(&self, place: Place, symbol: &[u8]) -> Option<i64> {
        let field = self.format.fields().get(place.index()).filter(|_| self.fills_in)?;
        let is_number = str::from_utf8(symbol).is_ok_and(|symbol| symbol.trim().parse::<i64>().is_ok());
        field.unknown_number().filter(|_| !is_number && !symbol.trim_ascii().is_empty())
    }
}
