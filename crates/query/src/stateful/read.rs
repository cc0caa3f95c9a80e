//! SQL text → the selects of a query with state, clause by clause; only names and expressions are left to `sqlparser`.

use std::collections::BTreeSet;
use std::sync::Arc;

use sqlparser::ast;
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan, Word};

use super::aggregates::AggregateEntry;
use super::program::JoinKind;
use crate::error::{Position, QueryError};
use crate::parse::{Clause, Clauses, Condition, Item, Name, NamedWindow, ReadOrder, Reader, is_reserved};
use crate::tokens::is_word;
use crate::top_n;

/// The most queries within each other.
const MAX_WITHIN: usize = 16;
/// The most streams of one FROM.
pub(crate) const MAX_STREAMS: usize = 8;

/// Selects whose rows come one behind the other: `UNION ALL` stands between them.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) selects: Vec<Body>,
}

/// One SELECT.
#[derive(Debug)]
pub(crate) struct Body {
    pub(crate) at: Option<Position>,
    pub(crate) is_distinct: bool,
    pub(crate) items: Vec<Item>,
    pub(crate) from: Vec<Joined>,
    pub(crate) condition: Option<Condition>,
    pub(crate) keys: Vec<Condition>,
    pub(crate) having: Option<Condition>,
    pub(crate) windows: Vec<NamedWindow>,
    pub(crate) qualify: Option<Condition>,
    pub(crate) lateness: Option<Condition>,
    /// ORDER BY, and the number of LIMIT.
    pub(crate) first: Option<(Arc<ReadOrder>, u32)>,
}

/// A stream or query of FROM.
#[derive(Debug)]
pub(crate) struct Joined {
    pub(crate) rows: Rows,
    pub(crate) alias: Option<Name>,
    pub(crate) at: Option<Position>,
    /// How it is joined with those before it; the first is with none.
    pub(crate) join: Option<Join>,
}

/// Where rows of FROM come from.
#[derive(Debug)]
pub(crate) enum Rows {
    Stream { name: String, is_quoted: bool },
    Query(Arc<Tree>),
}

/// A join with the rows before.
#[derive(Debug)]
pub(crate) struct Join {
    pub(crate) kind: JoinKind,
    pub(crate) is_asof: bool,
    /// RIGHT JOIN: a [`JoinKind::Left`] whose left side are the rows of its own stream.
    pub(crate) is_mirrored: bool,
    /// ON; a comma has none.
    pub(crate) on: Option<Condition>,
    /// The columns of USING.
    pub(crate) using: Vec<ast::Ident>,
    /// Where ON or USING stands.
    pub(crate) at: Option<Position>,
}

/// `CHANGES`, behind a whole query.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Changes {
    pub(crate) at: Option<Position>,
}

/// The names of WITH that a query sees.
type Known = Vec<(Name, Arc<Tree>)>;

impl Joined {
    /// How its columns are qualified, and whether that was written in double quotes.
    pub(crate) fn called(&self) -> (&str, bool) {
        match (&self.alias, &self.rows) {
            (Some(alias), _) => (&alias.text, alias.quoted),
            (None, Rows::Stream { name, .. }) => (name, false),
            (None, Rows::Query(_)) => ("", false),
        }
    }
}

impl Reader {
    /// `CHANGES`, if it is next.
    pub(crate) fn changes(&mut self) -> Option<Changes> {
        let at = self.here();
        self.takes_words(&["CHANGES"]).then_some(Changes { at })
    }

    /// A whole query, from its first word to the clauses of a subscription.
    pub(crate) fn tree(&mut self) -> Result<Tree, QueryError> {
        self.query(&mut Vec::new(), 0)
    }

