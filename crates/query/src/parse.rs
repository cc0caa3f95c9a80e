//! SQL text → [`Select`]: one stream, a select list, a condition.
//!
//! The clauses are read here, one by one, so that what is not written here is refused at its place; only names and
//! expressions are left to `sqlparser`. Text from outside is bounded before it is parsed: its length, how deep it nests
//! and how long its chains are, because a syntax tree is built and freed recursively.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use sqlparser::ast::{self, SelectItem, SelectItemQualifiedWildcardKind, WildcardAdditionalOptions};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Location, Token, Word};

use crate::bind;
use crate::error::{Position, QueryError};
use crate::program::Program;
use crate::stateful::KeyedState;
use crate::tokens::{self, DIALECT, Form, ORDERS, POSSIBLE_WITH_STATE, is_word, sentence};
use crossdock_format::{Format, MAX_NESTING};

pub(crate) use crate::tokens::POSSIBLE;
pub use crate::tokens::{MAX_OPERATORS, MAX_SQL_BYTES};

/// A query that was read, but knows no format yet: names are resolved by [`Select::plan`], once per format.
#[derive(Clone, Debug)]
pub struct Select {
    sql: String,
    stream: String,
    /// Whether it was written in double quotes, and so means exactly this name.
    is_stream_quoted: bool,
    stream_at: Option<Position>,
    alias: Option<Name>,
    parsed: Arc<Parsed>,
    /// Whether an expression that has a row error is null.
    null_for_errors: bool,
    /// The query that it reads through, if it does not see all of its stream.
    view: Option<Arc<Select>>,
    /// The state that it reads.
    state: Option<Arc<KeyedState>>,
}

/// The syntax trees. Shared, because cloning them is recursive.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) items: Vec<Item>,
    condition: Option<Arc<Condition>>,
    parameters: Vec<(String, Option<Position>)>,
    clauses: Clauses,
}

impl Parsed {
    /// A select list and a condition.
    pub(crate) fn of(items: Vec<Item>, condition: Option<Arc<Condition>>) -> Parsed {
        Parsed { items, condition, parameters: Vec::new(), clauses: Clauses::default() }
    }
}

/// The clauses of a subscription, as they were read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clauses {
    pub(crate) slow: Option<ReadPolicy>,
    pub(crate) rate: Option<ReadRate>,
    /// Not the subscription's, but the query's own.
    pub(crate) state: Option<ReadBound>,
    pub(crate) snapshot: Option<ReadSnapshot>,
    pub(crate) order: Option<Arc<ReadOrder>>,
    pub(crate) limit: Option<u32>,
    pub(crate) limit_at: Option<Position>,
    /// Where the first of them begins.
    pub(crate) at: Option<Position>,
}

/// `ON SLOW`.
#[derive(Clone, Debug)]
pub(crate) enum ReadPolicy {
    Block,
    DropOldest,
    Conflate(ReadPart),
    Sample(NonZeroU32),
    Keep(ReadPart),
    Disconnect,
}

/// `MAX RATE`.
#[derive(Clone, Debug)]
pub(crate) struct ReadRate {
    pub(crate) per_second: NonZeroU32,
    pub(crate) by: Option<ReadPart>,
}

/// `MAX STATE`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadBound {
    pub(crate) bytes: u64,
    pub(crate) at: Option<Position>,
}

/// The records that a query with `SNAPSHOT` gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Snapshot {
    /// Those that are there, and no more.
    Once,
    /// Those that are there, and from then on each change.
    ThenChanges,
    /// The same, and of a row that is in the place of another only the columns that have changed.
    ThenDeltas,
}

/// `SNAPSHOT`, as it was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadSnapshot {
    pub(crate) snapshot: Snapshot,
    pub(crate) at: Option<Position>,
}

/// `ORDER BY`, as it was read.
#[derive(Debug)]
pub(crate) struct ReadOrder {
    pub(crate) by: Vec<ReadOrderItem>,
    pub(crate) at: Option<Position>,
}

