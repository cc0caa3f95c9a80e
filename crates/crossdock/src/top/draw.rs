//! The screen of `top`.

use std::borrow::Cow;

use crossdock_runtime::info::{
    Described, EventInfo, Field, HandlerContextInfo, HandlerInfo, StreamInfo, SubscriptionInfo, Value,
};
use ratatui::buffer::Buffer;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{
    Block, Cell, Clear, Padding, Paragraph, Row, Sparkline, StatefulWidget, Table, TableState, Widget, Wrap,
};

use super::app::{App, List, Middle, Snapshot};
use crate::lists::losses;
use crate::quantity::{bandwidth, bytes, count, counted};
use crate::show;
use crate::table::Side;

/// Less than this shows nothing that could be read.
const LEAST: (u16, u16) = (60, 16);
/// Events that the screen of `--once` has room for.
const MAX_EVENTS: usize = 4;
/// Contexts that are shown without scrolling, at most.
const CONTEXTS: u16 = 6;
const KEYS: &str = " q quit  Tab list  ↑↓ row  s sort  p pause  ? help";
const HELP: &str = "\
busy       share of the last second in which a context worked
headroom   core time per second that is left for further handlers
bandwidth  bandwidth left, where it is bounded
queued     batches in the queues, and their bound
ns         time per record, the mean of the last second
takes      core time per second
lost       records dropped, for any reason, including sampling
1 in 8     the handler is sampled: it reads one record in 8
peak       the highest rate of records per second within 100 ms

q, Esc, Ctrl-C  quit             Tab ← →  next list
↑ ↓ Home End    choose a row     s        sort: name, rate, load, losses
p, Space        pause            ?        this help";

/// Draws the screen.
pub(super) fn draw(app: &mut App, area: Rect, buffer: &mut Buffer) {
    let Some(latest) = &app.latest else { return };
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let message = format!("the terminal is smaller than {}x{}", LEAST.0, LEAST.1);
        return Paragraph::new(message).render(area, buffer);
    }
    let contexts = u16::try_from(latest.platform.len()).unwrap_or(CONTEXTS).clamp(1, CONTEXTS) + 2;
    let events = (area.height / 5).max(3);
    let [contexts, detail, history, events, line] = [contexts, 2, 3, events, 1].map(Constraint::Length);
    let rows = [line, contexts, Constraint::Min(3), detail, history, events, line];
    let [title, contexts, middle, detail, history, events, keys] = Layout::vertical(rows).areas(area);
    draw_title(app, latest, title, buffer);
    draw_contexts(app, latest, contexts, buffer);
    match app.middle {
        Middle::Handlers => draw_handlers(app, latest, middle, buffer),
        Middle::Streams => draw_streams(app, latest, middle, buffer),
        Middle::Subscriptions => draw_subscriptions(app, latest, middle, buffer),
    }
    Paragraph::new(detail_of(app, latest)).wrap(Wrap { trim: true }).render(detail, buffer);
    draw_history(app, history, buffer);
    draw_events(&app.events, events, buffer);
    Paragraph::new(KEYS).style(Style::new().add_modifier(Modifier::DIM)).render(keys, buffer);
    if app.has_help {
        draw_help(area, buffer);
    }
}

/// The screen as lines.
pub(super) fn text(app: &mut App, area: Rect) -> String {
    let mut buffer = Buffer::empty(area);
    draw(app, area, &mut buffer);
    let line = |y| {
        let line: String = (area.left()..area.right()).map(|x| buffer[(x, y)].symbol()).collect();
        line.trim_end().to_owned() + "\n"
    };
    (area.top()..area.bottom()).map(line).collect()
}