    fn query(&mut self, known: &mut Known, within: usize) -> Result<Tree, QueryError> {
        if within > MAX_WITHIN {
            let error = QueryError::new(format!("more than {MAX_WITHIN} queries within each other"), self.here());
            return Err(error.hint("put the conditions and columns of an inner query into the one around it"));
        }
        let before = known.len();
        if self.takes_words(&["WITH"]) {
            self.with(known, within)?;
        }
        let mut selects = vec![self.body(known, within)?];
        while self.takes_words(&["UNION"]) {
            if !self.takes_words(&["ALL"]) {
                let error = QueryError::new("UNION without ALL is not possible", self.here());
                return Err(
                    error.hint("UNION ALL has all rows; SELECT DISTINCT … FROM (… UNION ALL …) x those that differ")
                );
            }
            selects.push(self.body(known, within)?);
        }
        if selects.len() > 1
            && let Some((order, _)) = selects.iter().find_map(|select| select.first.as_ref())
        {
            let message = "ORDER BY … LIMIT beside UNION ALL is not possible: it is of the windows of one query";
            return Err(QueryError::new(message, order.at)
                .hint("put that query in another: … UNION ALL SELECT * FROM (SELECT … ORDER BY … LIMIT n) x"));
        }
        known.truncate(before);
        Ok(Tree { selects })
    }

    /// `name AS (query), …`
    fn with(&mut self, known: &mut Known, within: usize) -> Result<(), QueryError> {
        if self.takes_words(&["RECURSIVE"]) {
            return Err(QueryError::new("WITH RECURSIVE is not possible", self.here())
                .hint("WITH name AS (SELECT …) gives a query a name; it reads streams, and queries named before it"));
        }
        loop {
            let name = self.name("the name of a query")?;
            if !self.takes_words(&["AS"]) || !self.parser.consume_token(&Token::LParen) {
                return Err(self.unexpected("AS (query)", Clause::Start));
            }
            let tree = self.query(known, within + 1)?;
            self.closes()?;
            known.push((name, Arc::new(tree)));
            if !self.parser.consume_token(&Token::Comma) {
                return Ok(());
            }
        }
    }

    fn name(&mut self, what: &str) -> Result<Name, QueryError> {
        let name = match &self.parser.peek_token_ref().token {
            Token::Word(word) if word.quote_style.is_some() || !is_reserved(word) => {
                Name { text: word.value.clone(), quoted: word.quote_style.is_some() }
            }
            _ => return Err(self.unexpected(what, Clause::Start)),
        };
        self.parser.next_token();
        Ok(name)
    }

    fn closes(&mut self) -> Result<(), QueryError> {
        match self.parser.consume_token(&Token::RParen) {
            true => Ok(()),
            false => Err(self.unexpected("`)`", Clause::Where)),
        }
    }

    fn body(&mut self, known: &mut Known, within: usize) -> Result<Body, QueryError> {
        let at = self.here();
        if !self.takes_words(&["SELECT"]) {
            return Err(self.unexpected("SELECT", Clause::Start));
        }
        let is_distinct = self.takes_words(&["DISTINCT"]);
        if is_distinct && self.is_word_at(0, "ON") {
            return Err(QueryError::new("DISTINCT ON is not possible", self.here())
                .hint("GROUP BY with first(column) has the first row of each group"));
        }
        if !is_distinct {
            let _ = self.takes_words(&["ALL"]); // the default, which may be said
        }
        let items = self.items()?;
        if !self.takes_words(&["FROM"]) {
            return Err(self.unexpected("FROM and the name of a stream", Clause::Items));
        }
        let from = self.from(known, within)?;
        let condition = self.clause(&["WHERE"])?;
        let keys = self.keys()?;
        let having = self.clause(&["HAVING"])?;
        let before = self.clause(&["QUALIFY"])?;
        let windows = self.windows()?;
        // It may stand on either side of WINDOW.
        let qualify = if before.is_some() { before } else { self.clause(&["QUALIFY"])? };
        let lateness = self.clause(&["LATENESS"])?;
        let first = self.first_rows()?;
        // It may stand behind them as well.
        let lateness = if lateness.is_some() || first.is_none() { lateness } else { self.clause(&["LATENESS"])? };
        Ok(Body { at, is_distinct, items, from, condition, keys, having, windows, qualify, lateness, first })
    }

