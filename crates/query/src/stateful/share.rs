//! Common parts of a query are computed once: equal stages become one, whose rows go wherever those of each went.
//!
//! Two stages are equal if they do the same work, with the same times, on inputs whose rows are the same: those that equal programs make of one
//! stream's records, or of the rows of equal stages. So it counts for nothing whether a part has a name in `WITH`. A stage that
//! [gives changes](super::program::Aggregation::gives_changes) is none like one that gives each row as one of its own.
//!
//! The rows of a shared stage go to each place in the order in which the places got those of stages of their own, and the bound of their times
//! behind them. Where results go by event time, they do not depend on what comes in between at the other places.

use super::program::{Port, Stage, StageOutput, StreamSource, stage_before};
use crate::program::Program;

/// The stages and sources without those that do the work of another one once more.
pub(super) fn share(stages: Vec<Stage>, sources: Vec<StreamSource>) -> (Vec<Stage>, Vec<StreamSource>) {
    let first = first_of_equals(&stages, &sources);
    let is_first = |stage: usize| first.get(stage) == Some(&stage);
    // The number of each stage that stays among those.
    let mut numbers = Vec::with_capacity(stages.len());
    let mut count = 0;
    for stage in 0..stages.len() {
        numbers.push(count);
        count += usize::from(is_first(stage));
    }
    let moved = |port: Port| {
        let stage = numbers.get(port.stage).filter(|_| is_first(port.stage))?;
        Some(Port { stage: *stage, ..port })
    };
    let mut shared: Vec<Stage> = Vec::with_capacity(count);
    for (number, mut stage) in stages.into_iter().enumerate() {
        let mut outputs = std::mem::take(&mut stage.outputs);
        outputs.retain_mut(|StageOutput { to, .. }| match *to {
            None => true,
            Some(port) => {
                *to = moved(port);
                to.is_some()
            }
        });
        if is_first(number) {
            shared.push(Stage { outputs, ..stage });
            continue;
        }
        let same = first.get(number).and_then(|first| numbers.get(*first));
        if let Some(same) = same.and_then(|same| shared.get_mut(*same)) {
            same.outputs.append(&mut outputs);
        }
    }
    let source = |source: StreamSource| Some(StreamSource { port: moved(source.port)?, ..source });
    (shared, sources.into_iter().filter_map(source).collect())
}

/// For each stage the first one that is equal to it: itself, if none before it is.
fn first_of_equals(stages: &[Stage], sources: &[StreamSource]) -> Vec<usize> {
    let mut first: Vec<usize> = Vec::with_capacity(stages.len());
    for (number, stage) in stages.iter().enumerate() {
        let is_equal = |known: &usize| {
            let Some(other) = stages.get(*known).filter(|_| first.get(*known) == Some(known)) else { return false };
            let rows_of = |stage, input| rows_of(Port { stage, input }, (stages, sources), &first);
            other.operator == stage.operator
                && other.rows == stage.rows
                && other.inputs == stage.inputs
                && (0..stage.inputs.len()).all(|input| rows_of(*known, input) == rows_of(number, input))
        };
        let equal = (0..number).find(is_equal);
        first.push(equal.unwrap_or(number));
    }
    first
}

/// Where the rows of an input come from.
#[derive(PartialEq)]
enum RowsFrom<'a> {
    Stream(&'a str),
    /// The first of equal stages.
    Stage(usize),
}

