//! A query once its names and types are settled, and how that is shown.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crossdock_format::{Field, FieldType, Format, Record, RecordBuilder};
use serde::{Deserialize, Serialize};

use crate::bind;
use crate::error::QueryError;
use crate::expr::{Expr, Node};
use crate::interpret::{EvalError, Interpreter, refused};

/// A query, planned for one format. In expressions a value of an enumeration counts as the text of its symbol, or as NULL if
/// it has none; a list is an operand of the functions and comparisons that take one. A field that is selected as it is keeps its type and is copied,
/// whatever it is. Holds no names but those of its output.
#[derive(Clone, PartialEq, Debug)]
pub struct Program {
    /// The stream that the query reads.
    pub stream: String,
    /// The text that it was planned from.
    pub sql: String,
    /// The format of the records that it reads.
    pub input: Format,
    /// The conditions that WHERE joins by AND, in the order in which they are computed. Empty: every record passes.
    pub filter: Vec<Expr>,
    /// The output for a record that passes.
    pub projection: Projection,
    /// The format of what leaves; the input's own for [`Projection::All`].
    pub output: Format,
    /// Indices of the input's fields that the filter or a list of new fields reads, rising.
    pub reads: Vec<usize>,
    /// The names of the query's parameters, each once, in the order in which they first stand there.
    pub parameters: Vec<String>,
}

/// The output for a record that passes.
#[derive(Clone, PartialEq, Debug)]
pub enum Projection {
    /// The record, as it is.
    All,
    /// A record of these fields, in this order.
    Fields(Vec<Output>),
}

/// One field of the output.
#[derive(Clone, PartialEq, Debug)]
pub struct Output {
    /// Its name.
    pub name: String,
    /// Its value.
    pub expr: Expr,
}

impl Output {
    /// The index of the input's field that this is, if it is one and nothing is computed: it is then copied as it is,
    /// whatever its type.
    pub fn plain_field(&self) -> Option<usize> {
        match self.expr.node {
            Node::Field(index) => Some(index),
            _ => None,
        }
    }
}

impl Program {
    /// Whether the record passes WHERE. A record with a row error does not; [`Interpreter::matches`] reports the error.
    pub fn matches(&self, record: &Record<'_>) -> bool {
        Interpreter::new().matches(self, record).unwrap_or(false)
    }

    /// Makes the output row in `row`, a builder of [`Program::output`]'s format. Does not ask WHERE.
    ///
    /// # Errors
    /// A row error: the record is then to be counted and dropped.
    pub fn project(&self, record: &Record<'_>, row: &mut RecordBuilder) -> Result<(), EvalError> {
        Interpreter::new().project(self, record, row)
    }

    /// The fields that each field of the output is made of, by their indices in the input, and whether some record has a
    /// row error there.
    pub fn dependencies(&self) -> Vec<(Vec<usize>, bool)> {
        match &self.projection {
            Projection::All => (0..self.input.fields().len()).map(|index| (vec![index], false)).collect(),
            Projection::Fields(outputs) => {
                let reads = |expr| read_by(&self.input, std::iter::once(expr));
                outputs.iter().map(|Output { expr, .. }| (reads(expr), expr.is_fallible())).collect()
            }
        }
    }

    /// The same program over records of a format that has the fields it then reads, by name and type, wherever they are;
    /// making only some of its fields: a flag a field. `None` if one that it reads is not there, if none is to be made, or
    /// if it makes none but lets records pass unchanged.
    #[must_use]
    pub fn narrowed(&self, input: &Format, makes: &[bool]) -> Option<Program> {
        let other = |index: usize| {
            let field = self.input.fields().get(index);
            debug_assert!(field.is_some(), "a program reads fields of its input");
            let field = field?;
            let index = input.field(&field.name)?;
            let same = input.fields().get(index).is_some_and(|f| f.spec() == field.spec());
            same.then_some(index)
        };
        let Projection::Fields(outputs) = &self.projection else { return None };
        let (mut made, mut specs, mut filter) = (Vec::new(), Vec::new(), self.filter.clone());
        for ((output, field), _) in outputs.iter().zip(self.output.fields()).zip(makes).filter(|(_, makes)| **makes) {
            let mut output = output.clone();
            output.expr.exchange_fields(&other)?;
            made.push(output);
            specs.push(field.spec());
        }
        filter.iter_mut().try_for_each(|condition| condition.exchange_fields(&other))?;
        let (projection, output) = (Projection::Fields(made), Format::natural(specs).ok()?);
        let reads = reads(input, &filter, &projection);
        Some(Program { input: input.clone(), filter, projection, output, reads, ..self.clone() })
    }

