//! `crossdock top`: contexts, handlers and streams, live in the terminal.

mod app;
mod draw;

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::Rect;

use self::app::{App, Snapshot};
use crate::cli::Top;
use crate::failure::{Failure, Outcome};
use crate::http::client::Client;
use crate::http::{Contexts, Events, Handlers, History, Streams, Subscriptions};
use crate::out;
use crate::signals::Interrupt;
use crate::table::Width;

/// How often the daemon is asked.
const REFRESH: Duration = Duration::from_secs(1);
/// How often a key, a signal or the time for the next refresh is looked for, at least.
const LOOK: Duration = Duration::from_millis(100);
/// Events that are shown at most.
const MAX_EVENTS: usize = 100;
/// The screen of `--once`, at least, unless the terminal, COLUMNS and LINES say otherwise.
const SCREEN: (u16, u16) = (80, 24);

/// Runs it until the user has enough.
pub(crate) fn run(arguments: &Top) -> Outcome {
    let mut daemon = Daemon { client: Client::new(&arguments.control)?, started_at_ms: 0, seen: 0 };
    if arguments.once {
        return once(&mut daemon, arguments.json);
    }
    if !console::Term::stdout().is_term() {
        return Err(Failure::usage("standard output is not a terminal, so a live view is not possible")
            .hint("`crossdock top --once` prints one screen as text"));
    }
    // Before the screen changes: that no daemon is there is said on the usual one.
    let mut app = App::default();
    app.take(daemon.ask()?);
    let interrupt = Interrupt::install()?;
    interrupt.arm();
    let screen = Screen::open()?;
    // A second signal ends the process at once: the terminal has been put right by then.
    interrupt.on_raise(ratatui::restore);
    screen.show(app, &Asker::start(daemon)?, &interrupt)
}

/// Prints one screen. Figures per second come from the difference between two snapshots.
fn once(daemon: &mut Daemon, json: bool) -> Outcome {
    let mut app = App::default();
    app.take(daemon.ask()?);
    let interrupt = Interrupt::install()?;
    interrupt.sleep(REFRESH);
    app.take(daemon.ask()?);
    if json {
        return out::print_json(&app.figures());
    }
    let columns = match Width::of_stdout() {
        Width::Columns(columns) => columns,
        Width::Unbounded => draw::columns_of(&app).max(SCREEN.0),
    };
    let lines = std::env::var("LINES").ok().and_then(|lines| lines.parse().ok()).unwrap_or(SCREEN.1);
    out::print(draw::text(&mut app, Rect::new(0, 0, columns.clamp(20, 500), lines.clamp(5, 500))))
}

/// The daemon, and what it has reported so far.
struct Daemon {
    client: Client,
    /// When it started, in ms since 1970.
    started_at_ms: u64,
    /// The number of the last of its events that was seen.
    seen: u64,
}

impl Daemon {
    fn ask(&mut self) -> Outcome<Snapshot> {
        let Contexts { contexts, platform, control } = self.client.get("/v1/contexts")?;
        let started_at_ms = control.started_at_ms;
        if std::mem::replace(&mut self.started_at_ms, started_at_ms) != started_at_ms {
            // Another daemon, which numbers its events anew.
            self.seen = 0;
        }
        let Handlers { handlers } = self.client.get("/v1/handlers")?;
        let Streams { streams } = self.client.get("/v1/streams")?;
        let Subscriptions { subscriptions } = self.client.get("/v1/subscriptions")?;
        let History { history } = self.client.get("/v1/history")?;
        let Events { mut events } = self.client.get(&format!("/v1/events?after={}", self.seen))?;
        self.seen = events.last().map_or(self.seen, |event| event.number);
        events.drain(..events.len().saturating_sub(MAX_EVENTS));
        let io = contexts.into_iter().next().unwrap_or_default();
        let at = Instant::now();
        Ok(Snapshot { at, started_at_ms, io, platform, handlers, streams, subscriptions, history, events })
    }
}

/// Asks the daemon on a thread of its own, so that keys are answered while it is slow or away.
struct Asker {
    ask: Sender<()>,
    answers: Receiver<Outcome<Snapshot>>,
}

impl Asker {
    fn start(mut daemon: Daemon) -> Outcome<Asker> {
        let ((ask, asked), (answer, answers)) = (channel(), channel());
        let work = move || {
            while asked.recv().is_ok() && answer.send(daemon.ask()).is_ok() {}
        };
        // It ends with the program: an answer that is still awaited then is of no use.
        let started = std::thread::Builder::new().name("asker".into()).spawn(work);
        started.map_err(|error| Failure::failed(format!("no thread can be started: {error}")))?;
        Ok(Asker { ask, answers })
    }
}

/// The terminal while it is ours; it is put right whichever way this ends.
struct Screen {
    terminal: ratatui::DefaultTerminal,
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

impl Screen {
    fn open() -> Outcome<Screen> {
        let terminal = ratatui::try_init().map_err(|error| {
            ratatui::restore();
            Failure::failed(format!("the terminal cannot be taken over: {error}"))
                .hint("`crossdock top --once` prints one screen as text")
        })?;
        Ok(Screen { terminal })
    }

    fn show(mut self, mut app: App, asker: &Asker, interrupt: &Interrupt) -> Outcome {
        let failed = |error: io::Error| Failure::failed(format!("the terminal fails: {error}"));
        let (mut asked, mut is_asked) = (Instant::now(), false);
        while interrupt.caught().is_none() {
            self.terminal.draw(|frame| draw::draw(&mut app, frame.area(), frame.buffer_mut())).map_err(failed)?;
            if event::poll(LOOK).map_err(failed)?
                && let Event::Key(key) = event::read().map_err(failed)?
                && key.kind != KeyEventKind::Release
                && (is_end(key) || !app.press(key.code))
            {
                return Ok(());
            }
            if let Ok(answer) = asker.answers.try_recv() {
                is_asked = false;
                match answer {
                    Ok(snapshot) => app.take(snapshot),
                    Err(failure) => app.lose(failure.message().to_owned()),
                }
            }
            if asked.elapsed() >= REFRESH && !app.is_paused && !is_asked {
                // The thread ends with this side.
                is_asked = asker.ask.send(()).is_ok();
                asked = Instant::now();
            }
        }
        Ok(())
    }
}

/// Ctrl-C, which is a key and no signal while the terminal hands on every key as it is.
fn is_end(key: KeyEvent) -> bool {
    key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL)
}
