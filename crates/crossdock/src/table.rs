//! Tables for people: as wide as the terminal, unwrapped where the output is not a terminal.

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, Table, TableStyle};
use console::Term;

/// Which side a column's text keeps to.
#[derive(Clone, Copy)]
pub(crate) enum Side {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// Columns that the table's text may take.
#[derive(Clone, Copy)]
pub(crate) enum Width {
    /// At most this many; long cells wrap.
    Columns(u16),
    /// As many as the text has, a row a line: what pipes and files get, so that `grep` sees whole rows.
    Unbounded,
}

impl Width {
    /// The width of what standard output is; `COLUMNS` where it is not a terminal and that is set.
    pub(crate) fn of_stdout() -> Width {
        let term = Term::stdout();
        let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        match (term.is_term(), columns) {
            (true, _) => Width::Columns(term.size().1),
            (false, Some(columns)) => Width::Columns(columns),
            (false, None) => Width::Unbounded,
        }
    }
}

/// The text of a table, with a line feed at its end.
pub(crate) fn render(headings: &[(&str, Side)], rows: impl IntoIterator<Item = Vec<String>>, width: Width) -> String {
    let mut table = Table::new();
    // At most a rule under the headings: padding keeps the columns apart.
    table.load_style(match width {
        Width::Columns(_) => TableStyle::new().header_separator(LineStyle::none().fill('─')),
        Width::Unbounded => TableStyle::new(),
    });
    table.set_header(headings.iter().map(|(heading, _)| *heading));
    // The least width of each column that does not cut a number in two.
    let mut least: Vec<u16> = headings.iter().map(|(heading, side)| side.least(heading)).collect();
    for row in rows {
        for ((least, cell), (_, side)) in least.iter_mut().zip(&row).zip(headings) {
            *least = side.least(cell).max(*least);
        }
        table.add_row(row.iter().map(|cell| plain(cell)));
    }
    let fits = match width {
        Width::Columns(columns) => least.iter().map(|least| u32::from(*least)).sum::<u32>() <= columns.into(),
        Width::Unbounded => false,
    };
    for ((column, (_, side)), least) in table.column_iter_mut().zip(headings).zip(least) {
        column.set_padding((0, GAP));
        if matches!(side, Side::Right) {
            column.set_cell_alignment(CellAlignment::Right);
            if fits {
                column.set_constraint(ColumnConstraint::LowerBoundary(comfy_table::Width::Fixed(least)));
            }
        }
    }
    match width {
        Width::Columns(columns) => {
            table.set_content_arrangement(ContentArrangement::Dynamic);
            table.set_width(columns.max(MIN_COLUMNS));
        }
        Width::Unbounded => {
            table.set_content_arrangement(ContentArrangement::Disabled);
        }
    }
    let mut text: String = table.lines().flat_map(|line| [line.trim_end().to_owned(), "\n".to_owned()]).collect();
    if text.is_empty() {
        text.push('\n');
    }
    text
}

/// Columns between two cells.
const GAP: u16 = 2;

/// As much of a text as is to stand on one line, at least.
const LEAST_TEXT: u16 = 8;

impl Side {
    /// The columns that a cell needs: those of its longest number, or of a little text; and the gap.
    fn least(self, cell: &str) -> u16 {
        let longest = match self {
            Side::Left => LEAST_TEXT,
            Side::Right => {
                cell.split(' ').map(|word| word.chars().count()).max().unwrap_or(0).try_into().unwrap_or(u16::MAX)
            }
        };
        longest.saturating_add(GAP)
    }
}

/// Narrower than this no table can be read anyway.
const MIN_COLUMNS: u16 = 40;

/// Text from outside (names, queries) cannot play tricks on the terminal or break its row.
pub(crate) fn plain(cell: &str) -> String {
    cell.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Text in lines of at most 78 columns, indented, broken at blanks and commas.
pub(crate) fn wrapped(text: &str, indent: usize) -> String {
    let mut lines = String::new();
    let mut column = 0;
    for word in text.split_inclusive([' ', ',']) {
        let length = word.trim_end().chars().count();
        if column > 0 && column + length > 78 {
            lines.truncate(lines.trim_end().len());
            lines.push('\n');
            column = 0;
        }
        if column == 0 {
            lines.extend(std::iter::repeat_n(' ', indent));
            column = indent;
        }
        lines.push_str(word);
        column += word.chars().count();
    }
    lines.truncate(lines.trim_end().len());
    lines + "\n"
}

/// The width of trees.
pub(crate) const COLUMNS: usize = 80;

/// Appends a text in lines of [`COLUMNS`]: the first one behind `begin`, the others indented.
pub(crate) fn push_lines(text: &str, (begin, indent): (&str, usize), to: &mut String) {
    let (mut line, mut is_empty) = (begin.to_owned(), true);
    for word in plain(text).split_inclusive(' ') {
        let mut word: Vec<char> = word.chars().collect();
        loop {
            let room = COLUMNS.saturating_sub(line.chars().count());
            let length = word.iter().collect::<String>().trim_end().chars().count();
            if length <= room {
                line.extend(&word);
                is_empty = false;
                break;
            }
            if is_empty {
                // A word that fits no line is broken.
                line.extend(word.drain(..room));
            }
            to.push_str(line.trim_end());
            to.push('\n');
            (line, is_empty) = (" ".repeat(indent), true);
        }
    }
    to.push_str(line.trim_end());
    to.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADINGS: [(&str, Side); 3] = [("stream", Side::Left), ("records", Side::Right), ("query", Side::Left)];

    fn rows() -> Vec<Vec<String>> {
        let sql =
            "SELECT carrier, flight, dest, dep_delay FROM A WHERE origin = 'JFK' AND dest = 'LAX' AND dep_delay > 15";
        vec![
            vec!["A".into(), "336,776".into(), sql.into()],
            vec!["weather\u{1b}[2J\nx".into(), "1".into(), "SELECT * FROM weather".into()],
        ]
    }

    #[test]
    fn a_table_fits_80_columns() {
        let text = render(&HEADINGS, rows(), Width::Columns(80));
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.lines().count() > 4, "the long query wraps:\n{text}");
    }

    #[test]
    fn numbers_stay_whole_while_text_wraps() {
        let headings = [("stream", Side::Left), ("records", Side::Right), ("query", Side::Left), ("of", Side::Right)];
        let row = || {
            vec![
                "departures of all".into(),
                "123,456,789".into(),
                "SELECT * FROM departures".into(),
                "1 of 1,024".into(),
            ]
        };
        let text = render(&headings, [row()], Width::Columns(44));
        assert!(text.contains(" 123,456,789 ") && text.contains("1,024\n"), "{text}");
        // Where even that is too wide, it fits all the same.
        for columns in [0, 20, 40, 41] {
            let text = render(&headings, [row()], Width::Columns(columns));
            assert_eq!(text.lines().find(|line| line.chars().count() > 41), None, "{text}");
        }
    }

    #[test]
    fn a_table_in_a_pipe_has_a_line_a_row() {
        let text = render(&HEADINGS, rows(), Width::Unbounded);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[1].starts_with("A ") && lines[1].ends_with("> 15"), "{text}");
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        let text = render(&HEADINGS, rows(), Width::Unbounded);
        assert!(!text.contains('\u{1b}') && text.contains("weather [2J x"), "{text}");
    }
    #[test]
    fn long_text_wraps_at_blanks_and_commas() {
        let text = wrapped(&format!("{} {},{}", "a".repeat(40), "b".repeat(40), "c".repeat(10)), 4);
        let expected = format!("    {}\n    {},{}\n", "a".repeat(40), "b".repeat(40), "c".repeat(10));
        assert_eq!(text, expected);
    }
}
