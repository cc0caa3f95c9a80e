//! Joins with reference tables: which conditions say the key that is looked up, and which filter the pairs.

use crossdock_format::{Field, FieldSpec, FieldType, Format};

use super::{BoundJoin, Joining, Side, Sides};
use crate::bind::cast;
use crate::error::{Position, QueryError};
use crate::expr::{CompareOp, Expr, Node};
use crate::program::{Output, Program};
use crate::stateful::plan::Planner;
use crate::stateful::program::{JoinKind, Operator, Port, StageInput, TableLookup};
use crate::stateful::rows::{self, Flow, Origin, Row};
use crate::stateful::table::ReferenceTable;

/// Whole numbers up to this one are floats exactly.
const MOST_EXACT: i128 = 1 << 53;

/// The conditions of such a join, by what they are good for.
struct LookupConditions {
    /// The values that are looked up, in the order of the table's key.
    keys: Vec<Expr>,
    /// On the rows before.
    left: Vec<Expr>,
    /// On pairs.
    others: Vec<Expr>,
}

impl Joining {
    /// Joins the rows so far with those of a reference table, which is stream `number` of FROM.
    pub(super) fn lookup(
        &self,
        planner: &mut Planner<'_>,
        (number, (join, table)): (usize, (&BoundJoin, &ReferenceTable)),
        (mut left, right): (Flow, Flow),
        after: &mut [Vec<Expr>],
    ) -> Result<Flow, QueryError> {
        let mut sorted = self.sorted_for_lookup((join, table), number, &right)?;
        for condition in &sorted.left {
            left.filter.push(planner.settled(left.placed(condition)?));
        }
        let (mut sides, places) = self.sides((number, join.kind), [left, right], &mut sorted.others, after);
        let mut keys = Vec::with_capacity(sorted.keys.len());
        for key in &sorted.keys {
            keys.push(sides.add(planner, (0, "key"), key)?);
        }
        let Sides { flows: [left, right], rows: [left_row, mut of_table], .. } = sides;
        add_read(&mut of_table, &right);
        let stage = planner.stages.len();
        let input = planner.connect(&left, left_row, Port { stage, input: 0 })?;
        let rows = pairs(&input, &of_table, &right.input, join.kind)?;
        let split = input.fields().len();
        let columns: Vec<Option<Expr>> = places
            .into_iter()
            .map(|place| place.map(|(input, at)| rows::field(&rows, if input == 0 { at } else { split + at })))
            .collect();
        let read: Vec<usize> = of_table.outputs.iter().filter_map(Output::plain_field).collect();
        debug_assert_eq!(read.len(), of_table.outputs.len(), "the columns of a table are copied");
        let mut conditions = seen(&right, &read, (&rows, split))?;
        for other in &sorted.others {
            conditions.push(planner.settled(rows::placed(other, &columns)?));
        }
        let mut lookup = TableLookup {
            kind: join.kind,
            table: table.name.clone(),
            format: table.format.clone(),
            keys,
            key: table.key.clone(),
            columns: read,
            condition: None,
        };
        if join.kind != JoinKind::Inner {
            lookup.condition = condition(planner, std::mem::take(&mut conditions), &rows);
        }
        let inputs = vec![StageInput { row: input, time: None, lateness_ns: 0, derived: None }];
        let mut flow = planner.stage(inputs, Operator::Lookup(lookup), rows);
        (flow.columns, flow.has_replaced) = (columns, left.gives_replaced());
        flow.filter.append(&mut conditions);
        for condition in after.get_mut(number - 1).map(std::mem::take).unwrap_or_default() {
            flow.filter.push(planner.settled(flow.placed(&condition)?));
        }
        Ok(flow)
    }

