//! What fields hold that are not set: their defaults.

use super::{Place, RecordBuilder, ValueError, ValueProblem};
use crate::field::{Field, FieldType};
use crate::format::Format;
use crate::spec::FieldSpec;
use crate::text::{self, Rounding};

impl Field {
    /// Whether its default, if it has one, is a value of it.
    pub(crate) fn is_default_valid(&self) -> bool {
        let Some(default) = self.default_text() else { return true };
        // Its own format: what the field lies in is not laid out yet.
        let alone = Format::natural([FieldSpec::new("value", self.type_spec())]);
        alone.is_ok_and(|format| RecordBuilder::new(&format).set_default(0, default).is_ok())
    }
}

impl RecordBuilder {
    /// A builder for what is read from elsewhere: fields that are not set have their defaults, and so have those that would be
    /// null and may not be. Of nested records that may be null this holds where they are there, and for fields that are never
    /// null.
    pub(crate) fn with_defaults(format: &Format) -> Self {
        let mut builder = Self::new(format);
        builder.fills_in = builder.format.layout().has_any_defaults;
        if builder.format.layout().has_defaults {
            builder.set_defaults();
            (builder.blank, builder.required) = (builder.bytes.as_slice().into(), builder.missing.as_slice().into());
        }
        builder
    }

    /// Gives the fields of the innermost open record their defaults, but for those in nested records that may be null.
    pub(super) fn set_defaults(&mut self) {
        let format = self.format.clone();
        for (index, field) in format.fields().iter().enumerate() {
            let is_within = Place::of(&format, index).is_some_and(|place| place.cell.group != 0);
            if let Some(default) = field.default_text().filter(|_| !is_within) {
                let set = self.set_default(index, default);
                debug_assert!(set.is_ok(), "the default of `{}` was checked with its format", field.name);
            }
        }
    }

    /// Gives a field its default, if it has one here; whether it has.
    #[cold]
    pub(super) fn take_default(&mut self, field: usize) -> bool {
        if !self.fills_in {
            return false;
        }
        let format = self.format.clone();
        let default = format.fields().get(field).and_then(Field::default_text);
        default.is_some_and(|default| self.set_default(field, default).is_ok())
    }

    fn set_default(&mut self, field: usize, default: &str) -> Result<(), ValueError> {
        let place = self.place(field)?;
        match place.ty() {
            FieldType::List if default.trim() != "[]" => Err(self.refuse(field, ValueProblem::NotSet)),
            FieldType::List => self.begin_list(field).and_then(|()| self.end_list()),
            _ => text::set_from_text(self, &mut Vec::new(), field, default.as_bytes(), Rounding::Refused)
                .map_err(|_| self.refuse(field, ValueProblem::NotSet)),
        }
    }
}
