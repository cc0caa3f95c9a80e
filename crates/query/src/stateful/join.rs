//! Joins: which of the conditions of ON and WHERE make the key, the bounds of time, or a filter of one side, and the stages, from left to
//! right.

mod lookup;

use crossdock_format::{FieldSpec, FieldType, Format};

use super::plan::{Planner, is_time};
use super::program::{AsofJoin, DerivedTime, IntervalJoin, JoinKind, Operator, Port, StageInput};
use super::rows::{self, Flow, Origin, Row};
use super::table::ReferenceTable;
use crate::bind::{arithmetic, cast, common_type, is_null};
use crate::error::{Position, QueryError};
use crate::expr::{ArithmeticOp, CompareOp, Constant, Expr, Node};
use crate::function::Prepared;
use crate::program::Program;

/// A join of FROM, its conditions bound over the columns of all streams.
pub(super) struct BoundJoin {
    pub(super) kind: JoinKind,
    pub(super) is_asof: bool,
    /// RIGHT JOIN: its left side are the rows of its own stream.
    pub(super) is_mirrored: bool,
    pub(super) conditions: Vec<Expr>,
    pub(super) at: Option<Position>,
    /// The reference table whose rows are looked up, if it is one.
    pub(super) table: Option<ReferenceTable>,
}

/// The joins of one FROM.
pub(super) struct Joining {
    /// One for each stream but the first.
    pub(super) joins: Vec<BoundJoin>,
    /// WHERE.
    pub(super) conditions: Vec<Expr>,
    /// The columns that are read behind the joins.
    pub(super) wanted: Vec<bool>,
    /// Each column's stream, by number, and name.
    pub(super) columns: Vec<(usize, String)>,
    /// How the streams are called.
    pub(super) called: Vec<String>,
    /// With one, the rows of an ASOF join wait for the latest row of the other stream.
    pub(super) lateness_ns: Option<u64>,
}

/// The sides of a join that an expression reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    Neither,
    Left,
    Right,
    Both,
}

/// The conditions of one join, by what they are good for.
#[derive(Default)]
struct Sorted {
    /// Equal, of the left and the right side.
    keys: Vec<(Expr, Expr)>,
    /// The times of the left and the right side.
    times: Option<(Expr, Expr)>,
    least: Option<i64>,
    greatest: Option<i64>,
    /// The conditions that these are from.
    bounds: Vec<Expr>,
    /// Of ASOF: whether the right row has to be earlier.
    is_strict: bool,
    left: Vec<Expr>,
    right: Vec<Expr>,
    others: Vec<Expr>,
}

/// The two sides of a join, and the rows that it reads from them.
struct Sides {
    flows: [Flow; 2],
    rows: [Row; 2],
    kind: JoinKind,
}

/// `right - left`, in ns, compared with a number.
struct TimeBound {
    left: Expr,
    right: Expr,
    op: CompareOp,
    distance: i64,
}

impl Joining {
    /// Plans the stages; the rows of the last one, with the wanted columns of all streams.
    pub(super) fn plan(mut self, planner: &mut Planner<'_>, mut flows: Vec<Flow>) -> Result<Flow, QueryError> {
        let mut after: Vec<Vec<Expr>> = self.joins.iter().map(|_| Vec::new()).collect();
        for condition in std::mem::take(&mut self.conditions) {
            self.place(planner, condition, &mut flows, &mut after)?;
        }
        let mut flows = flows.into_iter().enumerate();
        let Some((_, first)) = flows.next() else {
            debug_assert!(false, "FROM has a stream");
            return Err(QueryError::new("the query reads no stream", None));
        };
        let mut left = self.over_all(0, first);
        for (number, right) in flows {
            let right = self.over_all(number, right);
            left = match self.joins.get(number - 1).and_then(|join| Some((join, join.table.as_ref()?))) {
                Some(of) => self.lookup(planner, (number, of), (left, right), &mut after)?,
                None => self.join(planner, number, (left, right), &mut after)?,
            };
        }
        Ok(left)
    }

    /// The rows of one stream, their columns at their places among those of all streams.
    fn over_all(&self, number: usize, mut flow: Flow) -> Flow {
        let mut own = std::mem::take(&mut flow.columns).into_iter();
        let place = |(stream, _): &(usize, String)| if *stream == number { own.next().flatten() } else { None };
        flow.columns = self.columns.iter().map(place).collect();
        flow
    }