/// The columns in which nothing of the contexts, handlers and events is cut.
pub(super) fn columns_of(app: &App) -> u16 {
    /// Columns of a handler and of a context that do not depend on its names, with those between them.
    const OF_HANDLER: usize = 56;
    const OF_CONTEXT: usize = 74;
    let Some(latest) = &app.latest else { return 0 };
    let length = |text: &str| text.chars().count();
    let handlers = latest.handlers.iter().map(|handler| {
        // The name has two parts of what is left, the path three.
        let path = length(&handler.reads.join(",")) + 1 + length(&handler.makes);
        OF_HANDLER + (length(&handler.name) * 5).div_ceil(2).max((path * 5).div_ceil(3))
    });
    let contexts = latest.platform.iter().map(|context| OF_CONTEXT + length(&context.handlers.join(", ")));
    let events = app.events.iter().rev().take(MAX_EVENTS).map(|event| length(&crate::events::brief(event)));
    handlers.chain(contexts).chain(events).max().unwrap_or(0).try_into().unwrap_or(u16::MAX)
}

fn draw_title(app: &App, latest: &Snapshot, area: Rect, buffer: &mut Buffer) {
    let (records_in, records_out) = app.total;
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let state = match (&app.lost, app.is_paused) {
        (Some(why), _) => format!("  does not answer: {}", why.lines().next().unwrap_or_default()),
        (None, true) => "  paused".to_owned(),
        (None, false) => String::new(),
    };
    let spans = vec![
        Span::styled("crossdock", bold),
        Span::raw(format!(" {}", latest.io.address)),
        Span::styled(state, bold.fg(Color::Yellow)),
        Span::raw(format!("  in {}/s  out {}/s", count(records_in), count(records_out))),
        Span::raw(format!("  {} sessions, {} clients", latest.io.sessions, latest.io.clients)),
    ];
    Line::from(spans).render(area, buffer);
}

/// A block's frame with its title; brighter where the keys go.
fn framed(title: String, has_keys: bool) -> Block<'static> {
    let style = if has_keys { Style::new().fg(Color::Cyan) } else { Style::new().add_modifier(Modifier::DIM) };
    // A rule above is frame enough, and leaves the columns to what is shown.
    Block::new().borders(ratatui::widgets::Borders::TOP).border_style(style).title(title)
}

/// A column: what stands in it, and its width.
type Column<'a, T> = (Shown<'a, T>, Constraint);

/// The content of a column.
enum Shown<'a, T> {
    /// A field, as it is declared.
    Field(&'static str),
    /// A column that is made of several fields, or of two snapshots: a heading, and the text, at this side.
    Made(&'static str, Side, &'a dyn Fn(&T) -> String),
}

impl<T: Described> Shown<'_, T> {
    fn heading(&self) -> (Cow<'static, str>, Side) {
        match self {
            Shown::Field(name) => show::Column::<T>::Of(name).heading(),
            Shown::Made(heading, side, _) => ((*heading).into(), *side),
        }
    }

    fn text(&self, report: &T) -> String {
        match self {
            Shown::Field(name) => show::text(report, name),
            Shown::Made(_, _, text) => text(report),
        }
    }
}

/// A list: its place, title and row that is chosen, and what stands there if it is empty.
struct Frame {
    area: Rect,
    title: String,
    /// The chosen row, where the keys are for this list.
    chosen: Option<usize>,
    empty: &'static str,
}