/// The rows of an input: where they come from, and what makes them.
fn rows_of<'a>(
    port: Port,
    (stages, sources): (&'a [Stage], &'a [StreamSource]),
    first: &[usize],
) -> Option<(RowsFrom<'a>, &'a Program)> {
    if let Some(source) = sources.iter().find(|source| source.port == port) {
        return Some((RowsFrom::Stream(&source.stream), &source.program));
    }
    let (stage, output) = stage_before(stages, port)?;
    Some((RowsFrom::Stage(*first.get(stage)?), &stages.get(stage)?.outputs.get(output)?.then))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crossdock_format::Format;

    use crate::stateful::{Operator, Port, Query, StatefulProgram, parse_query};

    fn planned(sql: &str) -> StatefulProgram {
        let bids = Format::parse_schema("auction i64\nbidder i64\nprice f64 null\nat timestamp\n").unwrap();
        let asks = Format::parse_schema("auction i64\nprice f64 null\nat timestamp\n").unwrap();
        let Query::Stateful(query) = parse_query(sql).unwrap_or_else(|error| panic!("{error}")) else {
            panic!("{sql} keeps no state")
        };
        query.plan(&[("bid", &bids), ("ask", &asks)], &BTreeMap::new()).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The stages' kinds with the inputs that their rows go to, and the number of sources.
    fn shape(sql: &str) -> (Vec<String>, usize) {
        let program = planned(sql);
        let shown = program.stages.iter().map(|stage| {
            let kind = match &stage.operator {
                Operator::Union => "union",
                Operator::Aggregate(_) => "group",
                Operator::Join(_) => "join",
                Operator::Over(_) => "over",
                _ => "other",
            };
            let place = |to: Option<Port>| to.map_or("out".to_owned(), |to| format!("{}.{}", to.stage, to.input));
            let places: Vec<String> = stage.outputs.iter().map(|output| place(output.to)).collect();
            format!("{kind} {}", places.join(" "))
        });
        (shown.collect(), program.sources.len())
    }

    const COUNTS: &str = "SELECT auction, window_start AS starts, count(*) AS bids FROM bid
         GROUP BY auction, HOP(at, INTERVAL '2 seconds', INTERVAL '10 seconds')";

    #[test]
    fn a_part_with_a_name_that_is_used_twice_is_one_stage() {
        let most = "SELECT window_start AS starts, max(bids) AS bids FROM counts GROUP BY TUMBLE(starts, INTERVAL '2 seconds')";
        let (stages, sources) = shape(&format!(
            "WITH counts AS ({COUNTS}), most AS ({most})
             SELECT c.auction, c.bids FROM counts c JOIN most m ON c.bids = m.bids AND c.starts = m.starts"
        ));
        assert_eq!((stages, sources), (vec!["group 2.0 1.0".into(), "group 2.1".into(), "join out".into()], 1));
    }

    #[test]
    fn parts_that_are_written_twice_are_one_stage_too() {
        // Other names of columns, and another order of them in the list, are no other work.
        let again = "SELECT count(*) AS n, window_start, auction FROM bid b
             GROUP BY b.auction, HOP(b.at, INTERVAL '2 seconds', INTERVAL '10 seconds')";
        let (stages, sources) = shape(&format!(
            "SELECT c.auction FROM ({COUNTS}) c JOIN ({again}) d ON c.auction = d.auction AND c.starts = d.window_start"
        ));
        assert_eq!((stages, sources), (vec!["group 1.0 1.1".into(), "join out".into()], 1));
        // Conditions on the groups stand behind them, for each place apart.
        let (stages, sources) = shape(&format!(
            "SELECT auction FROM ({COUNTS}) c WHERE bids > 3 UNION ALL SELECT auction FROM ({COUNTS} HAVING max(price) > 1) d"
        ));
        assert_eq!((stages.len(), sources), (3, 2), "one of them has another aggregate: {stages:?}");
        let (stages, _) = shape(&format!(
            "SELECT auction FROM ({COUNTS}) c WHERE bids > 3 UNION ALL SELECT auction FROM ({COUNTS} HAVING count(*) > 5) d"
        ));
        assert_eq!(stages, ["group 1.0 1.1", "union out"]);
    }

    #[test]
    fn equal_parts_of_parts_are_shared() {
        let (stages, sources) = shape(&format!(
            "WITH counts AS ({COUNTS}), wide AS (SELECT starts, max(bids) AS m FROM counts GROUP BY starts),
                  a AS (SELECT * FROM wide UNION ALL SELECT * FROM wide), b AS (SELECT * FROM a UNION ALL SELECT * FROM a)
             SELECT * FROM b"
        ));
        // The union of the same rows is one that all four places read.
        assert_eq!(
            (stages, sources),
            (vec!["group 1.0".into(), "group 2.0 2.1".into(), "union 3.0 3.1".into(), "union out".into()], 1)
        );
    }

    /// Each of these differs from [`COUNTS`] in one thing.
    #[test]
    fn parts_that_differ_in_anything_are_not_shared() {
        let hop = "HOP(at, INTERVAL '2 seconds', INTERVAL '10 seconds')";
        for other in [
            COUNTS.replace("FROM bid", "FROM ask"),
            COUNTS.replace("FROM bid", "FROM bid WHERE price > 1"),
            COUNTS.replace("INTERVAL '2 seconds'", "INTERVAL '1 second'"),
            COUNTS.replace("INTERVAL '10 seconds'", "INTERVAL '20 seconds'"),
            COUNTS.replace(hop, "TUMBLE(at, INTERVAL '2 seconds')"),
            COUNTS.replace(hop, "SESSION(at, INTERVAL '2 seconds')").replace("window_start", "window_end"),
            COUNTS.replace("HOP(at, ", "HOP(at + INTERVAL '1 second', "),
            COUNTS.replace("auction", "bidder").replace("SELECT bidder", "SELECT bidder AS auction"),
            COUNTS.replace("GROUP BY auction", "GROUP BY auction, bidder"),
            COUNTS.replace("count(*)", "count(price)"),
            COUNTS.replace("count(*)", "count(DISTINCT price)"),
            COUNTS.replace("count(*)", "count(*) FILTER (WHERE price > 1)"),
            format!("{COUNTS} LATENESS INTERVAL '1 second'"),
        ] {
            let sql = format!(
                "SELECT c.auction, c.starts, c.bids FROM ({COUNTS}) c UNION ALL SELECT d.auction, d.starts, d.bids FROM ({other}) d"
            );
            let (stages, sources) = shape(&sql);
            assert_eq!(
                (stages, sources),
                (vec!["group 2.0".into(), "group 2.1".into(), "union out".into()], 2),
                "{other}"
            );
        }
    }

    #[test]
    fn constants_are_equal_only_where_no_expression_differs() {
        let of = |constant: &str| format!("SELECT at, max(price * {constant}) AS m FROM bid GROUP BY at");
        let both = |one: &str, other: &str| shape(&format!("{} UNION ALL {}", of(one), of(other))).0.len();
        assert_eq!(both("CAST('0' AS f64)", "CAST('0' AS f64)"), 2);
        assert_eq!(both("CAST('0' AS f64)", "CAST('-0' AS f64)"), 3, "the sign of a zero is seen in the product");
        assert_eq!(both("1.5", "2.5"), 3);
    }

    #[test]
    fn groups_that_give_changes_are_no_others() {
        let bests = "SELECT auction, max(price) AS best FROM bid GROUP BY auction";
        // The outer groups take the rows of before back, the other side of the union gives each row.
        let (stages, _) = shape(&format!(
            "WITH bests AS ({bests}) SELECT auction, best FROM bests
             UNION ALL SELECT 0 AS auction, sum(best) AS best FROM bests"
        ));
        assert_eq!(stages.iter().filter(|stage| stage.starts_with("group")).count(), 3, "{stages:?}");
        let (stages, _) =
            shape(&format!("WITH bests AS ({bests}) SELECT a.best FROM bests a JOIN bests b ON a.auction = b.auction"));
        assert_eq!(stages, ["group 1.0 1.1", "join out"]);
    }
}
