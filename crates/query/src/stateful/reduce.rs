//! The part of a query with state that needs none, over one of its streams: what the query reads of the records that it may take. It can
//! run apart from the query, where the records come, so that fewer and smaller ones go on. The query runs unchanged over what it lets
//! pass, also the conditions again, so its results do not depend on how much that is.

use crossdock_format::{FieldSpec, Format};

use super::program::Port;
use super::rows::field;
use crate::expr::Expr;
use crate::program::{Output, Program, Projection, reads};

/// The reduction for the programs by which a query reads records of one stream and format: the conditions that all of them begin with and
/// that have no row error for any record, and the fields that any of them reads. `None` if it would let all records pass as they come.
#[must_use]
pub fn reduction(readers: &[(Port, Program)]) -> Option<Program> {
    let (_, first) = readers.first()?;
    if readers.iter().any(|(_, reader)| reader.input != first.input || !reader.parameters.is_empty()) {
        return None;
    }
    let filter: Vec<Expr> = sure(first).filter(|condition| in_all(readers, condition)).cloned().collect();
    let made = made(readers, &first.input);
    if filter.is_empty() && made.is_none() {
        return None;
    }
    let (projection, output) = match made {
        Some((outputs, output)) => (Projection::Fields(outputs), output),
        None => (Projection::All, first.input.clone()),
    };
    let reads = reads(&first.input, &filter, &projection);
    Some(Program { filter, projection, output, reads, ..first.clone() })
}

/// The conditions that are computed before any that may have a row error: a record that does not meet them has none.
fn sure(reader: &Program) -> impl Iterator<Item = &Expr> {
    reader.filter.iter().take_while(|condition| !condition.is_fallible())
}

fn in_all(readers: &[(Port, Program)], condition: &Expr) -> bool {
    readers.iter().all(|(_, reader)| sure(reader).any(|other| other == condition))
}

/// The fields that are read, in the order of the format, and a format of them; `None` where all are.
fn made(readers: &[(Port, Program)], input: &Format) -> Option<(Vec<Output>, Format)> {
    if readers.iter().any(|(_, reader)| matches!(reader.projection, Projection::All)) {
        return None;
    }
    let fields = input.fields();
    let mut read: Vec<usize> = readers.iter().flat_map(|(_, reader)| reader.reads.iter().copied()).collect();
    read.sort_unstable();
    read.dedup();
    if read.is_empty() {
        // Records have a field, even if nobody reads one.
        read.push(fields.iter().position(|field| !field.ty.is_variable()).unwrap_or(0));
    }
    // Fields of nested records stay where they are.
    let is_plain = |index: &usize| fields.get(*index).is_some_and(|field| !field.name.contains('.'));
    if read.len() == fields.len() || !read.iter().all(is_plain) {
        return None;
    }
    let specs: Vec<FieldSpec> = read.iter().filter_map(|index| Some(fields.get(*index)?.spec())).collect();
    let output = Format::natural(specs).ok()?;
    let outputs = read.iter().filter_map(|index| {
        let name = fields.get(*index)?.name.clone();
        Some(Output { name, expr: field(input, *index) })
    });
    Some((outputs.collect(), output))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stateful::{Query, parse_query};
    use std::collections::BTreeMap;

    /// The operators of the reduction of stream `A` for a query.
    fn reduced(sql: &str) -> Option<Vec<String>> {
        let schema = "carrier string\nts timestamp\nlate i32\nnote string\nother i64 null\n";
        let format = Format::parse_schema(schema).unwrap();
        let Query::Stateful(query) = parse_query(sql).unwrap() else { panic!("{sql} keeps no state") };
        let values = BTreeMap::new();
        let program = query.plan(&[("A", &format), ("B", &format)], &values).unwrap();
        let readers = query.readers(&program, "A", &format, &values).unwrap();
        let line = |of: crate::PlanOperator| format!("{} {}", of.kind.word(), of.text);
        reduction(&readers).map(|program| program.operators().into_iter().map(line).collect())
    }

    #[test]
    fn conditions_without_row_errors_and_the_fields_that_are_read_are_taken_out() {
        let of_group = "SELECT carrier, COUNT(*) AS n FROM A WHERE late > 3 GROUP BY carrier";
        assert_eq!(reduced(of_group).unwrap(), ["project carrier, late", "filter late > 3", "stream A"]);
        // Behind one that may have a row error none is, which that error would otherwise not reach.
        let divides = "SELECT carrier, COUNT(*) AS n FROM A WHERE 10 / late > 3 AND other = 2 GROUP BY carrier";
        let listed = reduced(divides).unwrap();
        assert!(!listed.iter().any(|line| line.contains('/')), "{listed:?}");
        assert_eq!(listed[0], "project carrier, late, \"other\" AS other");
        assert_eq!(reduced("SELECT COUNT(*) AS n FROM A").unwrap()[0], "project ts");
    }

    #[test]
    fn a_stream_that_is_read_twice_is_reduced_by_what_both_places_have() {
        let joined = "SELECT a.carrier FROM A a JOIN A b ON a.carrier = b.carrier WHERE a.late > 3 AND b.late > 3";
        let listed = reduced(joined).unwrap();
        assert_eq!(listed, ["project carrier, late", "filter late > 3", "stream A"]);
        let differ = "SELECT a.carrier FROM A a JOIN A b ON a.carrier = b.carrier WHERE a.late > 3 AND b.late > 4";
        assert_eq!(reduced(differ).unwrap(), ["project carrier, late", "stream A"]);
    }

    #[test]
    fn a_query_that_takes_all_there_is_has_no_reduction() {
        assert_eq!(reduced("SELECT *, ROW_NUMBER() OVER (PARTITION BY carrier) AS n FROM A"), None);
    }
}