impl Frame {
    fn draw<T: Described>(self, columns: &[Column<'_, T>], reports: &[T], buffer: &mut Buffer) {
        let block = framed(self.title, self.chosen.is_some());
        let inner = block.inner(self.area);
        block.render(self.area, buffer);
        if reports.is_empty() {
            return Paragraph::new(self.empty).render(inner, buffer);
        }
        let cell = |text: String, side: Side| {
            let alignment = if matches!(side, Side::Right) { Alignment::Right } else { Alignment::Left };
            Cell::from(Text::from(text).alignment(alignment))
        };
        let headings: Vec<(Cow<'static, str>, Side)> = columns.iter().map(|(shown, _)| shown.heading()).collect();
        let sides: Vec<Side> = headings.iter().map(|(_, side)| *side).collect();
        let heading = headings.into_iter().map(|(heading, side)| cell(heading.into_owned(), side));
        let heading = Row::new(heading).style(Style::new().add_modifier(Modifier::BOLD));
        let row =
            |report: &T| Row::new(columns.iter().zip(&sides).map(|((shown, _), side)| cell(shown.text(report), *side)));
        let rows: Vec<Row<'_>> = reports.iter().map(row).collect();
        let table = Table::new(rows, columns.iter().map(|(_, width)| *width))
            .header(heading)
            .column_spacing(1)
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
        StatefulWidget::render(table, inner, buffer, &mut TableState::new().with_selected(self.chosen));
    }
}

/// A list's frame.
fn frame(app: &App, list: List, area: Rect, title: String, empty: &'static str) -> Frame {
    Frame { area, title, chosen: (app.list == list).then(|| app.chosen(list)), empty }
}

fn draw_contexts(app: &App, latest: &Snapshot, area: Rect, buffer: &mut Buffer) {
    let left = |context: &HandlerContextInfo| context.headroom_bytes_per_s.map_or_else(|| "-".to_owned(), bandwidth);
    let mut columns: Vec<Column<'_, HandlerContextInfo>> = vec![
        (Shown::Field("name"), Constraint::Min(10)),
        (
            Shown::Made("busy", Side::Left, &|context| {
                format!("{} {:>3.0} %", bar(context.busy_share, 14), context.busy_share * 100.0)
            }),
            Constraint::Length(20),
        ),
        (Shown::Field("headroom_ns_per_s"), Constraint::Length(9)),
        (
            Shown::Made("queued", Side::Right, &|of| format!("{}/{}", count(of.queued), count(of.queue_bound))),
            Constraint::Length(9),
        ),
        (Shown::Field("rate_msgs_per_s"), Constraint::Length(10)),
        (
            Shown::Made("handlers", Side::Left, &|context| {
                let lost = if context.lost.is_some() { "does not answer; " } else { "" };
                lost.to_owned() + &context.handlers.join(", ")
            }),
            Constraint::Fill(2),
        ),
    ];
    if latest.platform.iter().any(|context| context.capacity_bytes_per_s.is_some()) {
        columns.insert(3, (Shown::Made("bandwidth", Side::Right, &left), Constraint::Length(10)));
    }
    let title = format!(" contexts ({}) ", latest.platform.len());
    frame(app, List::Contexts, area, title, "").draw(&columns, &latest.platform, buffer);
}

/// A bar of `columns` columns, full for a share of them.
fn bar(share: f64, columns: usize) -> String {
    let full = ((share.clamp(0.0, 1.0) * columns as f64).round() as usize).min(columns);
    "█".repeat(full) + &"░".repeat(columns - full)
}

fn draw_handlers(app: &App, latest: &Snapshot, area: Rect, buffer: &mut Buffer) {
    let columns: [Column<'_, HandlerInfo>; 8] = [
        (Shown::Field("name"), Constraint::Fill(2)),
        (Shown::Made("place", Side::Left, &place), Constraint::Length(10)),
        (
            Shown::Made("path", Side::Left, &|handler| format!("{}→{}", handler.reads.join(","), handler.makes)),
            Constraint::Fill(3),
        ),
        (Shown::Field("rate_msgs_per_s"), Constraint::Length(10)),
        (Shown::Made("ns", Side::Right, &|handler| format!("{:.0}", handler.ns_per_record)), Constraint::Length(6)),
        (Shown::Field("measured"), Constraint::Length(9)),
        (
            Shown::Made("queued", Side::Right, &|of| format!("{}/{}", count(of.queued), count(of.queue_bound))),
            Constraint::Length(7),
        ),
        (Shown::Made("lost", Side::Right, &|of| count(losses::of_handler(of))), Constraint::Length(7)),
    ];
    let title = format!(" handlers ({}), by {} ", latest.handlers.len(), app.sort.name());
    let empty = "none: `crossdock handler deploy` makes one";
    frame(app, List::Handlers, area, title, empty).draw(&columns, &latest.handlers, buffer);
}

/// Where a handler runs, unless there is something else to say first.
fn place(handler: &HandlerInfo) -> String {
    match (&*handler.status, &handler.context) {
        ("running", Some(_)) if handler.sampled > 1 => format!("1 in {}", handler.sampled),
        ("running", Some(context)) => context.clone(),
        (status, _) => status.to_owned(),
    }
}

fn draw_streams(app: &App, latest: &Snapshot, area: Rect, buffer: &mut Buffer) {
    let rate = |stream: &StreamInfo| app.rates.get(&stream.name).copied().unwrap_or_default();
    let records = |stream: &StreamInfo| count(rate(stream).records_per_s);
    let all_bytes = |stream: &StreamInfo| bytes(rate(stream).bytes_per_s);
    let made_by = |stream: &StreamInfo| {
        let publishers = || match (stream.publishers, stream.blocked) {
            (number, 0) => counted(number.into(), "publisher"),
            (_, blocked) => format!("{} held back", count(blocked.into())),
        };
        stream.made_by.clone().unwrap_or_else(publishers)
    };
    let columns: [Column<'_, StreamInfo>; 7] = [
        (Shown::Field("name"), Constraint::Fill(1)),
        (Shown::Made("produced by", Side::Left, &made_by), Constraint::Min(13)),
        (Shown::Made("records/s", Side::Right, &records), Constraint::Length(10)),
        (Shown::Made("bytes/s", Side::Right, &all_bytes), Constraint::Length(10)),
        (Shown::Field("peak_msgs_per_s"), Constraint::Length(10)),
        (Shown::Field("subscriptions"), Constraint::Length(5)),
        (Shown::Made("lost", Side::Right, &|of| count(losses::of_stream(of))), Constraint::Length(9)),
    ];
    let title = format!(" streams ({}), by {} ", latest.streams.len(), app.sort.name());
    let empty = "none: `crossdock publish` makes one";
    frame(app, List::Streams, area, title, empty).draw(&columns, &latest.streams, buffer);
}

fn draw_subscriptions(app: &App, latest: &Snapshot, area: Rect, buffer: &mut Buffer) {
    let sent = |of: &SubscriptionInfo| count(app.sent.get(&of.id).copied().unwrap_or(0));
    let columns: [Column<'_, SubscriptionInfo>; 6] = [
        (Shown::Field("id"), Constraint::Length(6)),
        (Shown::Field("stream"), Constraint::Fill(1)),
        (Shown::Field("sql"), Constraint::Fill(3)),
        (Shown::Made("records/s", Side::Right, &sent), Constraint::Length(10)),
        (Shown::Made("backlog", Side::Right, &|of| bytes(of.backlog_bytes)), Constraint::Length(10)),
        (Shown::Made("lost", Side::Right, &|of| count(losses::of_subscription(of))), Constraint::Length(9)),
    ];
    let title = format!(" subscriptions ({}), by {} ", latest.subscriptions.len(), app.sort.name());
    let empty = "none: `crossdock subscribe` makes one";
    frame(app, List::Subscriptions, area, title, empty).draw(&columns, &latest.subscriptions, buffer);
}

/// The faults of the chosen row: losses by reason, sampling, faults and the like, as far as there are any.
fn detail_of(app: &App, latest: &Snapshot) -> String {
    fn of<T: Described>(name: &str, report: &T, fields: &[&str]) -> String {
        let is_some = |field: &&&str| {
            let value = T::field(field).map(|field| (field.value)(report));
            value.is_some_and(|value| match value {
                Value::Text(text) => !text.is_empty(),
                Value::Histogram(histogram) => histogram.count() > 0,
                value => value.number().is_some_and(|number| number > 0.0),
            })
        };
        let shown = |field: &&str| {
            let title = T::field(field).map(Field::title).unwrap_or_default();
            format!("{title} {}", show::text(report, field))
        };
        let shown: Vec<String> = fields.iter().filter(is_some).map(shown).collect();
        format!("{name}: {}", if shown.is_empty() { "nothing lost".to_owned() } else { shown.join("; ") })
    }
    let at = app.chosen(app.list);
    let detail = match app.list {
        List::Contexts => latest
            .platform
            .get(at)
            .map(|context| of(&context.name, context, &["lost", "replaced", "batch_wait", "batch_latency"])),
        List::Handlers => latest.handlers.get(at).map(|handler| {
            let sampled = ["sampled"].into_iter().filter(|_| handler.sampled > 1);
            let policy = ["state_policy"].into_iter().filter(|_| handler.state_bytes > 0);
            let fields = [
                "why",
                "dropped",
                "row_errors",
                "row_errors_by",
                "first_row_error",
                "faults",
                "overruns",
                "batches_shed",
                "late",
                "forgotten",
                "stage_errors",
                "checkpoint_failures",
                "gap_records",
                "degraded",
            ];
            let of_state = ["state_bytes"].into_iter().chain(policy);
            of(&handler.name, handler, &of_state.chain(fields).chain(sampled).collect::<Vec<_>>())
        }),
        List::Streams => latest.streams.get(at).map(|stream| {
            let fields = ["records_unclaimed", "records_malformed", "records_dropped", "row_errors", "held_records"];
            of(&stream.name, stream, &fields)
        }),
        List::Subscriptions => latest.subscriptions.get(at).map(|subscription| {
            of(
                &subscription.peer,
                subscription,
                &[
                    "dropped",
                    "row_errors",
                    "dropped_by",
                    "first_row_error",
                    "first_conversion_error",
                    "held_records",
                    "handler",
                ],
            )
        }),
    };
    detail.unwrap_or_default()
}

/// The last minutes of what is chosen, the newest at the right; a column is the most of as many seconds as it stands for.
fn draw_history(app: &App, area: Rect, buffer: &mut Buffer) {
    let (name, moments) = app.history().unwrap_or_default();
    let rates: Vec<u64> = moments.iter().map(|moment| moment.msgs_in_per_s).collect();
    let most = rates.iter().max().copied().unwrap_or(0);
    let title = match rates.len() {
        0 => " records/s: nothing yet ".to_owned(),
        seconds => format!(" {name}: records/s in the last {seconds} s, at most {} ", count(most)),
    };
    let block = framed(title, false);
    let inner = block.inner(area);
    block.render(area, buffer);
    let step = rates.len().div_ceil(inner.width.into()).max(1);
    let mut columns: Vec<u64> = rates.rchunks(step).filter_map(|rates| rates.iter().max().copied()).collect();
    columns.reverse();
    let width = (columns.len() as u16).min(inner.width);
    let inner = Rect { x: inner.right() - width, width, ..inner };
    Sparkline::default().data(columns).max(most.max(1)).style(Style::new().fg(Color::Cyan)).render(inner, buffer);
}

fn draw_events(events: &[EventInfo], area: Rect, buffer: &mut Buffer) {
    let block = framed(" events ".to_owned(), false);
    let inner = block.inner(area);
    block.render(area, buffer);
    let shown = events.len().min(inner.height.into());
    let lines = events[events.len() - shown..].iter().map(|event| Line::raw(crate::events::brief(event)));
    Paragraph::new(lines.collect::<Vec<_>>()).render(inner, buffer);
}

fn draw_help(area: Rect, buffer: &mut Buffer) {
    let (width, height) = (64, HELP.lines().count() as u16 + 2);
    let [area] = Layout::horizontal([Constraint::Length(width + 4)]).flex(ratatui::layout::Flex::Center).areas(area);
    let [area] = Layout::vertical([Constraint::Length(height)]).flex(ratatui::layout::Flex::Center).areas(area);
    Clear.render(area, buffer);
    let block = Block::bordered().title(" help ").padding(Padding::horizontal(1));
    Paragraph::new(HELP).block(block).render(area, buffer);
}

#[cfg(test)]
mod tests {
    use super::super::app::tests::{app, snapshot};
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::KeyCode;
    use std::time::Instant;