/// An expression of it.
#[derive(Debug)]
pub(crate) struct ReadOrderItem {
    pub(crate) expr: ast::Expr,
    pub(crate) at: Option<Position>,
    pub(crate) direction: SortDirection,
}

/// How the values of one expression are put in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SortDirection {
    /// The greatest comes first.
    pub descending: bool,
    /// Nulls come first rather than last.
    pub nulls_first: bool,
}

/// A part's syntax trees and its text.
#[derive(Clone, Debug)]
pub(crate) struct ReadPart {
    pub(crate) parsed: Arc<Parsed>,
    pub(crate) text: String,
}

impl Clauses {
    /// The refusal of the clauses in a query that is not a subscription's, if there is one.
    pub(crate) fn refused(&self) -> Option<QueryError> {
        if let Some(snapshot) = self.snapshot {
            let message = "SNAPSHOT belongs to a subscription: this query makes a stream, or is a conversion";
            return Some(QueryError::new(message, snapshot.at).hint("leave it out here"));
        }
        let message = "ON SLOW and MAX RATE belong to a subscription: this query makes a stream, or is a conversion";
        let hint = "leave the clause out here, and write it in the query of the subscriber";
        let is_any = self.slow.is_some() || self.rate.is_some();
        is_any.then(|| QueryError::new(message, self.at).hint(hint))
    }
}

/// WHERE, and where it begins.
#[derive(Debug)]
pub(crate) struct Condition {
    pub(crate) expr: ast::Expr,
    pub(crate) at: Option<Position>,
}

/// A name as it was written. Unquoted names match without regard to case where no name matches exactly.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    pub(crate) text: String,
    pub(crate) quoted: bool,
}

/// A window of the clause WINDOW, which calls with OVER name.
#[derive(Debug)]
pub(crate) struct NamedWindow {
    pub(crate) name: Name,
    pub(crate) spec: ast::WindowSpec,
}

impl NamedWindow {
    /// Whether `OVER name` means it.
    pub(crate) fn is_called(&self, name: &ast::Ident) -> bool {
        let Name { text, quoted } = &self.name;
        name.value == *text
            || (!quoted && name.quote_style.is_none() && name.value.to_lowercase() == text.to_lowercase())
    }
}

/// One entry of the select list.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    /// `*` or `A.*`
    All { qualifier: Option<ast::Ident>, at: Option<Position> },
    /// An expression, perhaps with a name of its own.
    Expr { expr: Box<ast::Expr>, alias: Option<ast::Ident>, at: Option<Position> },
}

/// Reads one query: `SELECT … FROM stream [[AS] alias] [WHERE …] [;]`, in PostgreSQL's dialect.
///
/// # Errors
/// Anything else is refused with its place and what is possible.
pub fn parse(sql: &str) -> Result<Select, QueryError> {
    let select = parse_subscription(sql)?;
    match select.clauses().refused() {
        Some(error) => Err(error.over(sql)),
        None => Ok(select),
    }
}

/// Reads the query of a subscription, which may also have the clauses `ON SLOW …` and `MAX RATE …` behind WHERE.
///
/// # Errors
/// Anything else is refused with its place and what is possible.
pub fn parse_subscription(sql: &str) -> Result<Select, QueryError> {
    Reader::new(sql, Form::Plain).and_then(|mut reader| reader.select(sql)).map_err(|error| error.over(sql))
}

impl Select {
    /// The stream that FROM names: as it was written, or as it is spelt once that was [found out](Select::find_stream).
    pub fn stream(&self) -> &str {
        &self.stream
    }

