//! The tokens of a query, bounded before anything is built from them.

use std::collections::HashSet;

use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};

use crate::error::{Position, QueryError};

/// The longest query text that is looked at, in bytes.
pub const MAX_SQL_BYTES: usize = 64 * 1024;
/// How many operators, keywords and parentheses a query may have. Values, names and commas are not counted, so a list
/// of constants may be as long as the text allows; two thousand comparisons joined by AND or OR fit.
pub const MAX_OPERATORS: usize = 4096;
/// The form of a query; ends every message about a clause that is not possible.
pub(crate) const POSSIBLE: &str = "possible is: SELECT columns or expressions FROM one stream WHERE a condition";
/// The form of a query with state.
pub(crate) const POSSIBLE_WITH_STATE: &str = "possible is: [WITH name AS (query)] SELECT [DISTINCT] columns or expressions FROM stream \
     [[ASOF] [LEFT | RIGHT | FULL] JOIN stream ON condition | USING (columns)] [WHERE condition] [GROUP BY columns and a window] \
     [HAVING condition] [WINDOW name AS (PARTITION BY columns ROWS n PRECEDING)] [QUALIFY condition] [LATENESS INTERVAL '5 seconds'] \
     [ORDER BY expressions LIMIT n, of each window] [UNION ALL query] [CHANGES] [MAX STATE n MB]";

/// The form of a query that puts rows in order; ends every message about another.
pub(crate) const ORDERS: &str = "possible is: SELECT columns FROM stream SNAPSHOT [THEN CHANGES [DELTA]] [WHERE condition] \
     ORDER BY expression [ASC | DESC] [NULLS FIRST | NULLS LAST], ... LIMIT n; or of the rows of each window: SELECT columns FROM stream \
     GROUP BY columns, TUMBLE(time, INTERVAL '1 hour') ORDER BY ... LIMIT n";

/// The forms of a query.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// One stream, whose records pass one by one.
    Plain,
    /// Everything that a query may have.
    Stateful,
}

pub(crate) static DIALECT: PostgreSqlDialect = PostgreSqlDialect {};

/// The tokens of a query that is not too long.
pub(crate) fn tokens(sql: &str) -> Result<Vec<TokenWithSpan>, QueryError> {
    if sql.len() > MAX_SQL_BYTES {
        let message = format!("the query is {} bytes long; at most {MAX_SQL_BYTES} are read", sql.len());
        return Err(QueryError::new(message, None));
    }
    let tokens = Tokenizer::new(&DIALECT, sql)
        .tokenize_with_location()
        .map_err(|error| QueryError::new(sentence(&error.message), Position::of(error.location)))?;
    Ok(signs_apart(tokens))
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
pub(crate) fn check_tokens(tokens: &[TokenWithSpan], form: Form) -> Result<(), QueryError> {
    let is_plain = form == Form::Plain;
    let mut operators = 0;
    let mut before: Option<&Token> = None;
    for token in tokens {
        let at = Position::of(token.span.start);
        match &token.token {
            Token::Whitespace(_) | Token::EOF => continue,
            word if is_plain
                && before.is_none()
                && !matches!(word, Token::Word(word) if word.keyword == Keyword::SELECT) =>
            {
                let message = format!("a query begins with SELECT, not with {word}");
                return Err(QueryError::new(message, at).hint(POSSIBLE));
            }
            Token::Comma | Token::Number(..) | Token::SingleQuotedString(_) | Token::Placeholder(_) => {}
            Token::Word(word) if word.keyword == Keyword::NoKeyword => {}
            Token::Word(word) if is_plain && word.keyword == Keyword::SELECT && before.is_some_and(opens_query) => {
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
pub(crate) fn parameters(tokens: &[TokenWithSpan]) -> Vec<(String, Option<Position>)> {
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

/// Whether a token is this word, without quotes.
pub(crate) fn is_word(token: &TokenWithSpan, keyword: Keyword) -> bool {
    matches!(&token.token, Token::Word(word) if word.keyword == keyword && word.quote_style.is_none())
}

/// `Expected: an expression, found: EOF` → `expected an expression, but the query ends`
pub(crate) fn sentence(message: &str) -> String {
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