    fn screen(app: &mut App, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(app, frame.area(), frame.buffer_mut())).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn a_small_screen_has_contexts_handlers_history_events_and_keys() {
        let text = screen(&mut app(), 80, 24);
        for expected in [
            "crossdock 127.0.0.1:7440  in 2,100,000/s  out 1,000,000/s",
            "contexts (3)",
            "c-core-0   ███████░░░░░░░  52 %  280 ms/s  68.0 MB/s",
            "g-core-0   ██████████████  99 %",
            "headroom  bandwidth",
            "handlers (3), by name",
            "A→late_out",
            "2,000,000    123  260 ms/s   3/256",
            "late: records/s in the last 120 s, at most 1,190",
            "22:13:22 moved totals @g-core-0: c-core-1 had lost its headroom",
            "q quit",
        ] {
            assert!(text.contains(expected), "no `{expected}` in\n{text}");
        }
    }

    #[test]
    fn streams_have_their_rates_and_who_makes_them() {
        let mut app = app();
        assert!(app.press(KeyCode::Tab));
        let text = screen(&mut app, 80, 24);
        for expected in [
            "streams (3)",
            "A: unclaimed 12,345",
            "late_out",
            " late ",
            "2,100,000",
            "1 publisher ",
            "80.11 MiB",
            "4,200,000",
        ] {
            assert!(text.contains(expected), "no `{expected}` in\n{text}");
        }
    }