    /// Finds the stream that FROM names among the known streams, by the rule for columns: a name matches exactly; one without
    /// quotes that matches none also means the only stream that differs from it in case alone. [`Select::stream`] has its
    /// spelling from then on. Nothing changes where no stream is alike.
    ///
    /// # Errors
    /// Several streams differ from the name in case alone.
    pub fn find_stream<'n>(&mut self, known: impl IntoIterator<Item = &'n str>) -> Result<(), QueryError> {
        if let Some(spelt) = self.named().found(known).map_err(|error| error.over(&self.sql))? {
            spelt.clone_into(&mut self.stream);
        }
        Ok(())
    }

    /// All records of a stream of this name, which another query makes, with the clauses of that query.
    pub(crate) fn of_result(sql: &str, stream: &str, clauses: Clauses) -> Select {
        let items = vec![Item::All { qualifier: None, at: None }];
        Select {
            sql: sql.to_owned(),
            stream: stream.to_owned(),
            is_stream_quoted: true,
            stream_at: None,
            alias: None,
            parsed: Arc::new(Parsed { clauses, ..Parsed::of(items, None) }),
            null_for_errors: false,
            view: None,
            state: None,
        }
    }

    /// The same query as one of the records of another stream, which are those of this state of its own.
    #[must_use]
    pub fn of_state(self, stream: &str, state: KeyedState) -> Select {
        // Its columns may be qualified by the name of its own stream.
        let alias = self.alias.or(Some(Name { text: self.stream, quoted: self.is_stream_quoted }));
        let state = Some(Arc::new(state));
        Select { stream: stream.to_owned(), is_stream_quoted: true, alias, state, ..self }
    }

    /// The columns of the key of the state that it reads; none if it reads none.
    #[must_use]
    pub fn state_key(&self) -> &[String] {
        self.state.as_ref().map_or(&[], |state| &state.key)
    }

    /// The most bytes of the state that it reads.
    #[must_use]
    pub fn state_bytes(&self) -> u64 {
        self.state.as_ref().map_or(0, |state| state.max_bytes)
    }

    /// The text of the query.
    pub fn sql(&self) -> &str {
        &self.sql
    }

    /// The same query with null in place of row errors: each expression of the select list, and each of the conditions that WHERE
    /// joins by AND, as if `TRY` were around it.
    #[must_use]
    pub fn with_null_for_errors(self) -> Select {
        Select { null_for_errors: true, ..self }
    }

    /// The same query over what another leaves of the stream.
    pub(crate) fn over(self, view: Arc<Select>) -> Select {
        Select { view: Some(view), ..self }
    }

    pub(crate) fn over_what(&self) -> Option<&Arc<Select>> {
        self.view.as_ref()
    }

    /// Whether an expression that has a row error is null.
    #[must_use]
    pub fn is_null_for_errors(&self) -> bool {
        self.null_for_errors
    }

    /// Resolves the names against `format`, checks the types and builds the program with its output format.
    ///
    /// # Errors
    /// An unknown column, a mismatch of types, an expression that is not possible; with its place in the text.
    pub fn plan(&self, format: &Format) -> Result<Program, QueryError> {
        self.plan_for(format, None)
    }

    fn plan_for(&self, format: &Format, values: Option<&BTreeMap<String, String>>) -> Result<Program, QueryError> {
        let planned = match &self.view {
            Some(view) => bind::plan_over(view, self, format, values),
            None => bind::plan(self, format, values),
        };
        planned.map_err(|error| error.over(&self.sql))
    }

    /// The names of the query's parameters, without the `$`, each once, and where it first stands.
    pub fn parameters(&self) -> &[(String, Option<Position>)] {
        &self.parsed.parameters
    }

    /// Whether `values` has a value for each of the query's parameters, and no others.
    ///
    /// # Errors
    /// The first that is missing, with its place in the text, or that no parameter is called by.
    pub fn check_values(&self, values: &BTreeMap<String, String>) -> Result<(), QueryError> {
        bind::check_names(self.parameters(), values).map_err(|error| error.over(&self.sql))
    }

    /// The same as [`Select::plan`] for a query that may have parameters, `$name`, wherever a value may be written. Each
    /// has the value that it has in `values`, as text. Its type comes from its place: what it is compared with, what it
    /// is an alternative to, what it is cast to; else it is that of a literal that looks like its value.
    ///
    /// # Errors
    /// Those of [`Select::plan`] and [`Select::check_values`]; a value that does not fit its place.
    pub fn plan_with(&self, format: &Format, values: &BTreeMap<String, String>) -> Result<Program, QueryError> {
        self.check_values(values)?;
        self.plan_for(format, Some(values))
    }

    /// The error for a stream that is not there: where it is named, what is known, and which of that may have been meant.
    pub fn unknown_stream(&self, known: &[&str]) -> QueryError {
        self.named().unknown(known).over(&self.sql)
    }

    /// Its stream as FROM names it.
    pub(crate) fn named(&self) -> Named<'_> {
        Named { name: &self.stream, is_quoted: self.is_stream_quoted, at: self.stream_at }
    }

    /// Where its stream stands.
    pub(crate) fn stream_at(&self) -> Option<Position> {
        self.stream_at
    }

    pub(crate) fn items(&self) -> &[Item] {
        &self.parsed.items
    }

    pub(crate) fn condition(&self) -> Option<&Condition> {
        self.parsed.condition.as_deref()
    }

    pub(crate) fn shared_condition(&self) -> Option<Arc<Condition>> {
        self.parsed.condition.clone()
    }

    pub(crate) fn clauses(&self) -> &Clauses {
        &self.parsed.clauses
    }

    /// Another query of the same stream, under the same name, and with the same text.
    pub(crate) fn with_parsed(&self, parsed: Arc<Parsed>) -> Select {
        Select { parsed, ..self.clone() }
    }

    /// How columns of the stream may be qualified.
    pub(crate) fn called(&self) -> (&str, bool) {
        self.alias.as_ref().map_or((&self.stream, false), |alias| (&alias.text, alias.quoted))
    }
}

