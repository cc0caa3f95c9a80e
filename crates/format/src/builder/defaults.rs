//! What fields hold that are not set: their defaults.

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
        self.clear();
        if self.take_default(field) {
            self.keep_as_blank();
        }
    }

    /// Has every record begin as the open one is now.
    pub(super) fn keep_as_blank(&mut self) {
        if self.has_dead {
            self.compact();
        }
        (self.blank, self.required) = (self.bytes.as_slice().into(), self.missing.as_slice().into());
    }

    /// Gives the fields of the innermost open record that are never null their defaults.
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
    pub(crate) fn take_default(&mut self, field: usize) -> bool {
        let format = self.format.clone();
        let default = format.fields().get(field).filter(|_| self.fills_in).and_then(Field::default_text);
        default.is_some_and(|default| self.set_default(field, default).is_ok())
    }

    fn set_default(&mut self, field: usize, default: &str) -> Result<(), ValueError> {
        let place = self.place(field)?;
        match place.ty() {
            FieldType::List => self.begin_list(field).and_then(|()| self.end_list()),
            _ => text::set_from_text(self, &mut Vec::new(), field, default.as_bytes(), Rounding::Refused)
                .map_err(|_| self.refuse(field, ValueProblem::NotSet)),
        }
    }

    /// The number for symbols that an enumeration lacks, if it has one here.
    pub(super) fn unknown_number(&self, place: Place) -> Option<i64> {
        self.format.fields().get(place.index()).filter(|_| self.fills_in)?.unknown_number()
    }
}