    #[test]
    fn losses_sampling_faults_and_overruns_show_and_so_do_subscriptions() {
        let mut app = app();
        assert!(app.press(KeyCode::Down));
        let text = screen(&mut app, 80, 24);
        for expected in [
            "narrow     1 in 8",
            "3/256      13",
            "narrow: dropped 7 queue_full, 5 sampled; row errors 1; faults 2; budget overruns",
            "4; one record in 8",
        ] {
            assert!(text.contains(expected), "no `{expected}` in\n{text}");
        }
        assert!(app.press(KeyCode::Tab) && app.press(KeyCode::Tab));
        let text = screen(&mut app, 80, 24);
        for expected in ["subscriptions (1)", "SELECT flight FROM A", " 500 ", "127.0.0.1:40000: dropped 9"] {
            assert!(text.contains(expected), "no `{expected}` in\n{text}");
        }
    }

    #[test]
    fn a_state_has_its_bytes_its_bound_its_policy_and_what_was_forgotten() {
        let mut app = app();
        let latest = app.latest.as_mut().unwrap();
        let handler = &mut latest.handlers[0];
        (handler.state_bytes, handler.state_bytes_bound, handler.forgotten) = (67_000_000, 64 << 20, 12_345);
        handler.state_policy = crossdock_query::STATE_POLICY.to_owned();
        let text = screen(&mut app, 80, 24);
        for expected in
            ["late: state bytes 63.90 MiB of 64.00 MiB; at its bound sheds the oldest;", "forgotten 12,345 "]
        {
            assert!(text.contains(expected), "no `{expected}` in\n{text}");
        }
        // One that keeps nothing has no policy.
        app.latest.as_mut().unwrap().handlers[0].state_bytes = 0;
        assert!(!screen(&mut app, 80, 24).contains("sheds"));
    }

