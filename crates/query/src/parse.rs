//! SQL text → [`Select`]: one stream, a select list, a condition.
//!
//! The clauses are read here, one by one, so that what is not written here is refused at its place; only names and
//! expressions are left to `sqlparser`. Text from outside is bounded before it is parsed: its length, how deep it nests
//! and how long its chains are, because a syntax tree is built and freed recursively.

use std::collections::{BTreeMap, HashSet};
use std::num::NonZeroU32;
use std::sync::Arc;

use sqlparser::ast::{self, SelectItem, SelectItemQualifiedWildcardKind, WildcardAdditionalOptions};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer, Word};

use crate::bind;
use crate::error::{Position, QueryError};
use crate::program::Program;
use crossdock_format::{Format, MAX_NESTING};

/// The longest query text that is looked at, in bytes.
pub const MAX_SQL_BYTES: usize = 64 * 1024;
/// How many operators, keywords and parentheses a query may have. Values, names and commas are not counted, so a list
/// of constants may be as long as the text allows; two thousand comparisons joined by AND or OR fit.
pub const MAX_OPERATORS: usize = 4096;
/// The form of a query; ends every message about a clause that is not possible.
pub(crate) const POSSIBLE: &str = "possible is: SELECT columns or expressions FROM one stream WHERE a condition";

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
#[derive(Debug, Default)]
pub(crate) struct Clauses {
    pub(crate) slow: Option<ReadPolicy>,
    pub(crate) rate: Option<ReadRate>,
    /// Where the first of them begins.
    pub(crate) at: Option<Position>,
}

/// `ON SLOW`.
#[derive(Debug)]
pub(crate) enum ReadPolicy {
    Block,
    DropOldest,
    Conflate(ReadPart),
    Sample(NonZeroU32),
    Keep(ReadPart),
    Disconnect,
}

/// `MAX RATE`.
#[derive(Debug)]
pub(crate) struct ReadRate {
    pub(crate) per_second: NonZeroU32,
    pub(crate) by: Option<ReadPart>,
}

/// A part's syntax trees and its text.
#[derive(Clone, Debug)]
pub(crate) struct ReadPart {
    pub(crate) parsed: Arc<Parsed>,
    pub(crate) text: String,
}

