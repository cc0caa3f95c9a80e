//! A plan with state, for people: a tree of stages, the output first.

use std::fmt;

use crossdock_format::Format;

use super::program::{
    Aggregate, AggregateFunction, Aggregation, AsofJoin, FirstRows, IntervalJoin, JoinKind, LatestByKey, Operator,
    OverFunction, OverRows, OverValue, Port, RowFrame, STATE_POLICY, Stage, StageInput, StageOutput, StatefulProgram,
    StreamSource, TableLookup, Window,
};
use crate::program::{Program, Projection};

impl fmt::Display for StatefulProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(last) = self.stages.len().checked_sub(1) else { return Ok(()) };
        let bound = Bytes(self.max_state_bytes);
        writeln!(f, "state    at most {bound}; past that it {STATE_POLICY}, which is counted")?;
        if self.changes {
            writeln!(f, "changes  each row says in _change whether it enters, is updated or leaves")?;
        }
        self.stage(f, (last, 0), 0, &mut SharedParts::default())
    }
}

/// The stages whose rows go to several others, in the order in which they are first shown.
#[derive(Default)]
pub(super) struct SharedParts(Vec<usize>);

impl SharedParts {
    /// The words that begin the line of a stage: none for one whose rows go to one place. `false` where they are the line, for one that is
    /// shown already.
    pub(super) fn of(&mut self, number: usize, stage: &Stage) -> (String, bool) {
        match (stage.outputs.len(), self.0.iter().position(|known| *known == number)) {
            (..=1, _) => (String::new(), true),
            (_, Some(known)) => (format!("part {} again", known + 1), false),
            (places, None) => {
                self.0.push(number);
                (format!("part {}, read {places} times: ", self.0.len()), true)
            }
        }
    }
}

impl StatefulProgram {
    /// A stage, for one of its outputs.
    fn stage(
        &self,
        f: &mut fmt::Formatter<'_>,
        (number, output): (usize, usize),
        depth: usize,
        parts: &mut SharedParts,
    ) -> fmt::Result {
        let Some(stage) = self.stages.get(number) else { return Ok(()) };
        if let Some(StageOutput { then, .. }) = stage.outputs.get(output) {
            program(f, "output", then, depth)?;
        }
        let pad = depth * 2;
        let (words, is_first) = parts.of(number, stage);
        if !is_first {
            return writeln!(f, "{:pad$}{words}", "");
        }
        writeln!(f, "{:pad$}{words}{}", "", Work(stage))?;
        writeln!(f, "{:pad$}  keeps {}", "", kept(stage))?;
        for (input, of) in stage.inputs.iter().enumerate() {
            self.input(f, Port { stage: number, input }, (of, depth + 1), parts)?;
        }
        Ok(())
    }

    fn input(
        &self,
        f: &mut fmt::Formatter<'_>,
        port: Port,
        (of, depth): (&StageInput, usize),
        parts: &mut SharedParts,
    ) -> fmt::Result {
        if let Some(from) = self.before(port) {
            return self.stage(f, from, depth, parts);
        }
        let Some(source) = self.sources.iter().find(|source| source.port == port) else { return Ok(()) };
        let StreamSource { stream, program: of_source, .. } = source;
        let pad = depth * 2;
        write!(f, "{:pad$}stream {stream}", "")?;
        if let Some(time) = of.time.and_then(|time| of.row.fields().get(time)) {
            write!(f, ", time {}", time.name)?;
            if of.lateness_ns > 0 {
                write!(f, ", {} late at most", Length(of.lateness_ns))?;
            }
        }
        writeln!(f)?;
        program(f, "row", of_source, depth + 1)
    }
}

/// The columns that a program makes, and its conditions.
fn program(f: &mut fmt::Formatter<'_>, label: &str, program: &Program, depth: usize) -> fmt::Result {
    let pad = depth * 2;
    write!(f, "{:pad$}{label} ", "")?;
    match &program.projection {
        Projection::All => writeln!(f, "{}", names(&program.output))?,
        Projection::Fields(outputs) => {
            for (index, output) in outputs.iter().enumerate() {
                let comma = if index == 0 { "" } else { ", " };
                let field = output.plain_field().and_then(|index| program.input.fields().get(index));
                match field.is_some_and(|field| field.name == output.name) {
                    true => write!(f, "{comma}{}", output.name)?,
                    false => write!(f, "{comma}{} = {}", output.name, output.expr.sql(&program.input))?,
                }
            }
            writeln!(f)?;
        }
    }
    for condition in &program.filter {
        writeln!(f, "{:pad$}  if {}", "", condition.sql(&program.input))?;
    }
    Ok(())
}

