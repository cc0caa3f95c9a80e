//! One case: rows of streams, a query, and how its result is compared. It is kept as a text file with the expected rows in it.

use std::fmt::Write as _;

use crossdock_format::{FieldType, Format, RecordBuilder, Value};

/// A row's values as texts. Bytes are hexadecimal digits behind `\x`, times nanoseconds since 1970.
pub(crate) type Values = Vec<Option<String>>;

/// A stream's name, and its schema: a line for each column, behind that of a foreign layout if it has one. With a key it is a reference
/// table, whose rows are all there before those of streams come.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Stream {
    pub(crate) name: String,
    pub(crate) layout: Option<String>,
    pub(crate) columns: Vec<String>,
    pub(crate) key: Vec<String>,
}

impl Stream {
    pub(crate) fn new(name: &str, columns: Vec<String>) -> Stream {
        Stream { name: name.to_owned(), columns, ..Stream::default() }
    }

    pub(crate) fn format(&self) -> Format {
        Format::parse_schema(&self.schema()).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    /// The schema as a text.
    pub(crate) fn schema(&self) -> String {
        self.layout.iter().chain(&self.columns).map(|line| format!("{line}\n")).collect()
    }
}

/// How the values of a column of the result are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// The same value of the same class of types.
    Exact,
    /// The same number, whatever its type: functions of both databases that give another type of number.
    Number,
    /// Numbers that differ by rounding: means and deviations, whose sums are added in another order.
    Near,
}

impl Rule {
    const ALL: [(Rule, &str); 3] = [(Rule::Exact, "exact"), (Rule::Number, "number"), (Rule::Near, "near")];

    fn word(self) -> &'static str {
        Rule::ALL.iter().find(|(rule, _)| *rule == self).map_or("exact", |(_, word)| word)
    }
}

/// Rows of streams in order of arrival, a query over them, and what is compared of its result.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Case {
    pub(crate) streams: Vec<Stream>,
    /// The number of the stream, and the values of its columns.
    pub(crate) rows: Vec<(usize, Values)>,
    pub(crate) query: String,
    /// For each column of the result; the number of the row, which a query without state has in front, is not among them.
    pub(crate) rules: Vec<Rule>,
    /// Of the rows with this many equal first columns only the last one counts: each row brings its group's. With 0, all do.
    pub(crate) last_of: usize,
}

impl Case {
    /// As a file's text: with the rows that are expected, and lines of remarks at its start.
    pub(crate) fn to_text(&self, remarks: &str, expected: &[Values]) -> String {
        let mut text: String = remarks.lines().map(|line| format!("# {line}\n")).collect();
        let json = |values: &Values| serde_json::to_string(values).unwrap();
        for stream in &self.streams {
            match stream.key.is_empty() {
                true => writeln!(text, "\nstream {}", stream.name).unwrap(),
                false => writeln!(text, "\ntable {} {}", stream.name, stream.key.join(",")).unwrap(),
            }
            text += &stream.schema();
        }
        text += "\nrows\n";
        for (stream, values) in &self.rows {
            writeln!(text, "{} {}", self.streams[*stream].name, json(values)).unwrap();
        }
        let rules: Vec<&str> = self.rules.iter().map(|rule| rule.word()).collect();
        write!(text, "\nquery\n{}\n\ncompare {}\n", self.query, rules.join(" ")).unwrap();
        if self.last_of > 0 {
            writeln!(text, "last of each {}", self.last_of).unwrap();
        }
        text += "\nexpected\n";
        expected.iter().for_each(|values| writeln!(text, "{}", json(values)).unwrap());
        text
    }

