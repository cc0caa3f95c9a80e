//! Makes a failing case smaller for as long as it fails: fewer rows, less of the query, fewer columns, simpler values.

use crate::case::{Case, Values};
use crate::duck::Duck;
use crate::ours::{Compared, Failure, judge};
use crate::spec::Spec;

/// A failing query over the rows of a case, DuckDB's rows for it (none if DuckDB has an error), and the failure.
pub(crate) struct Failing {
    pub(crate) case: Case,
    pub(crate) expected: Vec<Values>,
    pub(crate) failure: Failure,
    spec: Spec,
    theirs: String,
}

/// Smaller queries that DuckDB gets at a time; the first that still fails is taken.
const AT_A_TIME: usize = 32;

/// Changes that are tried for one failure, at most.
const MOST_TRIES: usize = 4000;

impl Failing {
    /// The failing case, if the query fails over these rows.
    pub(crate) fn of(rows: &Case, spec: &Spec, answer: &Result<Vec<Values>, String>) -> Result<Compared, Box<Failing>> {
        let (case, theirs) = spec.texts().over(rows);
        let (failure, expected) = match answer {
            Ok(expected) => match judge(&case, expected) {
                Ok(compared) => return Ok(compared),
                Err(failure) => (failure, expected.clone()),
            },
            Err(why) => (Failure::Duck(format!("{why}\n{theirs}")), Vec::new()),
        };
        Err(Box::new(Failing { case, expected, failure, spec: spec.clone(), theirs }))
    }

    /// DuckDB's query.
    pub(crate) fn theirs(&self) -> &str {
        &self.theirs
    }

    /// The smallest case that was found to fail in the same way.
    pub(crate) fn shrunk(mut self, duck: &mut Duck) -> Failing {
        let mut tries = MOST_TRIES;
        loop {
            let before = tries;
            let is_smaller = self.with_less(duck, &mut tries)
                | self.with_fewer_rows(duck, &mut tries)
                | self.with_other_rows(duck, &mut tries);
            if !is_smaller || tries == 0 || tries == before {
                return self;
            }
        }
    }

    /// Takes smaller queries as long as one fails.
    fn with_less(&mut self, duck: &mut Duck, tries: &mut usize) -> bool {
        let mut is_smaller = false;
        'again: loop {
            for specs in self.spec.smaller().chunks(AT_A_TIME) {
                if *tries == 0 {
                    return is_smaller;
                }
                *tries = tries.saturating_sub(specs.len());
                let queries: Vec<String> = specs.iter().map(|spec| spec.texts().theirs).collect();
                let answers = duck.ask(&self.case, &queries);
                let failing = specs.iter().zip(&answers).find_map(|(spec, answer)| {
                    Failing::of(&self.case, spec, answer).err().filter(|failing| failing.failure.is_like(&self.failure))
                });
                if let Some(failing) = failing {
                    *self = *failing;
                    is_smaller = true;
                    continue 'again;
                }
            }
            return is_smaller;
        }
    }

    /// Takes these rows if the query fails over them.
    fn take(&mut self, case: &Case, duck: &mut Duck, tries: &mut usize) -> bool {
        *tries = tries.saturating_sub(1);
        let answers = duck.ask(case, std::slice::from_ref(&self.theirs));
        let failing = Failing::of(case, &self.spec, &answers[0]).err();
        match failing.filter(|failing| failing.failure.is_like(&self.failure)) {
            Some(failing) => {
                *self = *failing;
                true
            }
            None => false,
        }
    }

    /// Leaves out halves of the rows, quarters, and so on to single ones.
    fn with_fewer_rows(&mut self, duck: &mut Duck, tries: &mut usize) -> bool {
        let mut is_smaller = false;
        let mut size = self.case.rows.len().div_ceil(2);
        while size > 0 {
            let mut at = 0;
            while at < self.case.rows.len() && *tries > 0 {
                let mut less = self.case.clone();
                less.rows.drain(at..(at + size).min(less.rows.len()));
                if self.take(&less, duck, tries) {
                    is_smaller = true;
                } else {
                    at += size;
                }
            }
            size = if size == 1 { 0 } else { size.div_ceil(2) };
        }
        is_smaller
    }

    /// Leaves out columns and streams, and puts nulls in the place of values.
    fn with_other_rows(&mut self, duck: &mut Duck, tries: &mut usize) -> bool {
        let mut is_smaller = false;
        for stream in (0..self.case.streams.len()).rev() {
            if self.case.streams.len() > 1 && self.case.rows.iter().all(|(of, _)| *of != stream) {
                let mut less = self.case.clone();
                less.streams.remove(stream);
                less.rows.iter_mut().for_each(|(of, _)| *of -= usize::from(*of > stream));
                if self.take(&less, duck, tries) {
                    is_smaller = true;
                    continue;
                }
            }
            // The first column of a foreign layout says which others are null.
            let first = usize::from(self.case.streams[stream].layout.is_some());
            for column in (first..self.case.streams[stream].columns.len()).rev() {
                if self.case.streams[stream].columns.len() > 1 && *tries > 0 {
                    is_smaller |= self.take(&without(&self.case, stream, column), duck, tries);
                }
            }
        }
        for row in 0..self.case.rows.len() {
            let (stream, values) = self.case.rows[row].clone();
            for (column, value) in values.iter().enumerate() {
                let may_be_null = self.case.streams[stream].columns[column].contains(" null");
                if value.is_some() && may_be_null && *tries > 0 {
                    let mut less = self.case.clone();
                    less.rows[row].1[column] = None;
                    is_smaller |= self.take(&less, duck, tries);
                }
            }
            is_smaller |= self.with_shorter_lists(row, duck, tries);
        }
        is_smaller
    }

    /// Leaves out elements of the lists of a row.
    fn with_shorter_lists(&mut self, row: usize, duck: &mut Duck, tries: &mut usize) -> bool {
        let mut is_smaller = false;
        for column in 0..self.case.rows[row].1.len() {
            let mut at = 0;
            while *tries > 0 {
                let (stream, values) = &self.case.rows[row];
                let is_list = self.case.streams[*stream].columns[column].contains("[]");
                let list = values[column].as_deref().filter(|_| is_list);
                let mut elements: Vec<serde_json::Value> =
                    list.map_or(Vec::new(), |list| serde_json::from_str(list).unwrap());
                if at >= elements.len() {
                    break;
                }
                elements.remove(at);
                let mut less = self.case.clone();
                less.rows[row].1[column] = Some(serde_json::to_string(&elements).unwrap());
                match self.take(&less, duck, tries) {
                    true => is_smaller = true,
                    false => at += 1,
                }
            }
        }
        is_smaller
    }
}

fn without(case: &Case, stream: usize, column: usize) -> Case {
    let mut less = case.clone();
    less.streams[stream].columns.remove(column);
    for (_, values) in less.rows.iter_mut().filter(|(of, _)| *of == stream) {
        values.remove(column);
    }
    less
}