    #[test]
    fn a_daemon_that_does_not_answer_is_said_not_to() {
        let mut app = app();
        app.lose("no daemon is running at /run/crossdock.sock\nhint: start one".into());
        let text = screen(&mut app, 80, 24);
        assert!(text.contains("crossdock 127.0.0.1:7440  does not answer: no daemon is running at"), "{text}");
        assert!(text.contains("A→late_out") && !text.contains("hint"), "{text}");
    }

    #[test]
    fn every_size_and_state_draws_and_the_lines_are_the_screen() {
        let mut empty = App::default();
        let mut nothing = snapshot(Instant::now(), 0);
        (nothing.platform, nothing.handlers, nothing.streams) = (Vec::new(), Vec::new(), Vec::new());
        (nothing.history, nothing.events) = (Vec::new(), Vec::new());
        empty.take(nothing);
        for mut app in [App::default(), empty, app()] {
            for key in [KeyCode::Char('x'), KeyCode::Tab, KeyCode::Tab, KeyCode::Char('?')] {
                assert!(app.press(key));
                for (width, height) in [(1, 1), (59, 40), (60, 16), (80, 24), (200, 60), (400, 5)] {
                    assert!(!screen(&mut app, width, height).is_empty());
                    let lines = text(&mut app, Rect::new(0, 0, width, height));
                    assert_eq!(lines.lines().count(), usize::from(height));
                }
            }
        }
    }

    #[test]
    fn help_and_pause_show() {
        let mut app = app();
        assert!(app.press(KeyCode::Char('p')) && app.press(KeyCode::Char('?')));
        let text = screen(&mut app, 80, 24);
        assert!(text.contains("paused") && text.contains("headroom   core time per second that is left"), "{text}");
    }
}