    /// Reads a file's text; the error says the line.
    pub(crate) fn from_text(text: &str) -> Result<(Case, Vec<Values>), String> {
        let mut case =
            Case { streams: Vec::new(), rows: Vec::new(), query: String::new(), rules: Vec::new(), last_of: 0 };
        let (mut expected, mut section) = (Vec::new(), "");
        for (number, line) in text.lines().enumerate() {
            let wrong = |why: &str| format!("line {}: {why}: {line}", number + 1);
            let values = |json: &str| serde_json::from_str::<Values>(json).map_err(|error| wrong(&error.to_string()));
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match (section, line.split_once(' ')) {
                (_, Some(("stream", name))) if case.rows.is_empty() => {
                    section = "stream";
                    case.streams.push(Stream { name: name.to_owned(), ..Stream::default() });
                }
                (_, Some(("table", named))) if case.rows.is_empty() => {
                    section = "stream";
                    let (name, key) = named.split_once(' ').ok_or_else(|| wrong("a table has a key"))?;
                    let key = key.split(',').map(str::to_owned).collect();
                    case.streams.push(Stream { key, ..Stream::new(name, Vec::new()) });
                }
                (_, Some(("compare", words))) => {
                    let rule = |word| Rule::ALL.iter().find(|(_, known)| *known == word).map(|(rule, _)| *rule);
                    let rules = words.split_whitespace().map(rule).collect::<Option<_>>();
                    case.rules = rules.ok_or_else(|| wrong("the rules are `exact`, `number` and `near`"))?;
                }
                (_, Some(("last", words))) => {
                    let columns = words.strip_prefix("of each ").and_then(|count| count.parse().ok());
                    case.last_of = columns.ok_or_else(|| wrong("`last of each` needs a number of columns"))?;
                }
                (_, None) if ["rows", "query", "expected"].contains(&line) => section = line,
                ("stream", Some(("layout", _))) => {
                    case.streams.last_mut().into_iter().for_each(|stream| stream.layout = Some(line.to_owned()));
                }
                ("stream", _) => {
                    case.streams.last_mut().into_iter().for_each(|stream| stream.columns.push(line.to_owned()));
                }
                ("rows", Some((name, json))) => {
                    let stream = case.streams.iter().position(|stream| stream.name == name);
                    case.rows.push((stream.ok_or_else(|| wrong("there is no such stream"))?, values(json)?));
                }
                ("query", _) => {
                    case.query += if case.query.is_empty() { "" } else { " " };
                    case.query += line;
                }
                ("expected", _) => expected.push(values(line)?),
                _ => return Err(wrong("it is in no section")),
            }
        }
        Ok((case, expected))
    }
}

/// The bytes of a record with these values.
pub(crate) fn record(builder: &mut RecordBuilder, values: &Values) -> Vec<u8> {
    builder.clear();
    for (index, text) in values.iter().enumerate() {
        let Some(text) = text else { continue };
        let ty = builder.format().fields()[index].ty;
        let bytes;
        let value = match ty {
            FieldType::Timestamp => Value::Timestamp(text.parse().unwrap()),
            FieldType::F32 | FieldType::F64 => Value::Float(text.parse().unwrap()),
            FieldType::Bool => Value::Bool(text == "true"),
            FieldType::Char(_) | FieldType::String | FieldType::Enum { .. } => Value::Text(text.as_bytes()),
            FieldType::Decimal { scale, .. } => Value::Decimal { unscaled: units(text, scale), scale },
            FieldType::List => {
                set_list(builder, index, text);
                continue;
            }
            FieldType::Bytes => {
                bytes = bytes_of(text);
                Value::Bytes(&bytes)
            }
            _ => text.parse().map_or_else(|_| Value::Uint(text.parse().unwrap()), Value::Int),
        };
        builder.set(index, value).unwrap_or_else(|error| panic!("{text}: {error}"));
    }
    builder.finish().unwrap().to_vec()
}

/// Sets a list of whole numbers or texts, which stands as JSON.
fn set_list(builder: &mut RecordBuilder, field: usize, text: &str) {
    let elements: Vec<serde_json::Value> = serde_json::from_str(text).unwrap();
    builder.begin_list(field).unwrap();
    for element in &elements {
        let value =
            element.as_str().map_or_else(|| Value::Int(element.as_i64().unwrap()), |text| Value::Text(text.as_bytes()));
        builder.push(value).unwrap_or_else(|error| panic!("{text}: {error}"));
    }
    builder.end_list().unwrap();
}

/// The digits of a decimal, which has as many behind the point as its scale, or no point.
fn units(text: &str, scale: u8) -> i128 {
    let digits = text.replace('.', "").parse::<i128>().unwrap();
    if text.contains('.') { digits } else { digits * 10_i128.pow(scale.into()) }
}

fn bytes_of(text: &str) -> Vec<u8> {
    let digits = text.strip_prefix("\\x").unwrap_or(text);
    (0..digits.len() / 2).map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap()).collect()
}