/// A stream as a query names it.
pub(crate) struct Named<'a> {
    pub(crate) name: &'a str,
    pub(crate) is_quoted: bool,
    pub(crate) at: Option<Position>,
}

impl Named<'_> {
    /// The spelling of the stream among the known ones, where it is another: see [`Select::find_stream`].
    pub(crate) fn found<'n>(&self, known: impl IntoIterator<Item = &'n str>) -> Result<Option<&'n str>, QueryError> {
        if self.is_quoted {
            return Ok(None);
        }
        let wanted = self.name.to_lowercase();
        // There may be many streams, and most names are of ASCII.
        let is_alike = |name: &str| match name.is_ascii() && wanted.is_ascii() {
            true => name.eq_ignore_ascii_case(&wanted),
            false => name.to_lowercase() == wanted,
        };
        let mut alike = None;
        for name in known {
            if name == self.name {
                return Ok(None);
            }
            if is_alike(name) {
                let (first, others) = alike.get_or_insert((name, None));
                *others = Some(name).filter(|name| name != first).or(*others);
            }
        }
        match alike {
            None => Ok(None),
            Some((name, None)) => Ok(Some(name)),
            Some((first, Some(second))) => {
                let message = format!("stream `{}` may be `{first}` or `{second}`", self.name);
                Err(QueryError::new(message, self.at).hint("write the name as it is, in double quotes"))
            }
        }
    }

    /// The error for a stream that is not there.
    pub(crate) fn unknown(&self, known: &[&str]) -> QueryError {
        let near = bind::nearest(self.name, known).map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
        let hint = if known.is_empty() {
            "no stream is known: one is announced by its first publisher, or declared in the daemon's configuration"
                .into()
        } else {
            format!("{near}known: {}", bind::listed(known))
        };
        QueryError::new(format!("no stream `{}`", self.name), self.at).hint(hint)
    }
}