fn names(format: &Format) -> String {
    let names: Vec<&str> = format.fields().iter().map(|field| field.name.as_str()).collect();
    names.join(", ")
}

fn name(format: Option<&StageInput>, index: usize) -> &str {
    format.and_then(|input| input.row.fields().get(index)).map_or("?", |field| &field.name)
}

/// The work of a stage, in one line.
pub(super) struct Work<'a>(pub(super) &'a Stage);

impl fmt::Display for Work<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = self.0;
        match &stage.operator {
            Operator::Union => f.write_str("union all"),
            Operator::Aggregate(aggregation) => aggregate(f, aggregation, stage.inputs.first()),
            Operator::Over(of) => over(f, of, stage.inputs.first()),
            Operator::Join(join) => {
                let IntervalJoin { kind, keys, within_ns, condition } = join;
                f.write_str(kind_word(*kind))?;
                f.write_str("join")?;
                keys_of(f, keys, &stage.inputs)?;
                if join.is_bounded() {
                    let [least, greatest] = [within_ns.0, within_ns.1].map(Distance);
                    write!(f, ", right row from {least} to {greatest}")?;
                } else {
                    f.write_str(", whenever they come")?;
                }
                for condition in condition.iter().flat_map(|condition| &condition.filter) {
                    write!(f, ", {}", condition.sql(&stage.rows))?;
                }
                Ok(())
            }
            Operator::Asof(AsofJoin { kind, keys, is_strict, waits }) => {
                write!(f, "asof {}join", kind_word(*kind))?;
                keys_of(f, keys, &stage.inputs)?;
                let before = if *is_strict { "before" } else { "at or before" };
                write!(f, ", the latest right row {before} the left row's time")?;
                f.write_str(if *waits { ", waits for the right stream" } else { ", at once" })
            }
            Operator::Lookup(of) => lookup(f, of, stage),
            Operator::First(FirstRows { order, limit, .. }) => {
                write!(f, "the first {limit} rows of each window by ")?;
                for (index, (column, direction)) in order.iter().enumerate() {
                    let comma = if index == 0 { "" } else { ", " };
                    write!(f, "{comma}{}", name(stage.inputs.first(), *column))?;
                    f.write_str(if direction.descending { " desc" } else { "" })?;
                    if direction.nulls_first != direction.descending {
                        f.write_str(if direction.nulls_first { " nulls first" } else { " nulls last" })?;
                    }
                }
                Ok(())
            }
            Operator::Latest(LatestByKey { keys, max_keys, max_age_ns, .. }) => {
                f.write_str("the last record by ")?;
                for (index, key) in keys.iter().enumerate() {
                    write!(f, "{}{}", if index == 0 { "" } else { ", " }, name(stage.inputs.first(), *key))?;
                }
                write!(f, ", {max_keys} keys at most")?;
                max_age_ns.iter().try_for_each(|age| write!(f, ", for {}", Length(*age)))
            }
        }
    }
}

fn kind_word(kind: JoinKind) -> &'static str {
    match kind {
        JoinKind::Inner => "",
        JoinKind::Left => "left ",
        JoinKind::Full => "full ",
    }
}

fn keys_of(f: &mut fmt::Formatter<'_>, keys: &[(usize, usize)], inputs: &[StageInput]) -> fmt::Result {
    for (index, (left, right)) in keys.iter().enumerate() {
        let word = if index == 0 { " by" } else { " and" };
        write!(f, "{word} {} = {}", name(inputs.first(), *left), name(inputs.get(1), *right))?;
    }
    Ok(())
}

fn lookup(f: &mut fmt::Formatter<'_>, of: &TableLookup, stage: &Stage) -> fmt::Result {
    let TableLookup { kind, table, format, keys, key, condition, .. } = of;
    write!(f, "{}join with table {table}", kind_word(*kind))?;
    for (index, (value, column)) in keys.iter().zip(key).enumerate() {
        let column = format.fields().get(*column).map_or("?", |field| &field.name);
        let word = if index == 0 { " by" } else { " and" };
        write!(f, "{word} {} = {column}", name(stage.inputs.first(), *value))?;
    }
    for condition in condition.iter().flat_map(|condition| &condition.filter) {
        write!(f, ", {}", condition.sql(&stage.rows))?;
    }
    Ok(())
}