    /// The streams that an expression reads, a bit for each.
    fn streams(&self, expr: &Expr) -> u32 {
        let mut read = vec![false; self.columns.len()];
        expr.mark_fields(&mut read);
        let streams = self.columns.iter().zip(read).filter(|(_, read)| *read);
        streams.fold(0, |all, ((stream, _), _)| all | 1 << stream)
    }

    fn side(&self, expr: &Expr, number: usize) -> Side {
        let streams = self.streams(expr);
        let (left, right) = (streams & ((1 << number) - 1) != 0, streams >> number & 1 != 0);
        match (left, right) {
            (false, false) => Side::Neither,
            (true, false) => Side::Left,
            (false, true) => Side::Right,
            (true, true) => Side::Both,
        }
    }

    /// A condition of WHERE goes to the first place where it means the same: its stream, the join that brings its last stream, or what
    /// comes behind.
    fn place(
        &mut self,
        planner: &Planner<'_>,
        condition: Expr,
        flows: &mut [Flow],
        after: &mut [Vec<Expr>],
    ) -> Result<(), QueryError> {
        let streams = self.streams(&condition);
        let newest = (u32::BITS - streams.leading_zeros()).saturating_sub(1) as usize;
        // Behind a FULL or RIGHT join a stream's columns may be null, and the condition was to see that.
        let is_final = self.joins.iter().skip(newest).all(|join| join.kind != JoinKind::Full && !join.is_mirrored);
        let last = self.joins.len() - 1;
        let own = newest.checked_sub(1);
        let is_inner = own.is_none_or(|own| self.joins.get(own).is_some_and(|join| join.kind == JoinKind::Inner));
        let is_asof = own.is_some_and(|own| self.joins.get(own).is_some_and(|join| join.is_asof));
        let is_table = own.is_some_and(|own| self.joins.get(own).is_some_and(|join| join.table.is_some()));
        if streams.is_power_of_two() && is_final && is_inner && !is_asof && !is_table {
            let from = self.columns.iter().position(|(stream, _)| *stream == newest).unwrap_or_default();
            if let Some(flow) = flows.get_mut(newest) {
                let columns: Vec<Option<Expr>> = (0..from).map(|_| None).chain(flow.columns.iter().cloned()).collect();
                flow.filter.push(planner.settled(rows::placed(&condition, &columns)?));
            }
            return Ok(());
        }
        match own {
            Some(own) if is_final && is_inner && !is_asof => {
                if let Some(join) = self.joins.get_mut(own) {
                    join.conditions.push(condition);
                }
            }
            own => {
                let at = if is_final { own.unwrap_or(0) } else { last };
                if let Some(after) = after.get_mut(at) {
                    after.push(condition);
                }
            }
        }
        Ok(())
    }