impl Clauses {
    /// The refusal of the clauses in a query that is not a subscription's, if there is one.
    fn refused(&self) -> Option<QueryError> {
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
    Reader::new(sql).and_then(|mut reader| reader.select(sql)).map_err(|error| error.over(sql))
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
        if self.is_stream_quoted {
            return Ok(());
        }
        let wanted = self.stream.to_lowercase();
        // There may be many streams, and most names are of ASCII.
        let is_alike = |name: &str| match name.is_ascii() && wanted.is_ascii() {
            true => name.eq_ignore_ascii_case(&wanted),
            false => name.to_lowercase() == wanted,
        };
        let mut alike = None;
        for name in known {
            if name == self.stream {
                return Ok(());
            }
            if is_alike(name) {
                let (first, others) = alike.get_or_insert((name, None));
                *others = Some(name).filter(|name| name != first).or(*others);
            }
        }
        match alike {
            None => Ok(()),
            Some((name, None)) => {
                name.clone_into(&mut self.stream);
                Ok(())
            }
            Some((first, Some(second))) => {
                let message = format!("stream `{}` may be `{first}` or `{second}`", self.stream);
                let error = QueryError::new(message, self.stream_at);
                Err(error.hint("write the name as it is, in double quotes").over(&self.sql))
            }
        }
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

    pub(crate) fn is_null_for_errors(&self) -> bool {
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
        let near =
            bind::nearest(&self.stream, known).map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
        let hint = if known.is_empty() {
            "no stream is known: one is announced by its first publisher, or declared in the daemon's configuration"
                .into()
        } else {
            format!("{near}known: {}", bind::listed(known))
        };
        QueryError::new(format!("no stream `{}`", self.stream), self.stream_at).hint(hint).over(&self.sql)
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

    /// Whether `qualifier.column` means this query's stream: its alias if it has one, else its name.
    pub(crate) fn is_called(&self, qualifier: &ast::Ident) -> bool {
        let (name, quoted) = self.called();
        qualifier.value == name
            || (!quoted && qualifier.quote_style.is_none() && qualifier.value.to_lowercase() == name.to_lowercase())
    }

    /// How columns of the stream may be qualified.
    pub(crate) fn called(&self) -> (&str, bool) {
        self.alias.as_ref().map_or((&self.stream, false), |alias| (&alias.text, alias.quoted))
    }
}

/// Reads the tokens of a query, clause by clause.
pub(crate) struct Reader {
    pub(crate) parser: Parser<'static>,
    parameters: Vec<(String, Option<Position>)>,
    /// Behind the last character.
    end: Option<Position>,
}

static DIALECT: PostgreSqlDialect = PostgreSqlDialect {};

impl Reader {
    fn new(sql: &str) -> Result<Reader, QueryError> {
        if sql.len() > MAX_SQL_BYTES {
            let message = format!("the query is {} bytes long; at most {MAX_SQL_BYTES} are read", sql.len());
            return Err(QueryError::new(message, None));
        }
        let tokens = Tokenizer::new(&DIALECT, sql)
            .tokenize_with_location()
            .map_err(|error| QueryError::new(sentence(&error.message), Position::of(error.location)))?;
        let tokens = signs_apart(tokens);
        check_tokens(&tokens)?;
        let parameters = parameters(&tokens);
        let parser = Parser::new(&DIALECT).with_recursion_limit(MAX_NESTING).with_tokens_with_locations(tokens);
        let end = end_of(sql);
        Ok(Reader { parser, parameters, end })
    }

    fn select(&mut self, sql: &str) -> Result<Select, QueryError> {
        self.expect_select()?;
        let items = self.items()?;
        if !self.parser.parse_keyword(Keyword::FROM) {
            return Err(self.unexpected("FROM and the name of a stream", Clause::Items));
        }
        let stream_at = self.here();
        let (stream, is_stream_quoted, alias) = self.stream()?;
        let condition = match self.parser.parse_keyword(Keyword::WHERE) {
            true => Some(Arc::new(Condition { at: self.here(), expr: self.expr()? })),
            false => None,
        };
        let clauses = self.clauses()?;
        let clause = if condition.is_some() { Clause::Where } else { Clause::From };
        let ended = self.parser.consume_token(&Token::SemiColon);
        if self.parser.peek_token_ref().token != Token::EOF {
            if ended {
                let at = self.here();
                return Err(QueryError::new("one query at a time: nothing may follow the semicolon", at));
            }
            return Err(self.unexpected("the end of the query", clause));
        }
        let parsed = Arc::new(Parsed { items, condition, parameters: std::mem::take(&mut self.parameters), clauses });
        let sql = sql.to_owned();
        let (null_for_errors, view) = (false, None);
        Ok(Select { sql, stream, is_stream_quoted, stream_at, alias, parsed, null_for_errors, view })
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

    fn items(&mut self) -> Result<Vec<Item>, QueryError> {
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

    fn stream(&mut self) -> Result<(String, bool, Option<Name>), QueryError> {
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
        let alias = self.alias()?;
        Ok((stream, is_quoted, alias))
    }

    fn alias(&mut self) -> Result<Option<Name>, QueryError> {
        let explicit = self.parser.parse_keyword(Keyword::AS);
        if !explicit && self.is_at_rate() {
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

    pub(crate) fn expr(&mut self) -> Result<ast::Expr, QueryError> {
        self.parser.parse_expr().map_err(|error| self.parser_error(error))
    }

    pub(crate) fn here(&self) -> Option<Position> {
        Position::of(self.parser.peek_token_ref().span.start).or(self.end)
    }

    /// The parser's own messages end in ` at Line: 1, Column: 8`; the place is taken out of them.
    fn parser_error(&self, error: ParserError) -> QueryError {
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
    fn unexpected(&self, expected: &str, clause: Clause) -> QueryError {
        let found = self.parser.peek_token_ref();
        if let Token::Word(Word { quote_style: None, keyword, .. }) = &found.token
            && let Some(refused) = refused_clause(*keyword)
        {
            return QueryError::new(refused, self.here()).hint(POSSIBLE);
        }
        match (&found.token, clause) {
            (Token::EOF, _) => {
                QueryError::new(format!("expected {expected}, but the query ends"), self.end).hint(POSSIBLE)
            }
            (Token::Comma, Clause::From) => {
                QueryError::new("one stream at a time: a list of streams is not possible", self.here()).hint(POSSIBLE)
            }
            (Token::LParen, Clause::From) => {
                QueryError::new("FROM takes the name of a stream, not a function", self.here()).hint(POSSIBLE)
            }
            (token, _) => QueryError::new(format!("expected {expected}, found {token}"), self.here()).hint(POSSIBLE),
        }
    }
}

#[derive(Clone, Copy)]
enum Clause {
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
        Keyword::ORDER => "ORDER BY is not possible: records leave in the order in which they come",
        Keyword::LIMIT | Keyword::OFFSET | Keyword::FETCH => {
            "LIMIT is not possible: a stream has no end to count from; the subscriber stops when it has enough"
        }
        Keyword::UNION | Keyword::INTERSECT | Keyword::EXCEPT => {
            "combining queries is not possible; subscribe to each of them"
        }
        Keyword::WINDOW | Keyword::QUALIFY => "windows are not possible: records pass one by one",
        Keyword::INTO => "SELECT INTO is not possible: what is selected goes to the subscriber",
        Keyword::FOR => "locking clauses are not possible",
        Keyword::TABLESAMPLE => "TABLESAMPLE is not possible",
        Keyword::WHERE => "WHERE comes once, after FROM",
        _ => return None,
    })
}

/// `a>-5` is `a > - 5`: in PostgreSQL an operator of these characters does not end in a sign. The tokenizer takes `>-`
/// for one operator.
fn signs_apart(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut apart = Vec::with_capacity(tokens.len());
    for token in tokens {
        let split = match &token.token {
            Token::CustomBinaryOperator(text) => split_signs(text),
            _ => None,
        };
        let Some((operator, signs)) = split else {
            apart.push(token);
            continue;
        };
        let start = token.span.start;
        apart.push(TokenWithSpan::at(operator, start, token.span.end));
        let behind = (token.span.end.column).saturating_sub(signs.len() as u64);
        for (index, sign) in signs.bytes().enumerate() {
            let column = behind + index as u64;
            let sign = if sign == b'-' { Token::Minus } else { Token::Plus };
            apart.push(TokenWithSpan::at(sign, Location { line: start.line, column }, token.span.end));
        }
    }
    apart
}

fn split_signs(text: &str) -> Option<(Token, &str)> {
    let operator = text.trim_end_matches(['+', '-']);
    let token = match operator {
        "=" => Token::Eq,
        "<>" => Token::Neq,
        "<" => Token::Lt,
        "<=" => Token::LtEq,
        ">" => Token::Gt,
        ">=" => Token::GtEq,
        "*" => Token::Mul,
        "/" => Token::Div,
        _ => return None,
    };
    // Two minus signs would begin a comment in PostgreSQL.
    let signs = &text[operator.len()..];
    (!signs.contains("--")).then_some((token, signs))
}

/// Bounds what the parser, which is recursive, gets to see, and refuses what it would take but PostgreSQL does not.
fn check_tokens(tokens: &[TokenWithSpan]) -> Result<(), QueryError> {
    let mut operators = 0;
    let mut before: Option<&Token> = None;
    for token in tokens {
        let at = Position::of(token.span.start);
        match &token.token {
            Token::Whitespace(_) | Token::EOF => continue,
            word if before.is_none() && !matches!(word, Token::Word(word) if word.keyword == Keyword::SELECT) => {
                let message = format!("a query begins with SELECT, not with {word}");
                return Err(QueryError::new(message, at).hint(POSSIBLE));
            }
            Token::Comma | Token::Number(..) | Token::SingleQuotedString(_) | Token::Placeholder(_) => {}
            Token::Word(word) if word.keyword == Keyword::NoKeyword => {}
            Token::Word(word) if word.keyword == Keyword::SELECT && before.is_some_and(opens_query) => {
                return Err(QueryError::new("a query within a query is not possible", at).hint(POSSIBLE));
            }
            Token::DoubleEq => {
                return Err(QueryError::new("`==` is not SQL", at).hint("equality is written `=`"));
            }
            _ => operators += 1,
        }
        if operators > MAX_OPERATORS {
            let message = format!("the query has more than {MAX_OPERATORS} operators, keywords and parentheses");
            let hint = "a long list of alternatives is shorter as: column IN (value, value, ...)";
            return Err(QueryError::new(message, at).hint(hint));
        }
        before = Some(&token.token);
    }
    match before {
        Some(_) => Ok(()),
        None => Err(QueryError::new("the query is empty", None).hint(POSSIBLE)),
    }
}

/// The parameters' names, each once, and where it first stands.
fn parameters(tokens: &[TokenWithSpan]) -> Vec<(String, Option<Position>)> {
    let mut seen = HashSet::new();
    let named = tokens.iter().filter_map(|token| match &token.token {
        Token::Placeholder(text) => Some((text.trim_start_matches('$').to_owned(), Position::of(token.span.start))),
        _ => None,
    });
    named.filter(|(name, _)| seen.insert(name.clone())).collect()
}

/// Whether a SELECT behind this token would begin a query within the first, rather than one after it.
fn opens_query(before: &Token) -> bool {
    match before {
        Token::SemiColon => false,
        Token::Word(word) => !matches!(
            word.keyword,
            Keyword::UNION | Keyword::INTERSECT | Keyword::EXCEPT | Keyword::ALL | Keyword::DISTINCT
        ),
        _ => true,
    }
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

fn is_word(token: &TokenWithSpan, keyword: Keyword) -> bool {
    matches!(&token.token, Token::Word(word) if word.keyword == keyword && word.quote_style.is_none())
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

/// `Expected: an expression, found: EOF` → `expected an expression, but the query ends`
fn sentence(message: &str) -> String {
    let message = message.replace("Expected: ", "expected ").replace(", found: EOF", ", but the query ends");
    let message = message.replace("found: ", "found ");
    let message = message.trim_end_matches('.');
    let mut chars = message.chars();
    match chars.next() {
        Some(first) if !message.starts_with(char::is_uppercase) || message.starts_with("SQL") => {
            std::iter::once(first).chain(chars).collect()
        }
        Some(first) => first.to_lowercase().chain(chars).collect(),
        None => "the query cannot be read".to_owned(),
    }
}

/// The place behind the last character that is not blank.
fn end_of(sql: &str) -> Option<Position> {
    let sql = sql.trim_end();
    let line = sql.matches('\n').count() + 1;
    let column = sql.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    Some(Position { line: u32::try_from(line).ok()?, column: u32::try_from(column).ok()? })
}