    /// The program over the records that `first` reads, as this one would run over what `first` makes of them; `first` only lets
    /// records pass and copies fields. `None` if it computes some.
    pub(crate) fn behind(self, first: &Program) -> Option<Program> {
        let source = |index: usize| match &first.projection {
            Projection::All => Some(index),
            Projection::Fields(outputs) => outputs.get(index).and_then(Output::plain_field),
        };
        let mut own = self.filter;
        own.iter_mut().try_for_each(|condition| condition.exchange_fields(&source))?;
        let passes_nothing = own.first().is_some_and(Expr::is_never_true);
        let before = if passes_nothing { &[][..] } else { &first.filter[..] };
        let filter: Vec<Expr> = before.iter().cloned().chain(own).collect();
        let projection = match self.projection {
            Projection::All => first.projection.clone(),
            Projection::Fields(mut outputs) => {
                outputs.iter_mut().try_for_each(|output| output.expr.exchange_fields(&source))?;
                Projection::Fields(outputs)
            }
        };
        let reads = reads(&first.input, &filter, &projection);
        Some(Program { input: first.input.clone(), filter, projection, reads, ..self })
    }

    /// The same program with other values of its parameters, as text, by name. The types that they have at their places
    /// stay, and with them the format of what leaves.
    ///
    /// # Errors
    /// A parameter without a value, a name that no parameter has, a value that does not fit its type; with its place in
    /// the text.
    pub fn with_values(&self, values: &BTreeMap<String, String>) -> Result<Program, QueryError> {
        let mut program = self.clone();
        let outputs = match &mut program.projection {
            Projection::All => &mut [][..],
            Projection::Fields(outputs) => outputs,
        };
        let exprs = program.filter.iter_mut().chain(outputs.iter_mut().map(|output| &mut output.expr));
        bind::set(&self.parameters, exprs, values).map_err(|error| error.over(&self.sql))?;
        Ok(program)
    }

    /// The parameters and the types that they have, at each place where one stands and was not left out, in order.
    pub fn parameter_types(&self) -> Vec<(&str, FieldType)> {
        fn add<'e>(expr: &'e Expr, types: &mut Vec<(&'e str, FieldType)>) {
            if let Node::Parameter(parameter) = &expr.node {
                types.push((&parameter.name, expr.ty));
            }
            expr.operands().into_iter().for_each(|operand| add(operand, types));
        }
        let mut types = Vec::new();
        self.filter.iter().for_each(|condition| add(condition, &mut types));
        self.outputs().iter().for_each(|output| add(&output.expr, &mut types));
        types
    }

    /// The fields that are made; none where records leave unchanged.
    fn outputs(&self) -> &[Output] {
        match &self.projection {
            Projection::All => &[],
            Projection::Fields(outputs) => outputs,
        }
    }

    /// Whether WHERE is known to be never true, so that no record passes.
    pub fn passes_nothing(&self) -> bool {
        self.filter.first().is_some_and(Expr::is_never_true)
    }

    /// The plan in a form that can be stored and sent; its `Display` is for people.
    pub fn explain(&self) -> Explain {
        let field = |field: &Field| ExplainedField {
            name: field.name.clone(),
            ty: field.ty.to_string(),
            nullable: field.nullable,
            from: None,
        };
        let output = match &self.projection {
            Projection::All => self.output.fields().iter().map(field).collect(),
            Projection::Fields(outputs) => {
                let from = outputs.iter().map(|output| Some(output.expr.sql(&self.input).to_string()));
                let fields = self.output.fields().iter().zip(from);
                fields.map(|(of, from)| ExplainedField { from, ..field(of) }).collect()
            }
        };
        Explain {
            stream: self.stream.clone(),
            input_format: self.input.id().to_string(),
            filter: self.filter.iter().map(|condition| condition.sql(&self.input).to_string()).collect(),
            passes_nothing: self.passes_nothing(),
            reads: self.reads.iter().filter_map(|&index| self.input.fields().get(index)).map(field).collect(),
            whole_records: matches!(self.projection, Projection::All),
            output_format: self.output.id().to_string(),
            output,
            row_errors_possible: self.is_fallible(),
        }
    }

    /// Whether a record can have a row error.
    pub fn is_fallible(&self) -> bool {
        let outputs = self.outputs().iter().map(|output| &output.expr);
        self.filter.iter().chain(outputs).any(Expr::is_fallible)
    }
}