    /// Sorts the conditions of such a join, and refuses one that does not say the whole key.
    fn sorted_for_lookup(
        &self,
        (join, table): (&BoundJoin, &ReferenceTable),
        number: usize,
        right: &Flow,
    ) -> Result<LookupConditions, QueryError> {
        let mut keys: Vec<Option<Expr>> = vec![None; table.key.len()];
        let (mut left, mut others) = (Vec::new(), Vec::new());
        for condition in &join.conditions {
            if join.kind == JoinKind::Inner && self.side(condition, number) == Side::Left {
                left.push(condition.clone());
                continue;
            }
            let value = self.looked_up(condition, number, (right, table));
            match value.filter(|(place, _)| keys.get(*place).is_some_and(Option::is_none)) {
                Some((place, value)) => {
                    let key = fitting(value.clone(), (table, place), join.at)?;
                    keys.get_mut(place).into_iter().for_each(|of| *of = Some(key.clone()));
                }
                None => others.push(condition.clone()),
            }
        }
        if let Some(place) = keys.iter().position(Option::is_none) {
            return Err(self.without_key(number, (join, table), place));
        }
        Ok(LookupConditions { keys: keys.into_iter().flatten().collect(), left, others })
    }

    /// The place in the table's key that a condition is about, and the value that is looked up there, if it is such a condition.
    fn looked_up<'e>(
        &self,
        condition: &'e Expr,
        number: usize,
        (right, table): (&Flow, &ReferenceTable),
    ) -> Option<(usize, &'e Expr)> {
        let Node::Compare { op: CompareOp::Eq, left, right: other } = &condition.node else { return None };
        [(left, other), (other, left)].into_iter().find_map(|(column, value)| {
            let Node::Field(index) = column.node else { return None };
            let of_table = self.columns.get(index).is_some_and(|(stream, _)| *stream == number);
            let Node::Field(field) = right.columns.get(index).filter(|_| of_table)?.as_ref()?.node else { return None };
            let place = table.key.iter().position(|key| *key == field)?;
            matches!(self.side(value, number), Side::Left | Side::Neither).then_some((place, &**value))
        })
    }

    fn without_key(&self, number: usize, (join, table): (&BoundJoin, &ReferenceTable), place: usize) -> QueryError {
        let [left, right] = self.names(number);
        let key: Vec<&str> = table.key_names().collect();
        let equal: Vec<String> = key.iter().map(|key| format!("{left}.column = {right}.{key}")).collect();
        let message = format!(
            "the join with the reference table `{}` does not say which `{}` is looked up: {} its key",
            table.name,
            key.get(place).copied().unwrap_or_default(),
            if key.len() == 1 { "that is" } else { "it belongs to" }
        );
        QueryError::new(message, join.at).hint(format!("ON {}, and further conditions", equal.join(" AND ")))
    }
}

/// The value in a type whose values are equal to those of the key's column where their bytes in a key are; where it fits none, it is null,
/// and so the key of no row.
fn fitting(value: Expr, (table, place): (&ReferenceTable, usize), at: Option<Position>) -> Result<Expr, QueryError> {
    let Some(field) = table.key.get(place).and_then(|index| table.format.fields().get(*index)) else {
        debug_assert!(false, "a table's key has columns of its format");
        return Err(QueryError::new("the key of a table is missing", at));
    };
    let (from, to) = (value.ty, field.ty);
    match common(from, to) {
        Some(ty) if ty == from => Ok(value),
        Some(ty) => Ok(cast(value, ty).or_null()),
        None => {
            let Field { name, .. } = field;
            let message = format!(
                "the value that is looked up in `{name}`, the key of table `{}`, is {from}, and the key {to}",
                table.name
            );
            let ty = match to {
                FieldType::Decimal { bytes: 4, scale } => format!("decimal(9, {scale})"),
                FieldType::Decimal { bytes: 8, scale } => format!("decimal(18, {scale})"),
                FieldType::Decimal { scale, .. } => format!("decimal(38, {scale})"),
                ty => ty.to_string(),
            };
            Err(QueryError::new(message, at).hint(format!("CAST(value AS {ty}) is one of its type")))
        }
    }
}