    /// Joins the rows so far with those of stream `number`.
    fn join(
        &self,
        planner: &mut Planner<'_>,
        number: usize,
        (mut left, mut right): (Flow, Flow),
        after: &mut [Vec<Expr>],
    ) -> Result<Flow, QueryError> {
        let Some(join) = self.joins.get(number - 1) else {
            debug_assert!(false, "each stream but the first is joined");
            return Err(QueryError::new("a stream is not joined", None));
        };
        let mut sorted = self.sorted(join, number)?;
        for (flow, conditions) in [(&mut left, &sorted.left), (&mut right, &sorted.right)] {
            for condition in conditions {
                flow.filter.push(planner.settled(flow.placed(condition)?));
            }
        }
        if join.is_mirrored {
            (left, right) = (right, left);
            sorted.mirror();
        }
        let (mut sides, places) = self.sides((number, join.kind), [left, right], &mut sorted.others, after);
        let keys = sides.keys(planner, &sorted.keys)?;
        let times = sides.times(planner, &sorted)?;
        let stage = planner.stages.len();
        let waits = self.lateness_ns.is_some();
        let derived = self.derived(planner, join, &sides, times)?;
        let is_corrected = times == [None; 2] && sides.flows.iter().any(|flow| flow.is_corrected);
        if is_corrected {
            sides.flows.iter().for_each(|flow| planner.correct(flow));
        }
        let has_replaced = self.has_replaced(join, &sides, is_corrected);
        let Sides { flows: [left, right], rows: [left_row, right_row], .. } = sides;
        let rows_of = [
            planner.connect(&left, left_row, Port { stage, input: 0 })?,
            planner.connect(&right, right_row, Port { stage, input: 1 })?,
        ];
        let rows = pairs(&rows_of, join.kind)?;
        let split = rows_of[0].fields().len();
        let columns: Vec<Option<Expr>> = places
            .into_iter()
            .map(|place| place.map(|(input, at)| rows::field(&rows, if input == 0 { at } else { split + at })))
            .collect();
        let operator = match join.is_asof {
            true => Operator::Asof(AsofJoin { kind: join.kind, keys, is_strict: sorted.is_strict, waits }),
            false => {
                let (first, last) = IntervalJoin::UNBOUNDED;
                let within_ns = (sorted.least.unwrap_or(first), sorted.greatest.unwrap_or(last));
                let condition = condition(planner, &sorted.others, &columns, &rows)?;
                Operator::Join(IntervalJoin { kind: join.kind, keys, within_ns, condition })
            }
        };
        let lateness_ns = self.lateness_ns.filter(|_| times != [None; 2]).unwrap_or(0);
        let inputs = rows_of.into_iter().zip(times).zip(derived);
        let inputs = inputs.map(|((row, time), derived)| StageInput { row, time, lateness_ns, derived });
        let mut flow = planner.stage(inputs.collect(), operator, rows);
        (flow.columns, flow.is_corrected, flow.has_replaced) = (columns, is_corrected, has_replaced);
        for condition in after.get_mut(number - 1).map(std::mem::take).unwrap_or_default() {
            flow.filter.push(planner.settled(flow.placed(&condition)?));
        }
        Ok(flow)
    }

    /// Whether the rows of a join are of rows beside those that have taken their places. ASOF JOIN gives one for each on its left.
    fn has_replaced(&self, join: &BoundJoin, sides: &Sides, is_corrected: bool) -> bool {
        let counted = if join.is_asof { 1 } else { 2 };
        sides.flows.iter().take(counted).any(|flow| flow.has_replaced || flow.is_corrected && !is_corrected)
    }

    /// The columns that are read of a join's rows, with those that its own conditions on pairs read.
    fn wanted_behind(&self, number: usize, others: &[Expr], after: &[Vec<Expr>]) -> Vec<bool> {
        let mut wanted = self.wanted.clone();
        let later = self.joins.iter().skip(number).flat_map(|join| &join.conditions);
        let behind = after.iter().skip(number - 1).flatten();
        later.chain(behind).chain(others).for_each(|expr| expr.mark_fields(&mut wanted));
        wanted
    }

    /// The times whose bounds the stages before know.
    fn derived(
        &self,
        planner: &Planner<'_>,
        join: &BoundJoin,
        sides: &Sides,
        times: [Option<usize>; 2],
    ) -> Result<[Option<DerivedTime>; 2], QueryError> {
        let late = (self.lateness_ns, join.at);
        let [left, right] = [0, 1].map(|input| {
            // An ASOF join that does not wait does not go by the watermark of its right side.
            let is_read = input == 0 || !join.is_asof || self.lateness_ns.is_some();
            let time = times[input].filter(|_| is_read)?;
            Some(planner.derived_time(&sides.flows[input], &sides.rows[input], time, late))
        });
        Ok([left.transpose()?.flatten(), right.transpose()?.flatten()])
    }

    /// Both sides of a join, and the places in their rows of the columns that are wanted behind it.
    fn sides(
        &self,
        (number, kind): (usize, JoinKind),
        flows: [Flow; 2],
        others: &mut Vec<Expr>,
        after: &mut [Vec<Expr>],
    ) -> (Sides, Vec<Option<(usize, usize)>>) {
        if kind == JoinKind::Inner
            && let Some(after) = after.get_mut(number - 1)
        {
            // A filter behind the pairs is as good as a condition of the pairs.
            after.append(others);
        }
        let wanted = self.wanted_behind(number, others, after);
        let mut sides = Sides { flows, rows: [Row::default(), Row::default()], kind };
        let places = self.places(&mut sides, number, &wanted);
        (sides, places)
    }

