//! The steps of a schedule that join two streams, and that read the state of one: at once, from then on, and as `crossdock why` does.

use super::*;
use crossdock_nectarine::Overflow;

/// The select lists of the two sides of a join: all have both columns that joins compare.
const SIDES: [&str; 5] = [
    "flight, carrier",
    "carrier, late, flight",
    "flight, lower(carrier) AS carrier",
    "flight, crew, carrier",
    "flight, crew AS carrier",
];
/// The select lists of tables that follow the changes of a state.
const TABLES: [&str; 4] = ["flight, carrier", "late, flight", "*", "flight, crew"];

/// The view of the desk on a stream.
#[derive(Debug)]
pub(super) enum Seen {
    Nothing,
    Whole,
    Through(View),
}

impl Seen {
    /// The program of a query of one stream over what is seen of it, and that of the view, for records of a format.
    fn plan(&self, sql: &str, format: &Format) -> Result<(Option<Program>, Program), String> {
        let select = crossdock_query::parse(sql).unwrap();
        let view = match self {
            Seen::Nothing => return Err("may not read stream".to_owned()),
            Seen::Whole => None,
            Seen::Through(view) => Some(view.plan(format).unwrap()),
        };
        let program = select.plan(view.as_ref().map_or(format, |view| &view.output));
        program.map(|program| (view, program)).map_err(|why| why.message)
    }

    /// The row that a query makes of a record, by what is seen of that.
    fn row(&self, sql: &str, format: &Format, record: &[u8]) -> Option<Vec<String>> {
        let (view, program) = self.plan(sql, format).ok()?;
        let seen = view.map_or_else(|| Some(record.to_vec()), |view| made(&view, record))?;
        made(&program, &seen).map(|row| shown(&program.output, &row))
    }
}

/// A subscription to a join of `A` and `B`.
pub(super) struct Joined {
    /// The queries of both sides, and the column that they are joined by.
    sides: [String; 2],
    key: &'static str,
    is_of_admin: bool,
    /// The records that were published before it was asked for, and before the first with the same query was, which has the state.
    since: usize,
    state_since: usize,
    subscriber: Subscriber,
}

/// A table by flight that follows the state of `A`.
pub(super) struct Table {
    items: &'static str,
    /// The conditions that it has had, the present one last.
    conditions: Vec<&'static str>,
    subscriber: Subscriber,
}

impl Table {
    fn sql(&self, condition: &str) -> String {
        format!("SELECT {} FROM A SNAPSHOT THEN CHANGES WHERE {condition}", self.items)
    }
}

fn values(row: &[String]) -> Vec<String> {
    row.iter().map(|field| field.split_once(": ").unwrap().1.to_owned()).collect()
}

fn field<'r>(row: &'r [String], name: &str) -> Option<&'r str> {
    row.iter().find_map(|field| field.strip_prefix(name)?.strip_prefix(": "))
}

/// A record as the state keeps it: with the columns of the first format.
fn as_first(format: &Format, record: &[u8]) -> Vec<u8> {
    let record = Record::check(format, record).unwrap();
    let first = flights();
    let mut row = RecordBuilder::new(&first);
    for (at, field) in first.fields().iter().enumerate() {
        row.set(at, record.field(&field.name).unwrap()).unwrap();
    }
    row.finish().unwrap().to_vec()
}

/// Whether these sorted rows have all those ones, each as often at least.
fn has_all(rows: &[Vec<String>], those: &[Vec<String>]) -> bool {
    let mut rows = rows.iter();
    those.iter().all(|wanted| rows.any(|row| row == wanted))
}