/// The type in which a value is looked up in a key's column of a type; its own where no cast is needed. `None`: none of both would say
/// exactly which values are equal.
fn common(from: FieldType, to: FieldType) -> Option<FieldType> {
    let range = FieldType::integer_range;
    match (from, to) {
        (from, to) if from == to => Some(from),
        (from, FieldType::Enum { .. }) if from.is_text() => Some(from),
        (from, to) if from.is_text() && to.is_text() => Some(from),
        (FieldType::F32 | FieldType::F64, FieldType::F32 | FieldType::F64) => Some(from),
        (FieldType::Decimal { scale: of_value, .. }, FieldType::Decimal { scale, .. }) => match of_value {
            _ if of_value == scale => Some(from),
            _ => (of_value < scale).then_some(FieldType::Decimal { bytes: 16, scale }),
        },
        (FieldType::Decimal { .. }, FieldType::F32 | FieldType::F64) => Some(FieldType::F64),
        (from, FieldType::Decimal { scale, .. }) if from.is_integer() => Some(FieldType::Decimal { bytes: 16, scale }),
        (from, FieldType::F32 | FieldType::F64) => {
            let is_exact = |(least, most): (i128, i128)| least >= -MOST_EXACT && most <= MOST_EXACT;
            range(from).is_some_and(is_exact).then_some(FieldType::F64)
        }
        // Numbers with a sign are keys of one form, and those without one of another.
        (from, to) => match (range(from)?.0 < 0, range(to)?.0 < 0) {
            (has_sign, of_key) if has_sign == of_key => Some(from),
            (_, true) => Some(FieldType::I64),
            (_, false) => Some(FieldType::U64),
        },
    }
}

/// Adds the columns that the conditions on the table's rows read.
fn add_read(of_table: &mut Row, right: &Flow) {
    let mut read = vec![false; right.input.fields().len()];
    right.filter.iter().for_each(|condition| condition.mark_fields(&mut read));
    for (index, field) in right.input.fields().iter().enumerate() {
        if read.get(index) == Some(&true) {
            of_table.add(&field.name, rows::field(&right.input, index));
        }
    }
}

/// The conditions on the table's rows, over the stage's rows: `read` has the columns of the table in these, from `split` on.
fn seen(right: &Flow, read: &[usize], (rows, split): (&Format, usize)) -> Result<Vec<Expr>, QueryError> {
    let place = |index| read.iter().position(|of| *of == index).map(|at| rows::field(rows, split + at));
    let columns: Vec<Option<Expr>> = (0..right.input.fields().len()).map(place).collect();
    right.filter.iter().map(|condition| rows::placed(condition, &columns)).collect()
}

/// Conditions over the stage's rows as a program that only lets them pass.
fn condition(planner: &Planner<'_>, conditions: Vec<Expr>, rows: &Format) -> Option<Program> {
    let flow = Flow { filter: conditions, ..Flow::all(Origin::Stage(planner.stages.len()), rows.clone()) };
    (!flow.filter.is_empty()).then(|| planner.program("pairs", &flow, Vec::new(), rows.clone()))
}

/// The columns of the input, then those of the table; null where there may be no row of it.
fn pairs(input: &Format, of_table: &Row, table: &Format, kind: JoinKind) -> Result<Format, QueryError> {
    let of_input = input.fields().iter().map(Field::spec);
    let of_table = of_table.outputs.iter().map(|output| {
        let spec = rows::spec_of(&output.name, &output.expr, table);
        FieldSpec { nullable: spec.nullable || kind != JoinKind::Inner, ..spec }
    });
    let mut specs: Vec<FieldSpec> = of_input.chain(of_table).collect();
    let names = rows::unique(specs.iter().map(|spec| spec.name.as_str()));
    specs.iter_mut().zip(names).for_each(|(spec, name)| spec.name = name);
    rows::format_of(specs)
}
