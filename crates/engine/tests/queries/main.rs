//! Random queries over random rows, against DuckDB: expressions, joins by time, joins with reference tables, windows, OVER, and groups that
//! change.
//!
//! `CROSSDOCK_DUCKDB_PYTHON` names a Python that has the module `duckdb` (`cargo xtask test` makes one); without it the tests of random
//! queries say so and pass. `CROSSDOCK_DUCKDB_SEED` asks for others. `cargo xtask fuzz queries` runs many of them.
//!
//! A failing query is made smaller and kept in `tests/queries/kept`, with its rows and those that DuckDB gives. All kept cases run without
//! DuckDB.
#![allow(clippy::unwrap_used, clippy::print_stdout)] // a test that fails may panic, and prints its seed

mod calls;
mod case;
mod changes;
mod duck;
mod duckish;
mod events;
mod expressions;
mod functions;
#[path = "../../../query/tests/generate/mod.rs"]
mod generate;
mod joins;
mod lists;
mod lookups;
mod ours;
mod over;
mod rebuild;
mod shared;
mod shrink;
mod spec;
#[path = "../stateful_support/mod.rs"]
mod stateful_support;
mod steps;
#[path = "../support/mod.rs"]
mod support;
mod windows;

use std::path::{Path, PathBuf};

use case::Case;
use changes::ChangesSpec;
use duck::Duck;
use events::Events;
use expressions::ExpressionsBuilder;
use fastrand::Rng;
use joins::JoinSpec;
use lists::Lists;
use lookups::LookupSpec;
use ours::{Compared, Failure, judge};
use over::OverSpec;
use shared::SharedSpec;
use shrink::Failing;
use spec::Spec;
use windows::WindowSpec;

/// Queries of each kind that a test run makes.
const QUERIES: u64 = 300;

/// Failures after which a run ends.
const MOST_FAILURES: usize = 10;

/// A kind of queries.
#[derive(Clone, Copy, Debug, PartialEq)]
enum QueryKind {
    Expressions,
    Joins,
    Windows,
    Over,
    Tables,
    Changes,
}

impl QueryKind {
    const ALL: [QueryKind; 6] = [
        QueryKind::Expressions,
        QueryKind::Joins,
        QueryKind::Windows,
        QueryKind::Over,
        QueryKind::Tables,
        QueryKind::Changes,
    ];

    fn name(self) -> &'static str {
        match self {
            QueryKind::Expressions => "expressions",
            QueryKind::Joins => "joins",
            QueryKind::Windows => "windows",
            QueryKind::Over => "over",
            QueryKind::Tables => "tables",
            QueryKind::Changes => "changes",
        }
    }

    /// Queries over the rows of one batch.
    fn queries(self) -> usize {
        if self == QueryKind::Expressions { 40 } else { 8 }
    }
}

/// Makes batches of a kind.
struct CasesBuilder {
    kind: QueryKind,
    expressions: Option<ExpressionsBuilder>,
    lists: Lists,
    fixed: Vec<Spec>,
}

impl CasesBuilder {
    fn new(kind: QueryKind) -> CasesBuilder {
        let expressions = (kind == QueryKind::Expressions).then(ExpressionsBuilder::new);
        let fixed = if kind == QueryKind::Over { over::fixed() } else { steps::fixed() };
        CasesBuilder { kind, expressions, lists: Lists::new(), fixed: fixed.into_iter().map(Spec::Fixed).collect() }
    }

    /// The rows of a batch, and queries over them.
    fn batch(&mut self, seed: u64) -> (Case, Vec<Spec>) {
        let queries = self.kind.queries();
        if let Some(expressions) = &mut self.expressions {
            return expressions.batch(seed, queries);
        }
        let lists = &mut self.lists;
        lists.begin(seed);
        let mut events = Events::new(seed);
        let mut random = Rng::with_seed(!seed);
        if self.kind == QueryKind::Tables {
            lookups::with_table(&mut events, &mut random);
        }
        let spec = |_| match self.kind {
            QueryKind::Joins => Spec::Join(JoinSpec::new(&events, lists, &mut random)),
            QueryKind::Tables => Spec::Lookup(LookupSpec::new(&events, lists, &mut random)),
            QueryKind::Changes => Spec::Changes(ChangesSpec::new(lists, &mut random)),
            // The fixed queries say nothing of rows out of order.
            _ if events.is_tame && random.bool() => self.fixed[random.usize(0..self.fixed.len())].clone(),
            QueryKind::Over => Spec::Over(OverSpec::new(lists, &mut random)),
            _ if random.u8(0..4) == 0 => Spec::Shared(SharedSpec::new(&events, lists, &mut random)),
            _ => Spec::Window(WindowSpec::new(&events, lists, &mut random)),
        };
        let specs = (0..queries).map(spec).collect();
        (events.case, specs)
    }
}

