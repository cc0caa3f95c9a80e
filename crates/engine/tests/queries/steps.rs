//! Fixed queries of several steps, and groups without a window, over random rows in order.

use crate::case::Rule;
use crate::spec::Texts;

/// The multiple of a time that begins its window.
fn bucket(column: &str, seconds: i64) -> String {
    format!("floor_to({column}, {})", seconds * 1_000_000_000)
}

/// A query whose first columns are compared exactly, as many as there are but for the last ones.
fn query(ours: String, theirs: String, exact: usize, near: usize) -> Texts {
    let rules = [vec![Rule::Exact; exact], vec![Rule::Near; near]].concat();
    Texts { ours, theirs, rules, last_of: 0 }
}

fn alike(sql: &str, exact: usize, near: usize) -> Texts {
    query(sql.to_owned(), sql.to_owned(), exact, near)
}

/// All of them. They are for [tame](crate::events::Events::is_tame) rows.
pub(crate) fn fixed() -> Vec<Texts> {
    let tumbled = "FROM s GROUP BY k, TUMBLE(ts, INTERVAL '3 seconds')";
    let mut queries = vec![
        alike("SELECT DISTINCT k, v FROM s", 2, 0),
        alike("SELECT DISTINCT t, b, d FROM s WHERE v > 0", 3, 0),
        alike("SELECT DISTINCT coalesce(k, 'x'), v % 3 FROM s", 2, 0),
        alike("SELECT DISTINCT x, h FROM s", 2, 0),
        alike("SELECT ts, k, v FROM s WHERE v > 0 UNION ALL SELECT ts, k, w FROM q", 3, 0),
        Texts {
            last_of: 1,
            ..alike("SELECT k, count(*), sum(v), min(y), max(t), count(DISTINCT v), avg(d) FROM s GROUP BY k", 6, 1)
        },
        Texts { last_of: 2, ..alike("SELECT b, v - 1, count(*), stddev(y) FROM s GROUP BY b, v - 1", 3, 1) },
        query(
            format!("SELECT k, window_start, count(*) {tumbled} HAVING count(*) > 1 AND sum(v) > 0"),
            format!(
                "SELECT k, {} AS ws, count(*) FROM s GROUP BY k, ws HAVING count(*) > 1 AND sum(v) > 0",
                bucket("ts", 3)
            ),
            3,
            0,
        ),
    ];
    queries.extend(behind_joins());
    queries.extend(behind_windows(tumbled));
    queries.extend(of_lists(tumbled));
    queries
}

/// Operands of lists, behind the groups that make them and in the queries around those.
fn of_lists(tumbled: &str) -> Vec<Texts> {
    let list = |distinct: &str| format!("coalesce(array_agg({distinct}v ORDER BY v) FILTER (WHERE v IS NOT NULL), [])");
    let (all, each) = (list(""), list("DISTINCT "));
    let groups = format!("SELECT k, {} AS ws, {all} AS a, {each} AS l FROM s GROUP BY k, ws", bucket("ts", 3));
    vec![
        query(
            format!(
                "SELECT k, window_start, cardinality(array_agg(v)), (array_agg(DISTINCT v))[1], array_to_string(array_agg(DISTINCT v), '-'), \
                 3 = ANY(array_agg(v)) {tumbled} HAVING 2 = ANY(array_agg(v)) OR 3 > ALL(array_agg(DISTINCT v))"
            ),
            format!(
                "SELECT k, ws, len(a), l[1], array_to_string(l, '-'), list_contains(a, 3) FROM ({groups}) \
                 WHERE list_contains(a, 2) OR coalesce(list_max(l) < 3, TRUE)"
            ),
            6,
            0,
        ),
        query(
            format!(
                "SELECT x.k, x.l[2], array_position(x.l, x.n % 3) FROM (SELECT k, array_agg(DISTINCT v) AS l, count(*) AS n {tumbled}) x \
                 WHERE cardinality(x.l) > 1 AND x.l[1] <> ALL(ARRAY[0, 1]) AND NOT x.l && ARRAY[5, x.n]"
            ),
            format!(
                "SELECT k, l[2], list_position(l, n % 3) FROM ({}) \
                 WHERE len(l) > 1 AND l[1] NOT IN (0, 1) AND NOT list_has_any(l, [5, n])",
                groups.replace(" AS l", " AS l, count(*) AS n")
            ),
            3,
            0,
        ),
    ]
}

/// Windows over the rows of a join.
fn behind_joins() -> Vec<Texts> {
    let joined = "FROM s JOIN q ON s.k = q.k AND q.ts BETWEEN s.ts - INTERVAL '2 seconds' AND s.ts";
    let their_join = "FROM s JOIN q ON s.k = q.k AND q.ts BETWEEN s.ts - 2000000000 AND s.ts";
    let full = "FROM s FULL JOIN q ON s.k = q.k AND s.ts = q.ts";
    let joins = [(joined, their_join, "s.ts"), (joined, their_join, "q.ts"), (full, full, "q.ts")];
    let behind = joins.into_iter().map(|(ours, theirs, time)| {
        query(
            format!(
                "SELECT window_start, count(*), sum(w), max(s.v) {ours} GROUP BY TUMBLE({time}, INTERVAL '5 seconds')"
            ),
            format!(
                "SELECT {} AS ws, count(*), sum(w), max(s.v) {theirs} WHERE {time} IS NOT NULL GROUP BY ws",
                bucket(time, 5)
            ),
            4,
            0,
        )
    });
    behind.collect()
}

/// Windows over the rows of windows.
fn behind_windows(tumbled: &str) -> Vec<Texts> {
    let inner = format!("(SELECT k, {} AS ws, count(*) AS n, sum(v) AS sv FROM s GROUP BY k, ws)", bucket("ts", 3));
    let times = [("x.window_start", "ws"), ("x.window_end", "ws + 3000000000"), ("x.most", "ws + 3000000000")];
    let behind = times.into_iter().map(|(time, at)| {
        let most = if time == "x.most" { "window_end - INTERVAL '0 seconds'" } else { "max(ts)" };
        query(
            format!(
                "SELECT window_start, count(*), sum(n), sum(sv) FROM (SELECT k, window_start, window_end, {most} AS most, \
                 count(*) AS n, sum(v) AS sv {tumbled} LATENESS INTERVAL '20 seconds') x \
                 GROUP BY TUMBLE({time}, INTERVAL '9 seconds') LATENESS INTERVAL '20 seconds'"
            ),
            format!("SELECT {} AS o, count(*), sum(n), sum(sv) FROM {inner} GROUP BY o", bucket(&format!("({at})"), 9)),
            4,
            0,
        )
    });
    behind.collect()
}