/// Reads the tokens of a query, clause by clause.
pub(crate) struct Reader {
    pub(crate) parser: Parser<'static>,
    pub(crate) parameters: Vec<(String, Option<Position>)>,
    form: Form,
    /// Behind the last character.
    end: Option<Position>,
}

impl Reader {
    pub(crate) fn new(sql: &str, form: Form) -> Result<Reader, QueryError> {
        let tokens = tokens::tokens(sql)?;
        tokens::check_tokens(&tokens, form)?;
        let parameters = tokens::parameters(&tokens);
        let parser = Parser::new(&DIALECT).with_recursion_limit(MAX_NESTING).with_tokens_with_locations(tokens);
        let end = end_of(sql);
        Ok(Reader { parser, parameters, form, end })
    }

    fn select(&mut self, sql: &str) -> Result<Select, QueryError> {
        self.expect_select()?;
        let items = self.items()?;
        if !self.parser.parse_keyword(Keyword::FROM) {
            return Err(self.unexpected("FROM and the name of a stream", Clause::Items));
        }
        let stream_at = self.here();
        let (stream, is_stream_quoted, alias) = self.stream()?;
        let snapshot = self.snapshot(None)?;
        let condition = match self.parser.parse_keyword(Keyword::WHERE) {
            true => Some(Arc::new(Condition { at: self.here(), expr: self.expr()? })),
            false => None,
        };
        let clauses = self.clauses(snapshot)?;
        clauses.check_stateless()?;
        self.ends(if condition.is_some() { Clause::Where } else { Clause::From })?;
        let parsed = Arc::new(Parsed { items, condition, parameters: std::mem::take(&mut self.parameters), clauses });
        let sql = sql.to_owned();
        let (null_for_errors, view, state) = (false, None, None);
        Ok(Select { sql, stream, is_stream_quoted, stream_at, alias, parsed, null_for_errors, view, state })
    }

    /// Goes on to the end, where nothing but a semicolon may come.
    pub(crate) fn ends(&mut self, clause: Clause) -> Result<(), QueryError> {
        let ended = self.parser.consume_token(&Token::SemiColon);
        if self.parser.peek_token_ref().token == Token::EOF {
            return Ok(());
        }
        if ended {
            let at = self.here();
            return Err(QueryError::new("one query at a time: nothing may follow the semicolon", at));
        }
        Err(self.unexpected("the end of the query", clause))
    }

    fn expect_select(&mut self) -> Result<(), QueryError> {
        if !self.parser.parse_keyword(Keyword::SELECT) {
            return Err(self.unexpected("SELECT", Clause::Start));
        }
        if is_word(self.parser.peek_token_ref(), Keyword::DISTINCT) {
            let message = "SELECT DISTINCT is not possible: records pass one by one and are not remembered";
            return Err(QueryError::new(message, self.here()).hint(POSSIBLE));
        }
        let _ = self.parser.parse_keyword(Keyword::ALL); // the default, which may be said
        Ok(())
    }

    pub(crate) fn items(&mut self) -> Result<Vec<Item>, QueryError> {
        let mut items = Vec::new();
        loop {
            let found = self.parser.peek_token_ref();
            if is_word(found, Keyword::FROM) || found.token == Token::EOF {
                let message =
                    if items.is_empty() { "the select list is empty" } else { "the select list ends in a comma" };
                return Err(QueryError::new(message, self.here()).hint("name columns, or `*` for all of them"));
            }
            items.push(self.item()?);
            if !self.parser.consume_token(&Token::Comma) {
                return Ok(items);
            }
        }
    }

    fn item(&mut self) -> Result<Item, QueryError> {
        let at = self.here();
        let item = self.bare_item(at)?;
        let next = self.parser.peek_token_ref();
        if matches!(item, Item::All { .. })
            && [Keyword::EXCEPT, Keyword::EXCLUDE, Keyword::REPLACE, Keyword::RENAME, Keyword::ILIKE]
                .into_iter()
                .any(|keyword| is_word(next, keyword))
        {
            return Err(stands_alone(self.here()));
        }
        Ok(item)
    }