/// Runs this many queries of a kind. Failing ones are made smaller, kept, and printed. Returns how many there were.
fn compare(kind: QueryKind, seed: u64, count: u64) -> Option<usize> {
    let mut duck = Duck::start()?;
    let (mut builder, mut seeds) = (CasesBuilder::new(kind), Rng::with_seed(seed));
    let (mut done, mut sum, mut failures) = (0, Compared::default(), 0);
    while done < count && failures < MOST_FAILURES {
        let (rows, mut specs) = builder.batch(seeds.u64(..));
        specs.truncate((count - done) as usize);
        let theirs: Vec<String> = specs.iter().map(|spec| spec.texts().theirs).collect();
        let answers = duck.ask(&rows, &theirs);
        for (spec, answer) in specs.iter().zip(&answers) {
            done += 1;
            match Failing::of(&rows, spec, answer) {
                Ok(compared) => {
                    sum.rows += compared.rows;
                    sum.errors += compared.errors;
                }
                Err(failing) if failures < MOST_FAILURES => {
                    failures += 1;
                    report(kind, (seed, done), &failing.shrunk(&mut duck));
                }
                Err(_) => {}
            }
        }
    }
    println!(
        "queries: {done} {}, {} rows compared, {} row errors, {failures} differ, --seed {seed}",
        kind.name(),
        sum.rows,
        sum.errors
    );
    assert!(sum.rows > 2 * sum.errors, "too little was compared");
    Some(failures)
}

fn kept() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/queries/kept")
}

/// Keeps a failing case, and prints what a person needs to go on.
fn report(kind: QueryKind, (seed, number): (u64, u64), failing: &Failing) {
    let Failing { case, expected, failure, .. } = failing;
    println!("\n{failure}\nours: {}\nDuckDB's: {}", case.query, failing.theirs());
    println!("found by: cargo xtask fuzz queries --kind {} --seed {seed} --count {number}", kind.name());
    if matches!(failure, Failure::Duck(_)) {
        return println!("remedy: correct the generator in crates/engine/tests/queries");
    }
    let first = failure.to_string().lines().next().unwrap_or_default().to_owned();
    let remarks = format!(
        "Found by --kind {} --seed {seed}, case {number}: {first}\nDuckDB's: {}",
        kind.name(),
        failing.theirs()
    );
    let name = format!("{}-{seed}-{number}.txt", kind.name());
    std::fs::write(kept().join(&name), case.to_text(&remarks, expected)).unwrap();
    let path = format!("crates/engine/tests/queries/kept/{name}");
    println!("the smallest case: {path}\nto repeat it: cargo xtask fuzz queries {path}");
    println!(
        "remedy: correct crates/query or crates/engine, and keep the file under a name that says what it is; where the difference is \
         meant, state it in docs/sql.md, add it to the rules of the generator in crates/engine/tests/queries, and delete the file"
    );
}

/// The number in an environment variable.
fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

fn hold(kind: QueryKind) {
    let failures = compare(kind, setting("CROSSDOCK_DUCKDB_SEED", 2013), QUERIES);
    assert_eq!(failures.unwrap_or(0), 0, "queries differ from DuckDB; they are above");
}

#[test]
fn expressions_give_what_duckdb_gives() {
    hold(QueryKind::Expressions);
}

#[test]
fn joins_give_what_duckdb_gives() {
    hold(QueryKind::Joins);
}

#[test]
fn windows_give_what_duckdb_gives() {
    hold(QueryKind::Windows);
}

#[test]
fn rows_before_give_what_duckdb_gives() {
    hold(QueryKind::Over);
}

#[test]
fn joins_with_tables_give_what_duckdb_gives() {
    hold(QueryKind::Tables);
}

#[test]
fn groups_that_change_give_what_duckdb_gives() {
    hold(QueryKind::Changes);
}

fn repeat(path: &Path) -> Result<Compared, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let (case, expected) = Case::from_text(&text)?;
    judge(&case, &expected).map_err(|failure| format!("{failure}\n{}", case.query))
}

fn repeat_all(paths: &[PathBuf]) {
    let wrong = |path: &PathBuf| repeat(path).err().map(|why| format!("{}: {why}", path.display()));
    let failures: Vec<String> = paths.iter().filter_map(wrong).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    println!("queries: {} kept cases", paths.len());
}