impl World {
    fn any_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.random.usize(..of.len())]
    }

    /// The last record of each flight.
    fn state(&self) -> BTreeMap<String, Vec<u8>> {
        let of_a = self.published.iter().filter(|record| record.stream == "A");
        let key = |row: &[u8]| field(&shown(&flights(), row), "flight").unwrap().to_owned();
        of_a.map(|of| as_first(&of.format, &of.record)).map(|row| (key(&row), row)).collect()
    }

    /// The desk, the administrator, or both ask for a join of `A` and `B`, perhaps one that is there.
    pub(super) fn join(&mut self) {
        let known = self.random.usize(..=2 * self.joined.len());
        let (sides, key) = match self.joined.get(known) {
            Some(known) => (known.sides.clone(), known.key),
            None => {
                let mut side = |stream: &str| {
                    format!("SELECT {} FROM {stream} WHERE {}", self.any_of(&SIDES), self.any_of(&CONDITIONS))
                };
                ([side("A"), side("B")], self.any_of(&["flight", "carrier"]))
            }
        };
        let [a, b] = &sides;
        let sql = format!("SELECT a.*, b.* FROM ({a}) a JOIN ({b}) b ON a.{key} = b.{key}");
        let mut callers = [true, false];
        self.random.shuffle(&mut callers);
        for is_of_admin in callers.into_iter().take(self.random.usize(1..=2)) {
            let since = self.published.len();
            let same = |there: &&Joined| there.is_of_admin == is_of_admin && there.sides == sides && there.key == key;
            let state_since = self.joined.iter().find(same).map_or(since, |there| there.state_since);
            let outcome = reader(&self.addr, if is_of_admin { ADMIN } else { DESK }, &sql).connect();
            let refusal = self.refused_side(&sides, is_of_admin);
            match (outcome, refusal) {
                (Ok(subscriber), None) => {
                    let sides = sides.clone();
                    self.joined.push(Joined { sides, key, is_of_admin, since, state_since, subscriber });
                }
                (Err(why), Some(refusal)) => assert!(why.to_string().contains(&refusal), "{why}, not {refusal}"),
                (Ok(_), Some(why)) => panic!("{sql} through {:?} sees what is hidden: {why}", self.seen),
                (Err(why), None) => panic!("{sql} through {:?}: {why}", self.seen),
            }
        }
    }

    /// Why a join of these sides has to be refused, if it has to be.
    fn refused_side(&self, sides: &[String; 2], is_of_admin: bool) -> Option<String> {
        let newest = [self.newest(), flights()];
        let refused = |at: usize| self.seen_by(is_of_admin, at).plan(&sides[at], &newest[at]).err();
        // That of a stream comes before those of columns.
        let of_streams = (0..2).find(|at| matches!(self.seen_by(is_of_admin, *at), Seen::Nothing));
        of_streams.or(Some(0).filter(|_| refused(0).is_some())).or(Some(1)).and_then(refused)
    }

    fn seen_by(&self, is_of_admin: bool, stream: usize) -> &Seen {
        if is_of_admin { &Seen::Whole } else { &self.seen[stream] }
    }

    /// The pairs of a join whose later record came behind `since`.
    fn pairs(&self, of: &Joined, since: usize) -> Vec<Vec<String>> {
        let made = |at: usize| {
            let seen = self.seen_by(of.is_of_admin, at);
            let records = self.published.iter().enumerate().skip(of.state_since);
            let of_stream = records.filter(move |(_, record)| record.stream == ["A", "B"][at]);
            let row = move |(number, record): (usize, &Published)| {
                Some((number, seen.row(&of.sides[at], &record.format, &record.record)?))
            };
            of_stream.filter_map(row).collect::<Vec<_>>()
        };
        let (a, b) = (made(0), made(1));
        let pairs = a.iter().flat_map(|one| b.iter().map(move |other| (one, other)));
        let pairs =
            pairs.filter(|((one, a), (other, b))| one.max(other) >= &since && field(a, of.key) == field(b, of.key));
        let mut pairs: Vec<_> = pairs.map(|((_, a), (_, b))| [values(a), values(b)].concat()).collect();
        pairs.sort();
        pairs
    }

    /// The desk reads what the state of `A` has now.
    pub(super) fn snapshot(&mut self) {
        let (items, condition) = (self.any_of(&ITEMS), self.any_of(&CONDITIONS));
        self.read_state(items, "A", condition);
    }

    fn read_state(&mut self, items: &str, stream: &str, condition: &str) {
        let plain = format!("SELECT {items} FROM A WHERE {condition}");
        let sql = format!("SELECT {items} FROM {stream} SNAPSHOT WHERE {condition}");
        let outcome = reader(&self.addr, DESK, &sql).connect();
        let Some(mut subscriber) = self.as_planned(outcome, &plain) else { return };
        let state = self.state();
        let meant = state.values().filter_map(|record| self.seen[0].row(&plain, &flights(), record));
        let (mut got, mut meant) = (rows(&mut subscriber), meant.collect::<Vec<_>>());
        got.sort();
        meant.sort();
        assert_eq!(got, meant, "{sql} through {:?}", self.seen[0]);
    }

    /// The subscriber, unless it was refused: as the query of the state's rows has to be, through the view.
    fn as_planned<T>(&self, outcome: Result<T, Error>, plain: &str) -> Option<T> {
        match (outcome, self.seen[0].plan(plain, &flights())) {
            (Ok(made), Ok(_)) => Some(made),
            (Err(why), Err(over)) => {
                assert!(why.to_string().contains(&over), "{why}, not {over}");
                None
            }
            (Ok(_), Err(why)) => panic!("{plain} through {:?} has columns that are hidden: {why}", self.seen[0]),
            (Err(why), Ok(_)) => panic!("{plain} through {:?}: {why}", self.seen[0]),
        }
    }

    /// The desk asks `crossdock why` about records in any subscription. The command asks for all subscriptions with their queries and
    /// counters, the formats and the steps of the query, and is refused without the right to read them; it gets the records as any
    /// subscriber does, those of the state or those that come, and judges them itself.
    pub(super) fn ask_why(&mut self) {
        let desk = self.context.access().caller_of(&Identity::Key("desk".into())).unwrap();
        let may_read = self.context.access().admit(&desk, Action::Read);
        assert_eq!(may_read.is_ok(), self.desk_reads_reports);
        if may_read.is_err() {
            return;
        }
        let mut reports = vec![format!("{:?}", self.context.formats().unwrap())];
        for of in self.context.subscriptions().unwrap() {
            reports.push(format!("{of:?} {:?}", self.context.analyze_subscription(of.id).unwrap()));
        }
        // The crew of each record, whatever the rule shows: reports have no values of records.
        let values = reports.iter().find(|report| report.contains("crew of"));
        assert!(values.is_none(), "{values:?}");
        let condition = self.any_of(&CONDITIONS);
        if self.random.bool() {
            return self.read_state("*", "\"A\"", condition);
        }
        let (sql, since) = (format!("SELECT * FROM \"A\" WHERE {condition}"), self.published.len());
        let outcome = reader(&self.addr, DESK, &sql).overflow(Overflow::DropOldest).connect();
        let newest = self.newest();
        match (outcome, self.seen[0].plan(&sql, &newest)) {
            (Ok(subscriber), Ok(_)) => self.readings.push(Reading { sql, since, subscriber }),
            (Err(why), Err(over)) => assert!(why.to_string().contains(&over), "{why}, not {over}"),
            (outcome, over) => panic!("{sql} through {:?}: {over:?}, and it is {:?}", self.seen[0], outcome.err()),
        }
    }

    /// The desk follows the state of `A` as a table.
    pub(super) fn follow(&mut self) {
        let (items, condition) = (self.any_of(&TABLES), self.any_of(&CONDITIONS));
        let plain = format!("SELECT {items} FROM A WHERE {condition}");
        let sql = format!("SELECT {items} FROM A SNAPSHOT THEN CHANGES WHERE {condition}");
        let outcome = reader(&self.addr, DESK, &sql).connect();
        let Some(subscriber) = self.as_planned(outcome, &plain) else { return };
        let (_, program) = self.seen[0].plan(&plain, &flights()).unwrap();
        // Without its key it is no table.
        if program.output.field("flight").is_some() {
            self.tables.push(Table { items, conditions: vec![condition], subscriber });
        }
    }

    /// A table gets another condition, from the desk or the administrator: neither lets it see more.
    pub(super) fn change_query(&mut self) {
        if self.tables.is_empty() {
            return self.follow();
        }
        let (at, condition, is_by_admin) =
            (self.random.usize(..self.tables.len()), self.any_of(&CONDITIONS), self.random.bool());
        let (context, table) = (&self.context, &mut self.tables[at]);
        let (sql, until) = (table.sql(condition), Instant::now() + PATIENCE);
        let plain = format!("SELECT {} FROM A WHERE {condition}", table.items);
        let outcome = loop {
            let set = match is_by_admin {
                true => {
                    let number = table.subscriber.number().unwrap();
                    context.set_subscription_query(number, &sql).unwrap().map_err(|why| why.to_string())
                }
                false => table.subscriber.set_query(sql.as_str()).map_err(|why| why.to_string()),
            };
            match set {
                // All that is there by the query before is to come first.
                Err(why) if why.contains("try again") => assert!(Instant::now() < until, "{why}"),
                set => break set,
            }
        };
        match (outcome, self.seen[0].plan(&plain, &flights())) {
            (Ok(()), Ok(_)) => table.conditions.push(condition),
            (Err(why), Err(over)) => assert!(why.contains(&over), "{why}, not {over}"),
            (outcome, over) => panic!("{sql} through {:?}: {outcome:?}, and not {over:?}", self.seen[0]),
        }
    }

    /// All streams have ended: subscribers have what they may see, and nothing else.
    pub(super) fn check_stateful(&mut self) {
        for mut of in std::mem::take(&mut self.joined) {
            let mut got: Vec<Vec<String>> = rows(&mut of.subscriber).iter().map(|row| values(row)).collect();
            got.sort();
            // Rows that a query made before for another subscriber may be on their way to both.
            let (may, must) = (self.pairs(&of, of.state_since), self.pairs(&of, of.since));
            let what = format!("{:?} by {} through {:?}, of admin: {}", of.sides, of.key, self.seen, of.is_of_admin);
            assert!(has_all(&may, &got), "{what}: {got:?} of {may:?}");
            assert!(has_all(&got, &must), "{what}: {must:?} in {got:?}");
        }
        let state = self.state();
        for mut table in std::mem::take(&mut self.tables) {
            let seen = &self.seen[0];
            let plain = |condition: &str| format!("SELECT {} FROM A WHERE {condition}", table.items);
            let may_see = |row: &Vec<String>| {
                let of_a = self.published.iter().filter(|of| of.stream == "A");
                let mut records = of_a.map(|of| as_first(&of.format, &of.record));
                records.any(|record| {
                    let mut queries = table.conditions.iter().map(|condition| plain(condition));
                    queries.any(|query| seen.row(&query, &flights(), &record).as_ref() == Some(row))
                })
            };
            let mut kept: BTreeMap<String, Vec<String>> = BTreeMap::new();
            for mut row in rows(&mut table.subscriber) {
                let change = row.pop().unwrap();
                let is = |word: &str| change == format!("_change: {:?}", Value::Text(word.as_bytes()));
                assert!(may_see(&row), "{row:?} of {} through {seen:?}", plain("any"));
                let key = field(&row, "flight").unwrap().to_owned();
                let before = if is("leave") { kept.remove(&key) } else { kept.insert(key, row.clone()) };
                assert_eq!(before.is_some(), !is("enter"), "{change} of {row:?}, after {before:?}");
                assert!(!is("leave") || before.as_ref() == Some(&row), "{row:?} leaves, and {before:?} is there");
            }
            let query = plain(table.conditions.last().unwrap());
            let meant =
                state.iter().filter_map(|(key, record)| Some((key.clone(), seen.row(&query, &flights(), record)?)));
            assert_eq!(kept, meant.collect(), "{query} through {seen:?}");
        }
    }
}