    /// Puts the wanted columns into the sides' rows: for each column, its side and its place there.
    fn places(&self, sides: &mut Sides, number: usize, wanted: &[bool]) -> Vec<Option<(usize, usize)>> {
        let is_mirrored = self.joins.get(number - 1).is_some_and(|join| join.is_mirrored);
        let place = |((stream, name), (index, wanted)): (&(usize, String), (usize, &bool))| {
            let input = usize::from((*stream == number) != is_mirrored);
            let column =
                sides.flows.get(input)?.columns.get(index)?.clone().filter(|_| *wanted && *stream <= number)?;
            Some((input, sides.rows.get_mut(input)?.add(name, column)))
        };
        self.columns.iter().zip(wanted.iter().enumerate()).map(place).collect()
    }

    /// Sorts the conditions of a join, and refuses one that has to have bounds and has none.
    fn sorted(&self, join: &BoundJoin, number: usize) -> Result<Sorted, QueryError> {
        let mut sorted = Sorted::default();
        let mut equal_times = Vec::new();
        for condition in &join.conditions {
            match self.side(condition, number) {
                Side::Left if join.kind == JoinKind::Inner || join.is_mirrored => sorted.left.push(condition.clone()),
                Side::Right if join.kind != JoinKind::Full && !join.is_mirrored => sorted.right.push(condition.clone()),
                // Never TRUE: no row of the right side is a partner.
                Side::Neither if join.is_asof => sorted.right.push(condition.clone()),
                Side::Both => self.sort(condition, number, &mut sorted, &mut equal_times),
                _ => sorted.others.push(condition.clone()),
            }
        }
        for bound in equal_times {
            let TimeBound { left, right, distance, .. } = bound;
            if sorted.times.is_none() && !join.is_asof {
                sorted.times = Some((left, right));
                (sorted.least, sorted.greatest) = (Some(distance), Some(distance));
            } else {
                sorted.keys.push((left, moved(right, distance)));
            }
        }
        sorted.keys = sorted.keys.into_iter().map(of_one_type).collect();
        match join.is_asof {
            true => self.check_asof(join, number, &mut sorted)?,
            false => self.check_bounds(join, number, &mut sorted)?,
        }
        Ok(sorted)
    }

    /// A condition on both sides.
    fn sort(&self, condition: &Expr, number: usize, sorted: &mut Sorted, equal_times: &mut Vec<TimeBound>) {
        let parts: Vec<Expr> = match &condition.node {
            Node::Between { negated: false, operand, low, high } => {
                let part = |op, bound: &Expr| {
                    let node = Node::Compare { op, left: operand.clone(), right: Box::new(bound.clone()) };
                    Expr { node, ..condition.clone() }
                };
                vec![part(CompareOp::Ge, low), part(CompareOp::Le, high)]
            }
            _ => vec![condition.clone()],
        };
        for part in parts {
            let Node::Compare { op, left, right } = &part.node else {
                sorted.others.push(part);
                continue;
            };
            let sides = (self.side(left, number), self.side(right, number));
            let (op, left, right) = match sides {
                (Side::Left, Side::Right) => (op.mirrored(), left, right),
                (Side::Right, Side::Left) => (*op, right, left),
                _ => {
                    sorted.others.push(part);
                    continue;
                }
            };
            // From here on it reads: right op left.
            match time_bound(op, left, right) {
                Some(bound) if op == CompareOp::Eq => equal_times.push(bound),
                Some(bound) if op != CompareOp::Ne && sorted.takes(&bound) => sorted.bounds.push(part),
                None if op == CompareOp::Eq => sorted.keys.push(((**left).clone(), (**right).clone())),
                _ => sorted.others.push(part),
            }
        }
    }

    fn check_bounds(&self, join: &BoundJoin, number: usize, sorted: &mut Sorted) -> Result<(), QueryError> {
        let [left, right] = self.names(number);
        let has_both = sorted.least.is_some() && sorted.greatest.is_some();
        if !has_both && join.kind == JoinKind::Inner && !sorted.keys.is_empty() {
            // A bound of one side is a condition like others.
            sorted.others.append(&mut sorted.bounds);
            (sorted.times, sorted.least, sorted.greatest) = (None, None, None);
            return Ok(());
        }
        let hint = format!(
            "ON {left}.key = {right}.key AND {right}.time BETWEEN {left}.time - INTERVAL '5 seconds' AND {left}.time; or, for the \
             latest row by key: {left} ASOF JOIN {right} ON {left}.key = {right}.key AND {left}.time >= {right}.time"
        );
        let message = match (sorted.least, sorted.greatest) {
            (Some(least), Some(greatest)) if least <= greatest => return Ok(()),
            (Some(_), Some(_)) => format!("no times of `{left}` and `{right}` are within these bounds"),
            (None, None) if join.kind == JoinKind::Inner => {
                format!("the join with `{right}` has neither equal columns nor bounds of time")
            }
            (None, None) => {
                format!(
                    "the join with `{right}` has no bounds of time: whether a row has no partner would not be known"
                )
            }
            (None, Some(_)) => format!("the join with `{right}` does not say how much earlier its rows may be"),
            (Some(_), None) => format!("the join with `{right}` does not say how much later its rows may be"),
        };
        Err(QueryError::new(message, join.at).hint(hint))
    }