impl Interpreter {
    /// Whether the record passes the program's WHERE.
    ///
    /// # Errors
    /// The row error of the first condition that has one.
    pub fn matches(&mut self, program: &Program, record: &Record<'_>) -> Result<bool, EvalError> {
        for condition in &program.filter {
            if self.holds(condition, record)? != Some(true) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Makes the output row of a record in `row`, a builder of the program's output format. Does not ask WHERE.
    ///
    /// # Errors
    /// The first row error; what `row` then holds is of no use.
    pub fn project(
        &mut self,
        program: &Program,
        record: &Record<'_>,
        row: &mut RecordBuilder,
    ) -> Result<(), EvalError> {
        row.clear();
        match &program.projection {
            Projection::All => row.copy(record).map_err(|error| refused(&error))?,
            Projection::Fields(outputs) => {
                for (index, output) in outputs.iter().enumerate() {
                    self.set(&output.expr, record, row, index)?;
                }
            }
        }
        Ok(())
    }
}

/// Indices of the input's fields that a filter or a list of new fields reads, rising.
pub(crate) fn reads(input: &Format, filter: &[Expr], projection: &Projection) -> Vec<usize> {
    let outputs = match projection {
        Projection::All => &[][..],
        Projection::Fields(outputs) => outputs,
    };
    read_by(input, filter.iter().chain(outputs.iter().map(|output| &output.expr)))
}

/// Indices of the input's fields that expressions read, rising.
fn read_by<'e>(input: &Format, exprs: impl Iterator<Item = &'e Expr>) -> Vec<usize> {
    let mut read = vec![false; input.fields().len()];
    exprs.for_each(|expr| expr.mark_fields(&mut read));
    read.iter().enumerate().filter(|(_, read)| **read).map(|(index, _)| index).collect()
}

/// A plan as it is shown: the conditions, the fields read, what leaves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explain {
    /// The stream.
    pub stream: String,
    /// The id of the format that is read.
    pub input_format: String,
    /// The conditions that must all be TRUE, as SQL, in the order in which they are computed.
    pub filter: Vec<String>,
    /// Whether no record can pass.
    pub passes_nothing: bool,
    /// The fields that are read.
    pub reads: Vec<ExplainedField>,
    /// Whether records leave as they came, not copied.
    pub whole_records: bool,
    /// The id of the output's format.
    pub output_format: String,
    /// The fields of the output.
    pub output: Vec<ExplainedField>,
    /// Whether some record can have a row error (overflow, division by zero, a CAST that cannot be done, a
    /// function without a result) and be dropped.
    pub row_errors_possible: bool,
}

/// A field in an [`Explain`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainedField {
    /// Its name.
    pub name: String,
    /// Its type.
    #[serde(rename = "type")]
    pub ty: String,
    /// Whether it can be null.
    pub nullable: bool,
    /// The expression that it holds, as SQL; absent for a field of a record that leaves as it came, or is only read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}

impl std::fmt::Display for Explain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "stream   {} (format {})", self.stream, self.input_format)?;
        let mut label = "filter ";
        if self.filter.is_empty() {
            writeln!(f, "filter   every record passes")?;
        }
        for condition in &self.filter {
            writeln!(f, "{label}  {condition}")?;
            label = "   and ";
        }
        if self.passes_nothing {
            writeln!(f, "         no record can pass")?;
        }
        let mut reads = String::new();
        for field in &self.reads {
            let separator = if reads.is_empty() { "" } else { ", " };
            write!(reads, "{separator}{} {}{}", field.name, field.ty, if field.nullable { " null" } else { "" })?;
        }
        writeln!(f, "reads    {}", if reads.is_empty() { "nothing" } else { &reads })?;
        let kind = if self.whole_records { "records leave as they come" } else { "new records" };
        writeln!(f, "output   {kind} (format {})", self.output_format)?;
        let new_fields = if self.whole_records { &[][..] } else { &self.output };
        for field in new_fields {
            write!(f, "         {} {}{}", field.name, field.ty, if field.nullable { " null" } else { "" })?;
            match &field.from {
                Some(from) if *from != field.name => writeln!(f, " = {from}")?,
                _ => writeln!(f)?,
            }
        }
        if self.row_errors_possible {
            writeln!(
                f,
                "errors   a record whose values overflow, divide by zero, do not cast or have no result is counted and dropped"
            )?;
        }
        Ok(())
    }
}
