//! A plan as a list of operators, the output first, for reports with what each has done.

use super::program::{Port, StageOutput, StatefulProgram};
use super::show::{Length, SharedParts, Work};
use crate::program::{Program, Projection};

/// An operator of a plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanOperator {
    /// How far it is from the output: its input has one more.
    pub depth: usize,
    /// Its kind.
    pub kind: OperatorKind,
    /// The place of the counts that it belongs to: those of sources come first, then those of stages with their first outputs, then those of
    /// their further outputs. 0 in a query without state.
    pub place: usize,
    /// The work, in a line without the kind's word.
    pub text: String,
}

/// The kind of an operator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OperatorKind {
    /// Records of a stream.
    Stream,
    /// The conditions on them.
    Filter,
    /// The columns that are made of them.
    Project,
    /// A step that keeps state, or unites.
    Stage,
    /// The conditions on the rows of a stage.
    Having,
    /// The rows of a stage that is above, with its inputs, for another one that reads them.
    Again,
}

impl OperatorKind {
    /// Its word in a report; a stage says itself what it is.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            OperatorKind::Stream => "stream",
            OperatorKind::Filter | OperatorKind::Having => "filter",
            OperatorKind::Project => "project",
            OperatorKind::Stage | OperatorKind::Again => "",
        }
    }
}

impl Program {
    /// Its operators: the columns, the conditions, the stream.
    #[must_use]
    pub fn operators(&self) -> Vec<PlanOperator> {
        let mut operators = Vec::new();
        push(self, (0, 0), &mut operators);
        operators
    }

    /// Its conditions, as SQL.
    fn conditions(&self) -> String {
        let texts: Vec<String> = self.filter.iter().map(|expr| expr.sql(&self.input).to_string()).collect();
        texts.join(" AND ")
    }

    /// The columns that it makes, as SQL.
    fn columns(&self) -> String {
        let Projection::Fields(outputs) = &self.projection else { return "*".to_owned() };
        let column = |output: &crate::program::Output| {
            let text = output.expr.sql(&self.input).to_string();
            if text == output.name { text } else { format!("{text} AS {}", output.name) }
        };
        outputs.iter().map(column).collect::<Vec<_>>().join(", ")
    }
}

/// Appends the operators of a program over a stream.
fn push(program: &Program, (mut depth, place): (usize, usize), to: &mut Vec<PlanOperator>) {
    let mut add = |kind, text| {
        to.push(PlanOperator { depth, kind, place, text });
        depth += 1;
    };
    if matches!(program.projection, Projection::Fields(_)) {
        add(OperatorKind::Project, program.columns());
    }
    if !program.filter.is_empty() {
        add(OperatorKind::Filter, program.conditions());
    }
    add(OperatorKind::Stream, program.stream.clone());
}

impl StatefulProgram {
    /// Its operators, from the output to the streams: of each stage first the conditions on its rows, then itself, then its inputs. A stage
    /// whose rows go to several others is there once, with a reference at each further place.
    #[must_use]
    pub fn operators(&self) -> Vec<PlanOperator> {
        let mut operators = Vec::new();
        if let Some(last) = self.stages.len().checked_sub(1) {
            self.push_stage((last, 0), 0, (&mut operators, &mut SharedParts::default()));
        }
        operators
    }

    /// The place of the counts of a stage's output.
    fn place(&self, stage: usize, output: usize) -> usize {
        let Some(further) = output.checked_sub(1) else { return self.sources.len() + stage };
        let before = self.stages.iter().take(stage).map(|stage| stage.outputs.len().saturating_sub(1));
        self.sources.len() + self.stages.len() + before.sum::<usize>() + further
    }