    fn bare_item(&mut self, at: Option<Position>) -> Result<Item, QueryError> {
        match self.parser.parse_select_item().map_err(|error| self.parser_error(error))? {
            SelectItem::Wildcard(options) => plain(&options, at).map(|()| Item::All { qualifier: None, at }),
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), options) => {
                plain(&options, at)?;
                let mut parts: Vec<ast::Ident> = name.0.into_iter().filter_map(into_ident).collect();
                match (parts.pop(), parts.is_empty()) {
                    (Some(qualifier), true) => Ok(Item::All { qualifier: Some(qualifier), at }),
                    _ => Err(QueryError::new("`*` may be qualified by the name of the stream only", at)),
                }
            }
            SelectItem::UnnamedExpr(expr) => Ok(Item::Expr { expr: Box::new(expr), alias: None, at }),
            SelectItem::ExprWithAlias { expr, alias } => {
                Ok(Item::Expr { expr: Box::new(expr), alias: Some(alias), at })
            }
            SelectItem::QualifiedWildcard(..) | SelectItem::ExprWithAliases { .. } => {
                Err(QueryError::new("this kind of select list entry is not possible", at).hint(POSSIBLE))
            }
        }
    }

    pub(crate) fn stream(&mut self) -> Result<(String, bool, Option<Name>), QueryError> {
        let at = self.here();
        let (stream, is_quoted) = match &self.parser.peek_token_ref().token {
            Token::Word(word) if word.quote_style.is_some() || !is_reserved(word) => {
                (word.value.clone(), word.quote_style.is_some())
            }
            Token::LParen => {
                let message = "FROM takes the name of one stream; a subquery is not possible";
                return Err(QueryError::new(message, at).hint(POSSIBLE));
            }
            _ => return Err(self.unexpected("the name of a stream", Clause::From)),
        };
        self.parser.next_token();
        if self.parser.peek_token_ref().token == Token::Period {
            let message = "the name of a stream has one part";
            let hint = "a name with a dot in it is written in double quotes: FROM \"market.trades\"";
            return Err(QueryError::new(message, self.here()).hint(hint));
        }
        if self.parser.peek_token_ref().token == Token::LParen {
            let message = "FROM takes the name of a stream, not a function";
            let hint = "windows are keys: SELECT carrier, window_start, count(*) FROM flights GROUP BY carrier, TUMBLE(time, INTERVAL '1 hour')";
            return Err(QueryError::new(message, self.here()).hint(hint));
        }
        let alias = if self.is_at_changes() { None } else { self.alias()? };
        Ok((stream, is_quoted, alias))
    }

    pub(crate) fn alias(&mut self) -> Result<Option<Name>, QueryError> {
        let explicit = self.parser.parse_keyword(Keyword::AS);
        if !explicit && (self.is_at_max() || self.is_at_snapshot() || self.is_at_state_clause()) {
            return Ok(None);
        }
        let alias = match &self.parser.peek_token_ref().token {
            Token::Word(word) if word.quote_style.is_some() || !is_reserved(word) => {
                Name { text: word.value.clone(), quoted: word.quote_style.is_some() }
            }
            _ if explicit => return Err(self.unexpected("a name after AS", Clause::From)),
            _ => return Ok(None),
        };
        self.parser.next_token();
        if self.parser.peek_token_ref().token == Token::LParen {
            let message = "an alias of a stream cannot rename its columns";
            return Err(QueryError::new(message, self.here()).hint("rename them in the select list: SELECT a AS b"));
        }
        Ok(Some(alias))
    }

    /// Whether `CHANGES` is next and ends the query, rather than another name of the stream.
    fn is_at_changes(&self) -> bool {
        let ends = match &self.parser.peek_nth_token_ref(1).token {
            Token::EOF | Token::SemiColon => true,
            Token::Word(_) => self.is_word_at(1, "ON") || self.is_word_at(1, "MAX"),
            _ => false,
        };
        self.form == Form::Stateful && ends && self.is_word_at(0, "CHANGES")
    }

    /// Whether `ASOF JOIN` or `LATENESS INTERVAL` begins here, rather than a name.
    fn is_at_state_clause(&self) -> bool {
        let next = self.parser.peek_nth_token_ref(1);
        match &self.parser.peek_token_ref().token {
            Token::Word(Word { value, quote_style: None, .. }) if value.eq_ignore_ascii_case("asof") => {
                [Keyword::JOIN, Keyword::LEFT, Keyword::INNER].into_iter().any(|keyword| is_word(next, keyword))
            }
            Token::Word(Word { value, quote_style: None, .. }) if value.eq_ignore_ascii_case("lateness") => {
                is_word(next, Keyword::INTERVAL)
            }
            _ => false,
        }
    }

    /// The parts that queries of this form may have.
    fn possible(&self) -> &'static str {
        match self.form {
            Form::Plain => POSSIBLE,
            Form::Stateful => POSSIBLE_WITH_STATE,
        }
    }

    pub(crate) fn expr(&mut self) -> Result<ast::Expr, QueryError> {
        self.parser.parse_expr().map_err(|error| self.parser_error(error))
    }

    pub(crate) fn here(&self) -> Option<Position> {
        Position::of(self.parser.peek_token_ref().span.start).or(self.end)
    }

    /// The parser's own messages end in ` at Line: 1, Column: 8`; the place is taken out of them.
    pub(crate) fn parser_error(&self, error: ParserError) -> QueryError {
        let text = match error {
            ParserError::RecursionLimitExceeded => {
                return QueryError::new(format!("the query nests deeper than {MAX_NESTING} levels"), None);
            }
            ParserError::TokenizerError(text) | ParserError::ParserError(text) => text,
        };
        let (message, position) = match text.rsplit_once(" at Line: ") {
            Some((message, place)) => (message, place_of(place)),
            None => (text.as_str(), None),
        };
        let ends = message.ends_with("found: EOF");
        QueryError::new(sentence(message), position.or(if ends { self.end } else { None }))
    }

    /// The error for the next token, which no rule takes.
    pub(crate) fn unexpected(&self, expected: &str, clause: Clause) -> QueryError {
        let found = self.parser.peek_token_ref();
        if let Token::Word(Word { quote_style: None, keyword, .. }) = &found.token
            && let Some(refused) = refused_clause(*keyword)
            && (self.form == Form::Plain || !is_of_state(*keyword))
        {
            let is_of_order = matches!(keyword, Keyword::ORDER | Keyword::LIMIT | Keyword::OFFSET | Keyword::FETCH);
            let possible = if is_of_order { ORDERS } else { self.possible() };
            return QueryError::new(refused, self.here()).hint(possible);
        }
        match (&found.token, clause) {
            (Token::EOF, _) => {
                QueryError::new(format!("expected {expected}, but the query ends"), self.end).hint(self.possible())
            }
            (Token::Comma, Clause::From) => {
                QueryError::new("one stream at a time: a list of streams is not possible", self.here())
                    .hint(self.possible())
            }
            (token, _) => {
                QueryError::new(format!("expected {expected}, found {token}"), self.here()).hint(self.possible())
            }
        }
    }
}