    /// `ORDER BY expression, … LIMIT n`
    fn first_rows(&mut self) -> Result<Option<(Arc<ReadOrder>, u32)>, QueryError> {
        let mut clauses = Clauses::default();
        loop {
            if self.is_word_at(0, "ORDER") {
                self.read_order(&mut clauses)?;
            } else if self.is_word_at(0, "LIMIT") {
                self.read_limit(&mut clauses)?;
            } else {
                top_n::check(&clauses)?;
                return Ok(clauses.order.zip(clauses.limit));
            }
        }
    }

    /// An expression behind these words, if they are next.
    fn clause(&mut self, words: &[&str]) -> Result<Option<Condition>, QueryError> {
        match self.takes_words(words) {
            true => Ok(Some(Condition { at: self.here(), expr: self.expr()? })),
            false => Ok(None),
        }
    }

    fn keys(&mut self) -> Result<Vec<Condition>, QueryError> {
        let mut keys = Vec::new();
        if !self.takes_words(&["GROUP", "BY"]) {
            return Ok(keys);
        }
        loop {
            keys.push(Condition { at: self.here(), expr: self.expr()? });
            if !self.parser.consume_token(&Token::Comma) {
                return Ok(keys);
            }
        }
    }

    /// `WINDOW name AS (PARTITION BY …), …`
    fn windows(&mut self) -> Result<Vec<NamedWindow>, QueryError> {
        let mut windows: Vec<NamedWindow> = Vec::new();
        if !self.takes_words(&["WINDOW"]) {
            return Ok(windows);
        }
        loop {
            let at = self.here();
            let name = self.name("the name of a window")?;
            if windows.iter().any(|window| window.name.text == name.text) {
                let error = QueryError::new(format!("two windows are called `{}`", name.text), at);
                return Err(error.hint("give one another name: WINDOW w AS (…), v AS (…)"));
            }
            if !self.takes_words(&["AS"]) || !self.parser.consume_token(&Token::LParen) {
                return Err(self.unexpected("AS (PARTITION BY key ROWS 9 PRECEDING)", Clause::Where));
            }
            let spec = self.parser.parse_window_spec().map_err(|error| self.parser_error(error))?;
            windows.push(NamedWindow { name, spec });
            if !self.parser.consume_token(&Token::Comma) {
                return Ok(windows);
            }
        }
    }

    fn from(&mut self, known: &mut Known, within: usize) -> Result<Vec<Joined>, QueryError> {
        let mut from = vec![self.joined(None, known, within)?];
        loop {
            let at = self.here();
            let Some((join, is_comma)) = self.join()? else { return Ok(from) };
            if from.len() == MAX_STREAMS {
                let error = QueryError::new(format!("more than {MAX_STREAMS} streams in one FROM"), at);
                return Err(error
                    .hint("join some of them in a query within: FROM (SELECT … FROM a JOIN b ON …) ab JOIN c ON …"));
            }
            let mut joined = self.joined(Some(join), known, within)?;
            let name = joined.called();
            if let Some(other) = from.iter().find(|other| other.called().0 == name.0) {
                let message = format!("two streams of FROM are called `{}`", other.called().0);
                return Err(QueryError::new(message, joined.at).hint("give one another name: FROM A JOIN A AS b"));
            }
            if !is_comma && let Some(join) = &mut joined.join {
                self.condition_of(join)?;
            }
            from.push(joined);
        }
    }