fn aggregate(f: &mut fmt::Formatter<'_>, aggregation: &Aggregation, input: Option<&StageInput>) -> fmt::Result {
    f.write_str("group")?;
    for (index, key) in aggregation.keys.iter().enumerate() {
        write!(f, "{} {}", if index == 0 { " by" } else { "," }, name(input, *key))?;
    }
    let by_arrival = match input.and_then(|input| input.time) {
        None => " by time of arrival",
        Some(_) => "",
    };
    match aggregation.window {
        Window::Running => f.write_str(match (aggregation.corrects, aggregation.gives_changes) {
            (false, false) => ", each row brings its group's",
            (false, true) => ", each change of a group",
            (true, false) => ", corrected, each change brings its group's",
            (true, true) => ", corrected, each change of a group",
        })?,
        Window::Tumble { size_ns } => write!(f, ", windows of {}{by_arrival}", Length(size_ns))?,
        Window::Hop { size_ns, slide_ns } => {
            write!(f, ", windows of {} every {}{by_arrival}", Length(size_ns), Length(slide_ns))?;
        }
        Window::Session { gap_ns } => write!(f, ", sessions with pauses of {}{by_arrival}", Length(gap_ns))?,
    }
    for (index, aggregate) in aggregation.aggregates.iter().enumerate() {
        write!(f, "{} {}", if index == 0 { ":" } else { "," }, Call(aggregate, input))?;
    }
    Ok(())
}

/// The values of each partition.
fn over(f: &mut fmt::Formatter<'_>, of: &OverRows, input: Option<&StageInput>) -> fmt::Result {
    f.write_str(if of.identity.is_some() { "corrected, over the rows before" } else { "over the rows before" })?;
    for (number, keys) in of.partitions.iter().enumerate() {
        f.write_str(match number {
            0 => "",
            _ if keys.is_empty() => "; of all rows",
            _ => ";",
        })?;
        for (index, key) in keys.iter().enumerate() {
            write!(f, "{} {}", if index == 0 { " by" } else { "," }, name(input, *key))?;
        }
        let values = of.values.iter().filter(|value| value.partition == number);
        for (index, OverValue { function, .. }) in values.enumerate() {
            f.write_str(if index == 0 { ": " } else { ", " })?;
            match function {
                OverFunction::Aggregate(aggregate, frame) => write!(f, "{} {}", Call(aggregate, input), Rows(*frame))?,
                OverFunction::First { column, frame } => {
                    write!(f, "first_value({}) {}", name(input, *column), Rows(*frame))?;
                }
                OverFunction::Lag { column, rows, default } => {
                    write!(f, "lag({}, {rows}", name(input, *column))?;
                    default.iter().try_for_each(|default| write!(f, ", {}", name(input, *default)))?;
                    f.write_str(")")?;
                }
            }
        }
    }
    Ok(())
}

/// The rows of a frame.
struct Rows(RowFrame);

impl fmt::Display for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            RowFrame { from: None, until: 0 } => f.write_str("of all rows"),
            RowFrame { from: None, until } => write!(f, "of all rows but the last {until}"),
            RowFrame { from: Some(from), until: 0 } => write!(f, "of {} rows", from + 1),
            RowFrame { from: Some(from), until } => write!(f, "of the rows {from} to {until} before"),
        }
    }
}

/// An aggregate as it is called.
struct Call<'a>(&'a Aggregate, Option<&'a StageInput>);

impl fmt::Display for Call<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Call(aggregate, input) = self;
        write!(f, "{}(", function_name(aggregate.function))?;
        if aggregate.distinct {
            f.write_str("DISTINCT ")?;
        }
        if aggregate.arguments.is_empty() {
            f.write_str("*")?;
        }
        for (index, argument) in aggregate.arguments.iter().enumerate() {
            write!(f, "{}{}", if index == 0 { "" } else { ", " }, name(*input, *argument))?;
        }
        if let AggregateFunction::ApproxQuantile(part) = aggregate.function {
            write!(f, ", {part}")?;
        }
        f.write_str(")")?;
        match aggregate.filter {
            Some(filter) => write!(f, " FILTER (WHERE {})", name(*input, filter)),
            None => Ok(()),
        }
    }
}