/// The part of a query that was read last.
#[derive(Clone, Copy)]
pub(crate) enum Clause {
    Start,
    Items,
    From,
    Where,
}

/// Why a clause that SQL has, and this dialect has not, is refused.
fn refused_clause(keyword: Keyword) -> Option<&'static str> {
    Some(match keyword {
        Keyword::JOIN | Keyword::INNER | Keyword::LEFT | Keyword::RIGHT | Keyword::FULL | Keyword::CROSS => {
            "JOIN is not possible: a query reads one stream"
        }
        Keyword::NATURAL | Keyword::LATERAL => "JOIN is not possible: a query reads one stream",
        Keyword::GROUP | Keyword::HAVING => "GROUP BY is not possible: records pass one by one and are not aggregated",
        Keyword::ORDER => "ORDER BY is not possible without SNAPSHOT: records leave in the order in which they come",
        Keyword::LIMIT => {
            "LIMIT is not possible without SNAPSHOT: a stream has no end to count from; the subscriber stops when it has enough"
        }
        Keyword::OFFSET | Keyword::FETCH => "OFFSET and FETCH are not possible: LIMIT is, behind SNAPSHOT and ORDER BY",
        Keyword::UNION | Keyword::INTERSECT | Keyword::EXCEPT => {
            "combining queries is not possible; subscribe to each of them"
        }
        Keyword::WINDOW => "windows are not possible: records pass one by one",
        Keyword::QUALIFY => "QUALIFY is a condition on calls with OVER, and the query has none",
        Keyword::INTO => "SELECT INTO is not possible: what is selected goes to the subscriber",
        Keyword::FOR => "locking clauses are not possible",
        Keyword::TABLESAMPLE => "TABLESAMPLE is not possible",
        Keyword::WHERE => "WHERE comes once, after FROM",
        _ => return None,
    })
}