#[test]
fn kept_cases_give_what_duckdb_gave() {
    let entries = std::fs::read_dir(kept()).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "txt"));
    paths.sort();
    assert!(!paths.is_empty());
    repeat_all(&paths);
}

#[test]
fn cases_are_read_as_they_were_written() {
    for kind in QueryKind::ALL {
        let (rows, specs) = CasesBuilder::new(kind).batch(7);
        let (case, _) = specs[0].texts().over(&rows);
        let expected = vec![vec![Some("a \"b\"\n#".to_owned()), None]];
        assert_eq!(Case::from_text(&case.to_text("one\ntwo", &expected)), Ok((case, expected)));
    }
    let wrong = Case::from_text("stream s\nts timestamp\n\nrows\nq [\"1\"]\n").unwrap_err();
    assert_eq!(wrong, "line 5: there is no such stream: q [\"1\"]");
}

/// Texts that the queries of a kind and the rows under them have.
const PARTS: &[(QueryKind, &[&str])] = &[
    (
        QueryKind::Expressions,
        &[
            "layout foreign big",
            "layout foreign little",
            " null\n",
            "\"NaN\"",
            "\"inf\"",
            "-9223372036854775808",
            "\"\"",
            "日本",
        ],
    ),
    (
        QueryKind::Expressions,
        &["upper(", "abs(", "round(", "TRY(", " WHERE ", "ILIKE", "CASE", "numeric", "IN (", "BETWEEN"],
    ),
    (QueryKind::Expressions, &["array_position(", " ANY(", "l[", "[]\""]),
    (
        QueryKind::Joins,
        &[
            "ASOF JOIN",
            "ASOF LEFT",
            "FULL JOIN",
            "LEFT JOIN",
            "RIGHT JOIN",
            "USING (k",
            "BETWEEN",
            "s.ts = q.ts",
            "LATENESS",
            "null]",
            "window_start",
            "JOIN q r",
            ", s.nums",
            " ANY(q.nums)",
            " ALL(s.tags)",
            "s.id IS NULL",
        ],
    ),
    (
        QueryKind::Windows,
        &[
            "TUMBLE",
            "HOP",
            "SESSION",
            "HAVING",
            "WHERE",
            "DISTINCT",
            "FILTER",
            "UNION ALL",
            "NaN",
            "array_agg(",
            "DESC NULLS LAST LIMIT",
            "FROM p JOIN m",
            "FULL JOIN p z",
            "FROM p UNION ALL SELECT * FROM p",
            "i16[]",
            "[]\"",
            "(tags[",
            " ANY(nums)",
            " ALL(tags)",
            "tags @> ARRAY[",
            "ANY(array_agg(v))",
        ],
    ),
    (QueryKind::Tables, &["\ntable q k\n", "LEFT JOIN", "JOIN q r", "WHERE", "table q ts\n", "null]", "q.tags["]),
    (
        QueryKind::Changes,
        &["JOIN q", "CHANGES", "HAVING", "DISTINCT", "OVER", "WHERE", "FILTER", "UNION ALL", "q.tags["],
    ),
    (QueryKind::Over, &["PARTITION BY", "UNBOUNDED", "lag(", "row_number()", "FILTER", "WINDOW w", "(nums["]),
];

#[test]
fn the_kinds_have_the_cases_that_they_are_to_have() {
    for (kind, parts) in PARTS {
        let mut builder = CasesBuilder::new(*kind);
        let mut all = String::new();
        for seed in 0..40 {
            let (rows, specs) = builder.batch(seed);
            specs.iter().for_each(|spec| all += &spec.texts().over(&rows).0.to_text("", &[]));
        }
        parts.iter().for_each(|part| assert!(all.contains(part), "no {part} among the {}", kind.name()));
    }
}

/// For `cargo xtask fuzz queries`, which sets the variables.
#[test]
#[ignore = "cargo xtask fuzz queries runs it"]
fn fuzz() {
    if let Some(files) = std::env::var_os("CROSSDOCK_QUERIES_FILES") {
        return repeat_all(&std::env::split_paths(&files).collect::<Vec<_>>());
    }
    let wanted = std::env::var("CROSSDOCK_QUERIES_KIND").unwrap_or_default();
    let kind = QueryKind::ALL.into_iter().find(|kind| kind.name() == wanted);
    let kind = kind.unwrap_or_else(|| panic!("CROSSDOCK_QUERIES_KIND is `{wanted}`"));
    let failures = compare(kind, setting("CROSSDOCK_DUCKDB_SEED", 1), setting("CROSSDOCK_QUERIES_COUNT", 1000));
    assert_eq!(failures, Some(0), "queries differ from DuckDB; they are above");
}