    /// `ON condition` or `USING (column, …)`.
    fn condition_of(&mut self, join: &mut Join) -> Result<(), QueryError> {
        join.at = self.here();
        if self.takes_words(&["ON"]) {
            join.on = Some(Condition { at: self.here(), expr: self.expr()? });
            return Ok(());
        }
        if !self.takes_words(&["USING"]) {
            return Err(self.unexpected("ON and the condition of the join, or USING (column, …)", Clause::Where));
        }
        if join.is_asof {
            let error = QueryError::new("USING is not possible in an ASOF JOIN, which compares two times", join.at);
            return Err(error.hint("write the condition: ON a.key = b.key AND a.time >= b.time"));
        }
        if !self.parser.consume_token(&Token::LParen) {
            return Err(self.unexpected("`(` and the columns that are equal", Clause::Where));
        }
        loop {
            let at = self.here();
            let Name { text, quoted } = self.name("the name of a column of both sides")?;
            if join.using.iter().any(|known| known.value == text) {
                let error = QueryError::new(format!("column `{text}` stands in USING twice"), at);
                return Err(error.hint("leave one of them out"));
            }
            let mut name = ast::Ident::new(text);
            name.quote_style = quoted.then_some('"');
            name.span = at.map_or(name.span, Position::to_span);
            join.using.push(name);
            if !self.parser.consume_token(&Token::Comma) {
                return self.closes();
            }
        }
    }

    /// The join that comes next, and whether it is a comma.
    fn join(&mut self) -> Result<Option<(Join, bool)>, QueryError> {
        let of =
            |kind, is_asof, is_mirrored| Join { kind, is_asof, is_mirrored, on: None, using: Vec::new(), at: None };
        if self.parser.consume_token(&Token::Comma) {
            return Ok(Some((of(JoinKind::Inner, false, false), true)));
        }
        let refused = [
            (
                "CROSS",
                "CROSS JOIN is not possible: all rows would be kept indefinitely",
                "JOIN … ON has the conditions that bound what is kept; a reference table is joined by its key",
            ),
            (
                "NATURAL",
                "NATURAL JOIN is not possible: a column that a stream gets later would change the query",
                "name the columns that are equal: JOIN b USING (key, …)",
            ),
        ];
        for (word, message, hint) in refused {
            if self.is_word_at(0, word) {
                return Err(QueryError::new(message, self.here()).hint(hint));
            }
        }
        let is_asof = self.is_word_at(0, "ASOF");
        if is_asof {
            self.parser.advance_token();
        }
        let kinds: [(&[&str], JoinKind); 8] = [
            (&["JOIN"], JoinKind::Inner),
            (&["INNER", "JOIN"], JoinKind::Inner),
            (&["LEFT", "JOIN"], JoinKind::Left),
            (&["LEFT", "OUTER", "JOIN"], JoinKind::Left),
            (&["RIGHT", "JOIN"], JoinKind::Left),
            (&["RIGHT", "OUTER", "JOIN"], JoinKind::Left),
            (&["FULL", "JOIN"], JoinKind::Full),
            (&["FULL", "OUTER", "JOIN"], JoinKind::Full),
        ];
        let at = self.here();
        for (words, kind) in kinds {
            if self.takes_words(words) {
                let is_mirrored = words[0] == "RIGHT";
                if is_asof && (is_mirrored || kind == JoinKind::Full) {
                    let error = QueryError::new(format!("ASOF {} JOIN is not possible", words[0]), at);
                    return Err(error.hint("ASOF JOIN, or ASOF LEFT JOIN"));
                }
                return Ok(Some((of(kind, is_asof, is_mirrored), false)));
            }
        }
        let begins = ["LEFT", "RIGHT", "FULL", "INNER"].into_iter().any(|word| self.is_word_at(0, word));
        match is_asof || begins {
            true => Err(self.unexpected("JOIN", Clause::Where)),
            false => Ok(None),
        }
    }

    fn joined(&mut self, join: Option<Join>, known: &mut Known, within: usize) -> Result<Joined, QueryError> {
        let at = self.here();
        if self.parser.consume_token(&Token::LParen) {
            let tree = self.query(known, within + 1)?;
            self.closes()?;
            let Some(alias) = self.alias()? else {
                let error = QueryError::new("a query in FROM needs a name", self.here());
                return Err(error.hint("FROM (SELECT …) x"));
            };
            return Ok(Joined { rows: Rows::Query(Arc::new(tree)), alias: Some(alias), at, join });
        }
        let (name, is_quoted, alias) = self.stream()?;
        let is_called = |other: &Name| {
            other.text == name || (!other.quoted && !is_quoted && other.text.to_lowercase() == name.to_lowercase())
        };
        let rows = match known.iter().rev().find(|(other, _)| is_called(other)) {
            Some((other, tree)) => {
                let alias = alias.or_else(|| Some(other.clone()));
                return Ok(Joined { rows: Rows::Query(Arc::clone(tree)), alias, at, join });
            }
            None => Rows::Stream { name, is_quoted },
        };
        Ok(Joined { rows, alias, at, join })
    }
}

