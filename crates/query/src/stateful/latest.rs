//! The state of a stream: the last record by a declared key, which `SNAPSHOT` reads.

use crossdock_format::{FieldSpec, FieldType, Format};

use super::plan::NO_FORMAT;
use super::program::{LatestByKey, Operator, Port, Stage, StageInput, StageOutput, StatefulProgram, StreamSource};
use super::rows;
use crate::bind;
use crate::error::QueryError;
use crate::expr::{Constant, Expr};
use crate::parse::Named;
use crate::program::Output;

/// The name of the last column of a state's rows, which says what a row is about; another where the stream has it.
const STEP: &str = "_step";

/// The declaration of a stream's state: the last record of each key is kept, within bounds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyedState {
    /// The stream.
    pub stream: String,
    /// The columns of the key.
    pub key: Vec<String>,
    /// The most keys; past that the one goes that had no record for the longest, and is counted.
    pub max_keys: u64,
    /// The most bytes of its records and keys, with what it takes to find them; past that the same.
    pub max_bytes: u64,
    /// How long a key is kept without a record, in ns; as long as there is room when absent.
    pub max_age_ns: Option<u64>,
}

impl KeyedState {
    /// Its content in words; in place of the text of a query.
    #[must_use]
    pub fn text(&self) -> String {
        format!("the last record of stream {} by ({})", self.stream, self.key.join(", "))
    }
}

/// The plan of a stream's state: one stage, whose rows are the records with one column more. An enumeration is a text there.
pub(super) fn plan(state: &KeyedState, formats: &[(&str, &Format)]) -> Result<StatefulProgram, QueryError> {
    let found = formats.iter().find(|(stream, _)| *stream == state.stream);
    let Some((stream, format)) = found else {
        return Err(QueryError::new(format!("stream `{}` has no format yet", state.stream), None).hint(NO_FORMAT));
    };
    let mut outputs = Vec::with_capacity(format.fields().len() + 1);
    let mut specs = Vec::with_capacity(format.fields().len() + 1);
    for (index, field) in format.fields().iter().enumerate() {
        let expr = rows::without_symbols(rows::field(format, index), format);
        specs.push(rows::spec_of(&field.name, &expr, format));
        outputs.push(Output { name: field.name.clone(), expr });
    }
    let numbered = (2..).map(|number| format!("{STEP}_{number}"));
    let step = std::iter::once(STEP.to_owned()).chain(numbered).find(|name| format.field(name).is_none());
    let step = step.unwrap_or_default();
    specs.push(FieldSpec::new(step.clone(), FieldType::U8));
    outputs.push(Output { name: step, expr: Expr::constant(Constant::Int(0), FieldType::U8) });
    let row = rows::format_of(specs)?;
    let keys = key_columns(&state.key, format)?;
    let sql = state.text();
    let program = rows::program_of((stream, &sql, &[]), (format, Vec::new()), (outputs, row.clone()));
    let unchanged = (0..row.fields().len()).zip(row.fields());
    let unchanged = unchanged.map(|(index, of)| Output { name: of.name.clone(), expr: rows::field(&row, index) });
    let then = rows::program_of(("rows", &sql, &[]), (&row, Vec::new()), (unchanged.collect(), row.clone()));
    let port = Port { stage: 0, input: 0 };
    let latest =
        LatestByKey { keys, max_keys: state.max_keys, max_bytes: state.max_bytes, max_age_ns: state.max_age_ns };
    let input = StageInput { row: row.clone(), time: None, lateness_ns: 0, derived: None };
    let outputs = vec![StageOutput { then, to: None }];
    let stage = Stage { inputs: vec![input], operator: Operator::Latest(latest), rows: row, outputs };
    Ok(StatefulProgram {
        sql,
        stages: vec![stage],
        sources: vec![StreamSource { stream: state.stream.clone(), port, program }],
        max_state_bytes: usize::try_from(state.max_bytes).unwrap_or(usize::MAX),
        changes: false,
    })
}

/// The columns of a key, found by the rule for columns of a query.
fn key_columns(key: &[String], format: &Format) -> Result<Vec<usize>, QueryError> {
    let names: Vec<&str> = format.fields().iter().map(|field| field.name.as_str()).collect();
    let mut columns = Vec::with_capacity(key.len());
    for name in key {
        let named = Named { name, is_quoted: false, at: None };
        let spelt = named.found(names.iter().copied()).map_err(|_| several(name))?.unwrap_or(name);
        let Some(column) = format.field(spelt) else {
            let near = bind::nearest(name, &names).map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
            let error = QueryError::new(format!("the key has column `{name}`, which the stream has not"), None);
            return Err(error.hint(format!("{near}known: {}", bind::listed(&names))));
        };
        if format.fields().get(column).is_some_and(|field| field.ty == FieldType::List) {
            let message = format!("column `{name}` of the key is a list, and lists are not compared");
            return Err(QueryError::new(message, None).hint("a key has columns of single values"));
        }
        if columns.contains(&column) {
            return Err(
                QueryError::new(format!("column `{name}` is in the key twice"), None).hint("leave one of them out")
            );
        }
        columns.push(column);
    }
    match columns.is_empty() {
        true => Err(QueryError::new("the key has no column", None).hint("name one, such as `--key flight_id`")),
        false => Ok(columns),
    }
}

fn several(name: &str) -> QueryError {
    let error = QueryError::new(format!("several columns differ from `{name}` of the key in case only"), None);
    error.hint("write the name as the stream has it")
}
