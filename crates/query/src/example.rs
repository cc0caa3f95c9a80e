//! A record that a program cannot compute, in words.

use std::fmt::Write as _;

use crossdock_format::{Record, Value};

use crate::expr::Expr;
use crate::interpret::{EvalError, Interpreter};
use crate::program::{Program, Projection};

/// The most fields that an example shows, and characters of each.
const MAX_FIELDS: usize = 4;
const MAX_CHARS: usize = 40;

impl Program {
    /// A record with a row error, in words: ``division by zero in `a / b` (a = 1, b = 0)``. The record has the program's input
    /// format.
    #[cold]
    pub fn example(&self, error: EvalError, record: &Record<'_>) -> String {
        let outputs = match &self.projection {
            Projection::All => &[][..],
            Projection::Fields(outputs) => outputs,
        };
        let mut interpreter = Interpreter::new();
        let mut exprs = self.filter.iter().chain(outputs.iter().map(|output| &output.expr));
        match exprs.find(|expr| interpreter.value(expr, record).is_err()) {
            Some(expr) => self.example_of(expr, error, record),
            None => error.to_string(),
        }
    }

    fn example_of(&self, expr: &Expr, error: EvalError, record: &Record<'_>) -> String {
        let mut text = format!("{error} in `{}`", expr.sql(&self.input));
        let mut read = vec![false; self.input.fields().len()];
        expr.mark_fields(&mut read);
        let fields = self.input.fields().iter().zip(read).enumerate().filter(|(_, (_, read))| *read).take(MAX_FIELDS);
        let values: Vec<String> =
            fields.map(|(index, (field, _))| format!("{} = {}", field.name, short(record.get(index)))).collect();
        if !values.is_empty() {
            let _ = write!(text, " ({})", values.join(", "));
        }
        text
    }
}

fn short(value: Value<'_>) -> String {
    let cut = |text: &str| match text.char_indices().nth(MAX_CHARS) {
        Some((at, _)) => format!("'{}…'", &text[..at]),
        None => format!("'{text}'"),
    };
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Float(value) => value.to_string(),
        Value::Text(text) => cut(&String::from_utf8_lossy(text)),
        Value::Enum { symbol: Some(symbol), .. } => cut(symbol),
        other => {
            let text = format!("{other:?}");
            text.chars().take(MAX_CHARS).collect()
        }
    }
}