/// Whether a query has a word that only one with state has.
pub(crate) fn has_state(tokens: &[TokenWithSpan]) -> bool {
    let mut words = tokens.iter().filter(|token| !matches!(token.token, Token::Whitespace(_))).peekable();
    let (mut is_first, mut is_behind_distinct) = (true, false);
    let (mut depth, mut is_in_from) = (0_usize, false);
    while let Some(token) = words.next() {
        let is_before_window = is_window(words.clone());
        let next = words.peek();
        let is_before_parenthesis = next.is_some_and(|next| next.token == Token::LParen);
        match &token.token {
            Token::LParen => {
                depth += 1;
                if next.is_some_and(|next| is_word(next, Keyword::SELECT) || is_word(next, Keyword::WITH)) {
                    return true;
                }
            }
            Token::RParen => {
                depth = depth.saturating_sub(1);
                if is_before_window {
                    return true;
                }
            }
            Token::Comma if depth == 0 && is_in_from => return true,
            Token::Word(word) if word.quote_style.is_none() => match word.keyword {
                Keyword::JOIN | Keyword::GROUP | Keyword::HAVING | Keyword::UNION => return true,
                Keyword::WITH if is_first => return true,
                Keyword::NULLS if is_before_window => return true,
                Keyword::SELECT if next.is_some_and(|next| is_word(next, Keyword::DISTINCT)) => return true,
                // But not that of `IS DISTINCT FROM`.
                Keyword::FROM if depth == 0 && !is_behind_distinct => is_in_from = true,
                Keyword::WHERE | Keyword::ON => is_in_from = false,
                _ if is_in_from && is_rate(word, next.copied()) => is_in_from = false,
                _ if is_before_parenthesis && is_aggregate(word) => return true,
                _ => {}
            },
            _ => {}
        }
        is_first = false;
        is_behind_distinct = is_word(token, Keyword::DISTINCT);
    }
    false
}

/// Whether `OVER` with a window is next, and not a column of this name.
fn is_window<'t>(mut words: impl Iterator<Item = &'t TokenWithSpan>) -> bool {
    if !words.next().is_some_and(|word| is_word(word, Keyword::OVER)) {
        return false;
    }
    match words.next().map(|next| &next.token) {
        Some(Token::LParen) => true,
        Some(Token::Word(word)) => word.quote_style.is_some() || word.keyword != Keyword::FROM,
        _ => false,
    }
}

/// `MAX RATE`.
fn is_rate(word: &Word, next: Option<&TokenWithSpan>) -> bool {
    word.value.eq_ignore_ascii_case("max")
        && matches!(next.map(|next| &next.token), Some(Token::Word(next)) if next.value.eq_ignore_ascii_case("rate"))
}

fn is_aggregate(word: &Word) -> bool {
    AggregateEntry::named(&word.value.to_ascii_lowercase()).next().is_some()
}

/// A query and those within it, each once.
pub(super) fn trees(tree: &Arc<Tree>) -> Vec<Arc<Tree>> {
    let (mut trees, mut waiting, mut seen) = (Vec::new(), vec![Arc::clone(tree)], BTreeSet::new());
    while let Some(tree) = waiting.pop() {
        // A query of WITH may be read in several places.
        if !seen.insert(Arc::as_ptr(&tree) as usize) {
            continue;
        }
        for joined in tree.selects.iter().flat_map(|select| &select.from) {
            if let Rows::Query(within) = &joined.rows {
                waiting.push(Arc::clone(within));
            }
        }
        trees.push(tree);
    }
    trees
}