fn function_name(function: AggregateFunction) -> &'static str {
    match function {
        AggregateFunction::Count => "count",
        AggregateFunction::Sum => "sum",
        AggregateFunction::Avg => "avg",
        AggregateFunction::Min => "min",
        AggregateFunction::Max => "max",
        AggregateFunction::StddevSamp => "stddev_samp",
        AggregateFunction::StddevPop => "stddev_pop",
        AggregateFunction::VarSamp => "var_samp",
        AggregateFunction::VarPop => "var_pop",
        AggregateFunction::First => "first",
        AggregateFunction::Last => "last",
        AggregateFunction::ArgMax => "arg_max",
        AggregateFunction::ArgMin => "arg_min",
        AggregateFunction::ApproxCountDistinct => "approx_count_distinct",
        AggregateFunction::ApproxQuantile(_) => "approx_quantile",
        AggregateFunction::BoolAnd => "bool_and",
        AggregateFunction::BoolOr => "bool_or",
        AggregateFunction::StringAgg => "string_agg",
        AggregateFunction::ArrayAgg => "array_agg",
    }
}

/// The state of a stage, in words.
pub(super) fn kept(stage: &Stage) -> &'static str {
    match &stage.operator {
        Operator::Union | Operator::Lookup(_) => "nothing",
        Operator::Aggregate(Aggregation { window: Window::Running, corrects: true, .. }) => {
            "each group, with the values that min, max and DISTINCT count, until the bound is reached"
        }
        Operator::Aggregate(Aggregation { window: Window::Running, .. }) => "each group, until the bound is reached",
        Operator::Join(join) if !join.is_bounded() => {
            "rows of both sides by key, until the bound is reached; then the oldest goes"
        }
        Operator::Over(OverRows { identity: Some(_), .. }) => {
            "of each key the last rows, twice as many as its frames have, until the bound is reached"
        }
        Operator::Over(_) => {
            "of each key the rows before that are read, and what is added up, until the bound is reached"
        }
        Operator::Aggregate(_) => "the groups of each window, until the watermark is past its end",
        Operator::Join(_) => "rows of both sides, until the other side's watermark is past their last partner",
        Operator::Asof(AsofJoin { waits: true, .. }) => {
            "right rows by key, and left rows until the right stream is as far"
        }
        Operator::Latest(_) => "the last record of each key; past a bound the key goes that had none for the longest",
        Operator::First(_) => "the first rows of the window that closes",
        Operator::Asof(_) => "right rows by key, back to the left stream's watermark",
    }
}

/// A length of time in its greatest whole unit.
pub(super) struct Length(pub(super) u64);

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u64); 7] = [
            ("d", 86_400_000_000_000),
            ("h", 3_600_000_000_000),
            ("min", 60_000_000_000),
            ("s", 1_000_000_000),
            ("ms", 1_000_000),
            ("us", 1000),
            ("ns", 1),
        ];
        let unit = UNITS.iter().find(|(_, size)| self.0 != 0 && self.0.is_multiple_of(*size)).unwrap_or(&("s", 1));
        write!(f, "{} {}", self.0 / unit.1, unit.0)
    }
}

/// How much later or earlier.
struct Distance(i64);

impl fmt::Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `<` and `>` leave a nanosecond out.
        let is_open = |ns: u64| (ns + 1).is_multiple_of(1_000_000);
        match self.0 {
            0 => f.write_str("the same time"),
            later @ 1.. if is_open(later.unsigned_abs()) => {
                write!(f, "less than {} later", Length(later.unsigned_abs() + 1))
            }
            earlier @ ..=-1 if is_open(earlier.unsigned_abs()) => {
                write!(f, "less than {} earlier", Length(earlier.unsigned_abs() + 1))
            }
            later @ 1.. => write!(f, "{} later", Length(later.unsigned_abs())),
            earlier => write!(f, "{} earlier", Length(earlier.unsigned_abs())),
        }
    }
}

struct Bytes(usize);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes.is_multiple_of(1 << 20) => write!(f, "{} MiB", bytes >> 20),
            bytes if bytes.is_multiple_of(1 << 10) => write!(f, "{} KiB", bytes >> 10),
            bytes => write!(f, "{bytes} bytes"),
        }
    }
}