    fn check_asof(&self, join: &BoundJoin, number: usize, sorted: &mut Sorted) -> Result<(), QueryError> {
        let [left, right] = self.names(number);
        let hint = format!("{left} ASOF JOIN {right} ON {left}.key = {right}.key AND {left}.time >= {right}.time");
        let refused = |message: &str| Err(QueryError::new(message, join.at).hint(hint.clone()));
        match (sorted.least, sorted.greatest) {
            (None, Some(0)) => sorted.is_strict = false,
            (None, Some(-1)) => sorted.is_strict = true,
            (None, Some(distance)) => {
                // A row that is earlier by so much: the time of the left side is moved.
                sorted.is_strict = false;
                sorted.times = sorted.times.take().map(|(left, right)| (left, moved(right, distance)));
            }
            (None, None) => return refused("an ASOF JOIN compares two times: the left one with the right one"),
            (Some(_), _) => {
                return refused("an ASOF JOIN takes the latest row before: its time is at most the left one");
            }
        }
        if !sorted.others.is_empty() && join.kind != JoinKind::Inner {
            return refused("an ASOF LEFT JOIN has equal columns, the times, and conditions on its right stream");
        }
        if !sorted.others.is_empty() {
            return refused("an ASOF JOIN has equal columns, one pair of times, and conditions on one stream");
        }
        Ok(())
    }

    fn names(&self, number: usize) -> [&str; 2] {
        [number.saturating_sub(1), number].map(|number| self.called.get(number).map_or("", String::as_str))
    }
}

impl Sorted {
    /// The same with the sides exchanged; the conditions on one of them have their places.
    fn mirror(&mut self) {
        self.keys.iter_mut().for_each(|(left, right)| std::mem::swap(left, right));
        self.times = self.times.take().map(|(left, right)| (right, left));
        (self.least, self.greatest) = (self.greatest.map(i64::saturating_neg), self.least.map(i64::saturating_neg));
    }

    /// Narrows the bounds of time; whether it is of the times that they are of.
    fn takes(&mut self, bound: &TimeBound) -> bool {
        let (left, right) = self.times.get_or_insert_with(|| (bound.left.clone(), bound.right.clone()));
        if *left != bound.left || *right != bound.right {
            return false;
        }
        let distance = bound.distance;
        match bound.op {
            CompareOp::Ge => self.least = self.least.max(Some(distance)),
            CompareOp::Gt => self.least = self.least.max(Some(distance.saturating_add(1))),
            CompareOp::Le => self.greatest = Some(self.greatest.map_or(distance, |known| known.min(distance))),
            CompareOp::Lt => {
                let distance = distance.saturating_sub(1);
                self.greatest = Some(self.greatest.map_or(distance, |known| known.min(distance)));
            }
            CompareOp::Eq | CompareOp::Ne => return false,
        }
        true
    }
}

/// `right op left`, both times with or without an interval, as a bound of how far apart the times are.
fn time_bound(op: CompareOp, left: &Expr, right: &Expr) -> Option<TimeBound> {
    if !is_time(left) || !is_time(right) {
        return None;
    }
    let ((left, left_by), (right, right_by)) = (apart(left), apart(right));
    Some(TimeBound { left: left.clone(), right: right.clone(), op, distance: left_by.checked_sub(right_by)? })
}