/// Words that only a query with state has.
fn is_of_state(keyword: Keyword) -> bool {
    use Keyword as K;
    matches!(
        keyword,
        K::JOIN
            | K::INNER
            | K::LEFT
            | K::RIGHT
            | K::FULL
            | K::CROSS
            | K::NATURAL
            | K::LATERAL
            | K::GROUP
            | K::HAVING
            | K::UNION
            | K::WINDOW
            | K::QUALIFY
    )
}

/// Refuses what other dialects let follow a `*`.
fn plain(options: &WildcardAdditionalOptions, at: Option<Position>) -> Result<(), QueryError> {
    // A name behind `*` is a misspelt FROM more often than an alias, which `*` cannot have.
    if let Some(alias) = &options.opt_alias {
        let message = format!("expected FROM and the name of a stream, found `{}`", alias.value);
        return Err(QueryError::new(message, Position::of(alias.span.start)).hint(POSSIBLE));
    }
    let WildcardAdditionalOptions {
        wildcard_token: _,
        opt_ilike: None,
        opt_exclude: None,
        opt_except: None,
        opt_replace: None,
        opt_rename: None,
        opt_alias: _,
    } = options
    else {
        return Err(stands_alone(at));
    };
    Ok(())
}

fn stands_alone(at: Option<Position>) -> QueryError {
    let message = "`*` stands alone: what some dialects let follow it is not possible";
    QueryError::new(message, at).hint("name the columns")
}

/// Words that end the FROM clause rather than name a stream or an alias.
pub(crate) fn is_reserved(word: &Word) -> bool {
    refused_clause(word.keyword).is_some()
        || matches!(word.keyword, Keyword::AS | Keyword::ON | Keyword::USING | Keyword::FROM | Keyword::SELECT)
}

pub(crate) fn into_ident(part: ast::ObjectNamePart) -> Option<ast::Ident> {
    match part {
        ast::ObjectNamePart::Identifier(ident) => Some(ident),
        ast::ObjectNamePart::Function(_) => None,
    }
}

fn place_of(place: &str) -> Option<Position> {
    let (line, column) = place.split_once(", Column: ")?;
    Position::of(Location { line: line.parse().ok()?, column: column.parse().ok()? })
}

/// The place behind the last character that is not blank.
fn end_of(sql: &str) -> Option<Position> {
    let sql = sql.trim_end();
    let line = sql.matches('\n').count() + 1;
    let column = sql.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    Some(Position { line: u32::try_from(line).ok()?, column: u32::try_from(column).ok()? })
}
