//! The parameters of native handlers: how they are documented, read from text and checked.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crossdock_format::Format;

use crate::handler::ParameterValues;
use crate::program::MakeError;

/// A parameter of a native handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// Its purpose, in one line.
    pub about: &'static str,
    /// The values that it takes.
    pub kind: ParameterKind,
    /// The value that it has if none is given, as text; `None`: one has to be given.
    pub default: Option<&'static str>,
    /// Whether its value can be changed while the handler runs. Else what the handler is depends on it, and another value
    /// takes another version of the handler.
    pub is_tunable: bool,
}

/// The values that a parameter takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterKind {
    /// A whole number within these bounds.
    Whole {
        /// The least.
        least: u64,
        /// The greatest.
        most: u64,
    },
    /// Any text.
    Text,
    /// Names of fields, with commas between them.
    Fields,
}

impl fmt::Display for ParameterKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParameterKind::Whole { least, most } => write!(f, "a whole number from {least} to {most}"),
            ParameterKind::Text => f.write_str("a text"),
            ParameterKind::Fields => f.write_str("names of fields, with commas between them"),
        }
    }
}

/// The values of a native handler's parameters, of each one that it has.
#[derive(Clone, Debug)]
pub struct Arguments {
    handler: Arc<str>,
    values: Vec<(&'static str, Argument)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Argument {
    Whole(u64),
    Text(String),
    Fields(Vec<String>),
}

impl Arguments {
    /// Reads the values of `parameters` from text.
    ///
    /// # Errors
    /// A name that no parameter has, a value that is missing or is none that its parameter takes.
    pub(crate) fn read(
        handler: &Arc<str>,
        parameters: &[Parameter],
        given: &BTreeMap<String, String>,
    ) -> Result<Arguments, MakeError> {
        let refuse = |parameter: &str, problem: String| MakeError::Parameter {
            handler: handler.to_string(),
            parameter: parameter.to_owned(),
            problem,
        };
        if let Some(unknown) = given.keys().find(|name| !parameters.iter().any(|known| known.name == **name)) {
            let known: Vec<&str> = parameters.iter().map(|known| known.name).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(refuse(unknown, format!("there is no such parameter; there are: {known}")));
        }
        let mut values = Vec::with_capacity(parameters.len());
        for Parameter { name, about, kind, default, .. } in parameters {
            let Some(text) = given.get(*name).map(String::as_str).or(*default) else {
                return Err(refuse(name, format!("its value is missing: {kind} ({about})")));
            };
            let value = kind.read(text).ok_or_else(|| refuse(name, format!("`{text}` is not {kind}")))?;
            values.push((*name, value));
        }
        Ok(Arguments { handler: handler.clone(), values })
    }

    /// A whole number; 0 if there is no such parameter.
    pub fn whole(&self, name: &str) -> u64 {
        match self.value(name) {
            Some(Argument::Whole(value)) => *value,
            _ => 0,
        }
    }

    /// A text; empty if there is no such parameter.
    pub fn text(&self, name: &str) -> &str {
        match self.value(name) {
            Some(Argument::Text(text)) => text,
            _ => "",
        }
    }

    /// Names of fields; none if there is no such parameter.
    pub fn names(&self, name: &str) -> &[String] {
        match self.value(name) {
            Some(Argument::Fields(names)) => names,
            _ => &[],
        }
    }

    /// The indices of the fields that a parameter names.
    ///
    /// # Errors
    /// A name that no field of the format has.
    pub fn fields(&self, name: &str, format: &Format) -> Result<Vec<usize>, MakeError> {
        let index = |field: &String| {
            format.field(field).ok_or_else(|| {
                let known: Vec<&str> = format.fields().iter().map(|field| field.name.as_str()).collect();
                self.refuse(name, format!("no field `{field}` in format {}; it has: {}", format.id(), known.join(", ")))
            })
        };
        self.names(name).iter().map(index).collect()
    }

    /// The refusal of a parameter's value.
    pub fn refuse(&self, parameter: &str, problem: impl Into<String>) -> MakeError {
        let (handler, parameter) = (self.handler.to_string(), parameter.to_owned());
        MakeError::Parameter { handler, parameter, problem: problem.into() }
    }

    /// Exchanges the values with those of `values`, if these are values of the same handler's parameters; whether they
    /// were. For [`Handler::set_parameters`](crate::Handler::set_parameters).
    pub fn exchange(&mut self, values: &mut ParameterValues) -> bool {
        match values.get_mut::<Arguments>() {
            Some(other) if other.handler == self.handler => {
                std::mem::swap(self, other);
                true
            }
            _ => false,
        }
    }

    /// The first of these parameters that cannot be changed while the handler runs and has another value in `other`.
    pub(crate) fn differs(&self, other: &Arguments, parameters: &[Parameter]) -> Option<&'static str> {
        let fixed = parameters.iter().filter(|parameter| !parameter.is_tunable).map(|parameter| parameter.name);
        fixed.into_iter().find(|name| self.value(name) != other.value(name))
    }

    fn value(&self, name: &str) -> Option<&Argument> {
        self.values.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }
}

impl ParameterKind {
    fn read(self, text: &str) -> Option<Argument> {
        match self {
            ParameterKind::Whole { least, most } => {
                let value = text.trim().parse().ok()?;
                (least..=most).contains(&value).then_some(Argument::Whole(value))
            }
            ParameterKind::Text => Some(Argument::Text(text.to_owned())),
            ParameterKind::Fields => {
                let names = text.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
                Some(Argument::Fields(names.collect()))
            }
        }
    }
}