/// A time, and the fixed interval that is added to it.
pub(super) fn apart(time: &Expr) -> (&Expr, i64) {
    if let Node::Try(inner) = &time.node {
        let (base, by) = apart(inner);
        return if base.is_fallible() { (time, 0) } else { (base, by) };
    }
    if let Node::Call(call) = &time.node
        && let Prepared::Interval(interval) = &call.prepared
        && let [base, _] = &call.arguments[..]
        && is_time(base)
        && let Some(length) = interval.fixed()
    {
        let (base, inner) = apart(base);
        let by = match call.function.name {
            "+" => inner.checked_add(length),
            "-" => inner.checked_sub(length),
            _ => None,
        };
        if let Some(by) = by {
            return (base, by);
        }
    }
    (time, 0)
}

/// A time less a number of ns.
fn moved(time: Expr, by: i64) -> Expr {
    if by == 0 {
        return time;
    }
    let by = Expr::constant(Constant::Int(by.into()), FieldType::I64);
    cast(arithmetic(ArithmeticOp::Subtract, cast(time, FieldType::I64), by), FieldType::Timestamp)
}

/// Both sides of a key as values of one type.
fn of_one_type((left, right): (Expr, Expr)) -> (Expr, Expr) {
    match common_type(left.ty, right.ty) {
        Some(ty) if left.ty != ty || right.ty != ty => (cast(left, ty), cast(right, ty)),
        _ => (left, right),
    }
}

impl Sides {
    /// Whether a row of this side that has no partner is of no use.
    fn may_filter(&self, input: usize) -> bool {
        match self.kind {
            JoinKind::Inner => true,
            JoinKind::Left => input == 1,
            JoinKind::Full => false,
        }
    }

    /// Puts a value into a side's row that partners have to have: where it is null there is none.
    fn add(&mut self, planner: &Planner<'_>, (input, name): (usize, &str), expr: &Expr) -> Result<usize, QueryError> {
        let may_filter = self.may_filter(input);
        let (Some(flow), Some(row)) = (self.flows.get_mut(input), self.rows.get_mut(input)) else {
            debug_assert!(false, "a join has two sides");
            return Err(QueryError::new("a join has two sides", None));
        };
        let expr = planner.settled(flow.placed(expr)?);
        if may_filter && expr.nullable {
            let condition = is_null(true, expr.clone());
            if !flow.filter.contains(&condition) {
                flow.filter.push(condition);
            }
        }
        Ok(row.add_unnamed(name, expr, &flow.input))
    }

    fn keys(&mut self, planner: &Planner<'_>, keys: &[(Expr, Expr)]) -> Result<Vec<(usize, usize)>, QueryError> {
        let mut add = |input, expr| self.add(planner, (input, "key"), expr);
        keys.iter().map(|(left, right)| Ok((add(0, left)?, add(1, right)?))).collect()
    }

    /// The times of both sides; none of a join without bounds.
    fn times(&mut self, planner: &Planner<'_>, sorted: &Sorted) -> Result<[Option<usize>; 2], QueryError> {
        let Some((left, right)) = &sorted.times else { return Ok([None; 2]) };
        Ok([Some(self.add(planner, (0, "time"), left)?), Some(self.add(planner, (1, "time"), right)?)])
    }
}

/// The columns of the left side, then those of the right one; null where there may be no partner.
fn pairs(rows_of: &[Format; 2], kind: JoinKind) -> Result<Format, QueryError> {
    let nullable = [kind == JoinKind::Full, kind != JoinKind::Inner];
    let fields = rows_of.iter().zip(nullable).flat_map(|(row, nullable)| {
        row.fields().iter().map(move |field| FieldSpec { nullable: field.nullable || nullable, ..field.spec() })
    });
    let mut specs: Vec<FieldSpec> = fields.collect();
    let names = rows::unique(specs.iter().map(|spec| spec.name.as_str()));
    specs.iter_mut().zip(names).for_each(|(spec, name)| spec.name = name);
    rows::format_of(specs)
}

/// Further conditions of a pair, over the stage's rows.
fn condition(
    planner: &Planner<'_>,
    conditions: &[Expr],
    columns: &[Option<Expr>],
    rows: &Format,
) -> Result<Option<Program>, QueryError> {
    if conditions.is_empty() {
        return Ok(None);
    }
    let mut flow = Flow::all(Origin::Stage(planner.stages.len()), rows.clone());
    for condition in conditions {
        flow.filter.push(planner.settled(rows::placed(condition, columns)?));
    }
    Ok(Some(planner.program("pairs", &flow, Vec::new(), rows.clone())))
}
