//! Records with fields behind those that they came with.

use crossdock_format::{FieldType, Format};
use crossdock_query::{EvalError, Interpreter, Output, Projection};

use crate::project::RowPlan;
use crate::warm::WarmPiece;

/// Makes copies of records with further fields of 8 bytes that are never null.
pub(super) struct Append {
    input: Format,
    output: Format,
    plan: RowPlan,
    interpreter: Interpreter,
    /// Where the new fields are, in bytes from the start of the record.
    places: Vec<usize>,
}

impl Append {
    /// Fields of these names and types, which take 8 bytes, behind those of `input`.
    ///
    /// # Errors
    /// Why there is no such format, in words.
    pub(super) fn new(input: &Format, fields: &[(&str, FieldType)]) -> Result<Append, String> {
        // The records of `SELECT *, 0 AS name`: the planner knows how every field is copied.
        let mut sql = "SELECT *".to_owned();
        for (name, ty) in fields {
            if input.field(name).is_some() {
                return Err(format!("the records have a field `{name}` already"));
            }
            sql.push_str(&format!(", CAST(0 AS {ty}) AS \"{}\"", name.replace('"', "\"\"")));
        }
        sql.push_str(" FROM records");
        let program =
            crossdock_query::parse(&sql).and_then(|select| select.plan(input)).map_err(|error| error.message)?;
        let Projection::Fields(outputs) = &program.projection else { return Err("no field is added".to_owned()) };
        let (output, copied) = (program.output.clone(), outputs.len().saturating_sub(fields.len()));
        let places = output.fields().iter().skip(copied).map(|field| field.offset as usize).collect();
        let plan = plan(outputs, copied, input, &output);
        Ok(Append { input: input.clone(), output, plan, interpreter: Interpreter::new(), places })
    }

    /// The format of what is made.
    pub(super) fn output(&self) -> &Format {
        &self.output
    }

    /// Reads through what it copies by, and writes where it copies to.
    pub(super) fn warm(&mut self, piece: &mut WarmPiece) {
        piece.touch_fields(&self.input);
        piece.touch(&self.places);
        self.plan.warm(piece);
    }

    /// A record with these values in the new fields.
    ///
    /// # Errors
    /// [`EvalError::RecordTooLong`].
    #[inline]
    pub(super) fn make(&mut self, record: &[u8], values: &[[u8; 8]]) -> Result<&[u8], EvalError> {
        let row = self.plan.make_mut(record, &self.input, &mut self.interpreter)?;
        for (&at, value) in self.places.iter().zip(values) {
            debug_assert!(at + 8 <= row.len(), "a row has its fields");
            if let Some(place) = row.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
                *place = *value;
            }
        }
        Ok(row)
    }
}

/// The new fields stay zero until their values are put in, unless the fields are set one by one: then all must be.
fn plan(outputs: &[Output], copied: usize, input: &Format, output: &Format) -> RowPlan {
    let plan = RowPlan::of(&outputs[..copied], input, output);
    if plan.is_by_value() { RowPlan::of(outputs, input, output) } else { plan }
}