    /// Appends a stage for one of its outputs.
    fn push_stage(
        &self,
        (number, output): (usize, usize),
        mut depth: usize,
        (to, parts): (&mut Vec<PlanOperator>, &mut SharedParts),
    ) {
        let Some(stage) = self.stages.get(number) else { return };
        let Some(StageOutput { then, .. }) = stage.outputs.get(output) else { return };
        let place = self.place(number, output);
        if !then.filter.is_empty() {
            to.push(PlanOperator { depth, kind: OperatorKind::Having, place, text: then.conditions() });
            depth += 1;
        }
        let text = match parts.of(number, stage) {
            (prefix, true) => format!("{prefix}{}", Work(stage)),
            (text, false) => return to.push(PlanOperator { depth, kind: OperatorKind::Again, place, text }),
        };
        to.push(PlanOperator { depth, kind: OperatorKind::Stage, place: self.place(number, 0), text });
        for (input, of) in stage.inputs.iter().enumerate() {
            let port = Port { stage: number, input };
            if let Some(from) = self.before(port) {
                self.push_stage(from, depth + 1, (to, parts));
            }
            for (place, source) in self.sources.iter().enumerate().filter(|(_, source)| source.port == port) {
                push(&source.program, (depth + 1, place), to);
                let Some(stream) = to.last_mut() else { continue };
                stream.text.clone_from(&source.stream);
                if let Some(time) = of.time.and_then(|time| of.row.fields().get(time)) {
                    stream.text += &format!(", time {}", time.name);
                    if of.lateness_ns > 0 {
                        stream.text += &format!(", {} late at most", Length(of.lateness_ns));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stateful::{Query, parse_query};
    use crossdock_format::Format;
    use std::collections::BTreeMap;

    fn operators(sql: &str) -> Vec<String> {
        let format = Format::parse_schema("carrier string\nts timestamp\nlate i32\n").unwrap();
        let shown = |operators: Vec<PlanOperator>| {
            let line = |of: PlanOperator| format!("{} {} {} {}", of.depth, of.place, of.kind.word(), of.text);
            operators.into_iter().map(line).collect()
        };
        match parse_query(sql).unwrap() {
            Query::Select(select) => shown(select.plan(&format).unwrap().operators()),
            Query::Stateful(query) => {
                let formats = [("A", &format), ("B", &format)];
                shown(query.plan(&formats, &BTreeMap::new()).unwrap().operators())
            }
        }
    }

    #[test]
    fn the_operators_of_a_query_are_listed_from_its_output_to_its_streams() {
        assert_eq!(operators("SELECT * FROM A"), ["0 0 stream A"]);
        let listed = operators("SELECT carrier, late * 2 AS d FROM A WHERE late > 3");
        assert_eq!(listed, ["0 0 project carrier, late * 2 AS d", "1 0 filter late > 3", "2 0 stream A"]);
        let listed =
            operators("SELECT carrier, COUNT(*) AS n FROM A WHERE late > 3 GROUP BY carrier HAVING COUNT(*) > 1");
        let [having, group, rest @ ..] = &listed[..] else { panic!("{listed:?}") };
        assert!(having.starts_with("0 1 filter ") && group.starts_with("1 1  group by carrier"), "{listed:?}");
        assert!(rest.iter().any(|line| line == "3 0 filter late > 3"), "{listed:?}");
        assert!(rest.last().is_some_and(|line| line.ends_with("stream A")), "{listed:?}");
    }

    #[test]
    fn both_sides_of_a_join_are_below_it() {
        let listed = operators("SELECT A.late FROM A JOIN B ON A.carrier = B.carrier WHERE B.late > 0");
        let streams: Vec<&String> = listed.iter().filter(|line| line.contains(" stream ")).collect();
        assert_eq!(streams.len(), 2, "{listed:?}");
        assert!(listed.iter().any(|line| line.contains("join by")), "{listed:?}");
    }

    #[test]
    fn a_part_that_is_read_twice_is_listed_once() {
        let counts = "SELECT carrier, window_start AS starts, COUNT(*) AS n FROM A GROUP BY carrier, TUMBLE(ts, INTERVAL '1 hour')";
        let listed = operators(&format!(
            "WITH counts AS ({counts}) SELECT c.carrier FROM counts c JOIN (SELECT starts, n FROM counts WHERE n > 2) d
             ON c.n = d.n AND c.starts = d.starts"
        ));
        let [join, part, project, stream, filter, again] = &listed[..] else { panic!("{listed:?}") };
        // One source, two stages, and behind them the second output of the first one.
        assert!(join.starts_with("0 2  join by"), "{listed:?}");
        assert!(part.starts_with("1 1  part 1, read 2 times: group by carrier, windows of 1 h"), "{listed:?}");
        assert!(project.starts_with("2 0 project ") && stream.starts_with("3 0 stream A"), "{listed:?}");
        assert!(filter.starts_with("1 3 filter ") && again == "2 3  part 1 again", "{listed:?}");
    }
}
