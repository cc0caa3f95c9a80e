//! `crossdock serve`: the context, the HTTP API, and waiting for the end.

use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crossdock_format::Format;
use crossdock_runtime::info::EventInfo;
use crossdock_runtime::{
    ChangeRequest, ContextConfig, ContextHandle, FileState, HandlerSpec, PassedSockets, Stopped, TableSpec,
};
use tracing_subscriber::filter::LevelFilter;

use crate::check::files::raise_limit;
use crate::cli::{Listen, Serve};
use crate::config::{self, Config, Level, SecuritySection, StreamSection};
use crate::failure::{Failure, Outcome};
use crate::http::indented;
use crate::http::server::{Server, TcpSide};
use crate::http::socket::{self, SocketFile};
use crate::http::tls::TlsFiles;
use crate::http::token::TokenFiles;
use crate::quantity::bytes;
use crate::signals::Interrupt;
use crate::systemd::{self, Passed};
use crate::{out, schema, version};

/// How often the daemon looks whether its context is still there: rarely, for that wakes it.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// Why the daemon ends.
enum End {
    /// SIGINT or SIGTERM.
    Signal(i32),
    /// The context ended by itself, which it should not.
    ContextStopped,
}

impl End {
    /// The daemon's outcome, logged where it is as wanted.
    fn outcome(self) -> Outcome {
        match self {
            End::Signal(signal) => {
                let name = signal_hook::low_level::signal_name(signal).unwrap_or("signal");
                tracing::info!(signal = name, "sessions ended, goodbye");
                Ok(())
            }
            End::ContextStopped => Err(Failure::failed("the execution context has ended unexpectedly")
                .hint("the log above has the reason; start the daemon again")),
        }
    }
}

/// Runs the daemon until a signal comes.
pub(crate) fn run(arguments: &Serve) -> Outcome {
    if arguments.print_config {
        return out::print(config::EXAMPLE);
    }
    let config = configuration(arguments)?;
    // While there is no other thread.
    let mut passed = Passed::take()?;
    passed.check(arguments, &config)?;
    let directory = arguments.config.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
    let streams = read_schemas(&config.stream, directory)?;
    let tables: Vec<TableSpec> = config.table.iter().map(|table| table.spec(directory)).collect::<Outcome<_>>()?;
    let tokens = Arc::new(config.tokens(directory)?);
    start_log(config.log.level);
    if let Err(few) = raise_limit(&config, directory) {
        tracing::warn!("{few}");
    }
    let interrupt = Interrupt::install()?;
    interrupt.arm();

    passed.log(&config);
    // The socket before the context's threads: it sets the umask for a moment.
    let ApiSockets { path, _file, unix, tcp } = ApiSockets::open(arguments, &config, directory, &mut passed)?;
    let (http, tls) = tcp.as_ref().map(|tcp| (tcp.listener.local_addr().ok(), tcp.tls.clone())).unwrap_or_default();

    // First: a change while it is read is one.
    let keys = AuthorizedFile::of(&config, directory);
    let security = config.security.read(directory)?;
    let context_config = ContextConfig { security, tables, ..config.of_context(directory) };
    let buffer_bytes = context_config.buffer_bytes;
    let state_dir = context_config.morph.state_dir.as_ref().map(|path| path.display().to_string());
    let context = ContextHandle::prepare(context_config, PassedSockets { udp: passed.udp, attach: passed.attach });
    let context = context.map_err(|error| Failure::failed(error.to_string()))?;
    log(&context);
    let refused = declare(&context, &streams, &config)?;
    let fits = context.check_access_rules().map_err(|stopped| Failure::failed(stopped.to_string()))?;
    fits.map_err(|why| Failure::usage(format!("[[access]] of the configuration: {why}")))?;
    let server = Server::start(context.clone(), unix, tcp, Arc::clone(&tokens))?;
    // Whatever reads a record is there before the first one is acknowledged.
    context.open().map_err(|error| Failure::failed(error.to_string()))?;
    let (attach, udp) = (context.attach_addr(), context.udp_info());
    tracing::info!(
        version = version::VERSION,
        commit = version::COMMIT,
        address = %context.local_addr(),
        attach = attach.map_or_else(|| "off".to_owned(), ToString::to_string),
        socket = %path.display(),
        key = config.security.key.is_some(),
        http = http.map_or_else(|| "off".to_owned(), |http| http.to_string()),
        tls = tls.is_some(),
        buffers = bytes(buffer_bytes),
        gso = udp.cuts_in_kernel,
        gro = udp.joins_in_kernel,
        streams = streams.len(),
        tables = config.table.len(),
        mailboxes = config.mailbox.len(),
        tasks = config.task.len(),
        handlers = config.handler.len(),
        refused,
        kept = state_dir.as_deref().unwrap_or("as long as this daemon"),
        "serving"
    );

    systemd::ready(context.local_addr());
    let end = wait(&context, &interrupt, keys, (tls.as_deref(), &tokens));
    systemd::stopping();
    drop(server);
    let stopped = context.stop();
    end.outcome()?;
    stopped.map_err(|stuck| Failure::failed(stuck.to_string()))
}

/// The configuration, with the options that replace keys of it.
fn configuration(arguments: &Serve) -> Outcome<Config> {
    let mut config = match &arguments.config {
        Some(path) => Config::read(path)?,
        None => Config::default(),
    };
    match &arguments.listen {
        Some(Listen::Udp(address)) => config.context.listen = *address,
        Some(Listen::Attach(address)) => config.attach.address = Some(address.clone()),
        None => {}
    }
    Ok(config)
}

/// The sockets of the HTTP API.
struct ApiSockets {
    path: PathBuf,
    /// Goes with the daemon; a socket that systemd passed has none of its own.
    _file: Option<SocketFile>,
    unix: UnixListener,
    tcp: Option<TcpSide>,
}

impl ApiSockets {
    /// Opens those that were not passed.
    fn open(arguments: &Serve, config: &Config, directory: &Path, passed: &mut Passed) -> Outcome<ApiSockets> {
        // Before the control socket, which a daemon that does not start leaves alone.
        let tcp = ApiSockets::open_tcp(config, directory, passed)?;
        let configured = arguments.socket.clone().or_else(|| config.control.socket.clone());
        let path = passed.control_path().or(configured).unwrap_or_else(socket::default_path);
        let (unix, file) = match passed.control.take() {
            Some(unix) => (unix, None),
            None => SocketFile::bind(&path).map(|(unix, file)| (unix, Some(file)))?,
        };
        Ok(ApiSockets { path, _file: file, unix, tcp })
    }

    fn open_tcp(config: &Config, directory: &Path, passed: &mut Passed) -> Outcome<Option<TcpSide>> {
        let bind = |address: SocketAddr| {
            refuse_open(config, address)?;
            TcpListener::bind(address).map_err(|error| {
                Failure::failed(format!("cannot serve HTTP on {address}: {error}"))
                    .hint("set another address, or \"off\", as `http` under [control] in the configuration")
            })
        };
        let listener = match passed.http.take() {
            Some(listener) => {
                listener.local_addr().map_or(Ok(()), |address| refuse_open(config, address))?;
                listener
            }
            None => match config.control.http {
                Some(address) => bind(address)?,
                None => return Ok(None),
            },
        };
        let tls = config.control.tls(directory)?.map(Arc::new);
        Ok(Some(TcpSide { listener, tls, trusted: config.security.trusted.clone() }))
    }
}

/// Refuses an address at which other machines would reach the API without TLS.
fn refuse_open(config: &Config, address: SocketAddr) -> Outcome {
    if !config.is_open_at(address) {
        return Ok(());
    }
    Err(Failure::usage(format!("the HTTP API would listen at {address}, beyond this machine, and has no certificate for TLS"))
        .hint(
            "set `tls_cert` and `tls_key` under [control] of the configuration (docs/security.md has the command that makes \
             them), or list the networks whose hosts may read what is sent as `trusted` in [security]; or let it listen at \
             127.0.0.1",
        ))
}

/// Reads the schema files of the streams that are configured.
fn read_schemas(streams: &[StreamSection], directory: &Path) -> Outcome<Vec<(String, Format)>> {
    let read = |stream: &StreamSection| {
        let path = directory.join(stream.schema.as_ref()?);
        Some(schema::read(&path).map(|read| (stream.name.clone(), read.format)))
    };
    streams.iter().filter_map(read).collect()
}

/// Makes what is to be there from the start. A section that is refused is reported, and the others are made; returns how
/// many are refused.
fn declare(context: &ContextHandle, streams: &[(String, Format)], config: &Config) -> Outcome<usize> {
    let mut refused = 0;
    let mut note = |what: String, declared: Result<Result<(), String>, Stopped>| match declared {
        Ok(Ok(())) => Ok(()),
        Ok(Err(why)) => {
            refused += 1;
            tracing::warn!("the configured {what} cannot be declared: {why}");
            Ok(())
        }
        Err(stopped) => Err(Failure::failed(stopped.to_string())),
    };
    for (name, format) in streams {
        note(format!("stream `{name}`"), context.declare_stream(name, format))?;
    }
    for mailbox in &config.mailbox {
        let declared = context.create_mailbox(&mailbox.name, mailbox.options());
        note(format!("mailbox `{}`", mailbox.name), declared)?;
    }
    for task in &config.task {
        let declared = context.create_task(&task.task, &task.mailbox, &task.arguments);
        note(format!("task `{}` of mailbox `{}`", task.task, task.mailbox), declared)?;
    }
    Ok(refused + deploy(context, config)?)
}

/// Deploys the configured handlers beside those that were kept; returns how many are refused.
fn deploy(context: &ContextHandle, config: &Config) -> Outcome<usize> {
    let wanted = config.handlers();
    if wanted.is_empty() {
        return Ok(0);
    }
    let stopped = |stopped: Stopped| Failure::failed(stopped.to_string());
    let manager = context.manager();
    let kept = manager.specs().map_err(stopped)?;
    // A change of the configuration is meant, so state that its new version cannot take is given up.
    let all = ChangeRequest::All(merged(kept.clone(), wanted.clone()));
    // Planned first: what is refused is noted once, when it is tried alone.
    let is_possible = manager.plan(all.clone(), true).map_err(stopped)?.refusals.is_empty();
    if is_possible && let Ok(applied) = manager.change(all, true).map_err(stopped)? {
        applied.plan.notes.iter().for_each(|note| tracing::info!("{note}"));
        return Ok(0);
    }
    // One that cannot be must not keep the others away.
    let mut refused = 0;
    for spec in wanted {
        let name = spec.name.clone();
        let is_kept = kept.iter().any(|kept| kept.name == name);
        let change = if is_kept { ChangeRequest::Swap(spec) } else { ChangeRequest::Deploy(spec) };
        match manager.change(change, true).map_err(stopped)? {
            Ok(applied) => applied.plan.notes.iter().for_each(|note| tracing::info!("{note}")),
            Err(plan) => {
                refused += 1;
                let instead = if is_kept { "; the kept handler of this name stays" } else { "" };
                tracing::warn!(
                    "the configured handler `{name}` cannot be deployed{instead}:{} (correct its [[handler]] or [[stream]] section, \
                     and try \
                     `crossdock plan FILE`)",
                    indented(&plan.refusals)
                );
            }
        }
    }
    Ok(refused)
}

/// The kept specifications, but for what is configured under the same name, which wins.
pub(crate) fn merged(mut kept: Vec<HandlerSpec>, configured: Vec<HandlerSpec>) -> Vec<HandlerSpec> {
    kept.retain(|kept| configured.iter().all(|configured| configured.name != kept.name));
    kept.extend(configured);
    kept
}

/// Has what happens in the daemon written down, and what has happened already.
fn log(context: &ContextHandle) {
    context.log_to(|line| tracing::info!(line, "message of a task"));
    for complaint in context.not_restored() {
        tracing::warn!("{complaint}");
    }
    context.manager().log_events_to(log_event);
}

/// Unrequested events on the platform are for the reader of the log.
fn log_event(event: &EventInfo) {
    let EventInfo { kind, handler, context, text, .. } = event;
    match kind.as_str() {
        "failed"
        | "panicked"
        | "lost"
        | "stopped"
        | "replaced"
        | "unanswered"
        | "unreadable"
        | "undone"
        | "not_restored"
        | "table_failed"
        | "state_not_restored"
        | "checkpoint_failed"
        | "checkpoint_put_off"
        | "subscribers_missing" => {
            tracing::warn!(kind, handler, context, "{text}");
        }
        _ => tracing::info!(kind, handler, context, "{text}"),
    }
}

fn start_log(level: Level) {
    let level = match level {
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
    };
    tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).with_target(false).init();
}

/// The file with the keys of clients that may connect, which may change while the daemon runs.
struct AuthorizedFile<'a> {
    section: &'a SecuritySection,
    directory: &'a Path,
    path: PathBuf,
    /// The state in which it was read.
    state: Option<FileState>,
    /// Why it was not read last time, as it was reported.
    reported: Option<String>,
}

impl<'a> AuthorizedFile<'a> {
    /// The configured file, if there is one.
    fn of(config: &'a Config, directory: &'a Path) -> Option<AuthorizedFile<'a>> {
        let path = directory.join(config.security.authorized_file.as_ref()?);
        let state = FileState::of(&path);
        Some(AuthorizedFile { section: &config.security, directory, path, state, reported: None })
    }

    /// Reads it again if it has changed. A file that is no list of keys is reported once, and the last list holds; such a file, and
    /// one that cannot be read, is tried again each time.
    fn look(&mut self, context: &ContextHandle) {
        let now = FileState::of(&self.path);
        if now.is_some() && now == self.state {
            return;
        }
        let keys = self.section.clients(self.directory);
        let why = match keys.map(|keys| (keys.len(), context.authorize(keys))) {
            Ok((clients, Ok(()))) => {
                tracing::info!(clients, "the list of authorised clients has changed");
                (self.state, self.reported) = (now, None);
                return;
            }
            Ok((_, Err(stopped))) => stopped.to_string(),
            Err(failure) => format!("{}; the last list of authorised clients holds", failure.message()),
        };
        if self.reported.as_ref() != Some(&why) {
            tracing::warn!("{why}");
            self.reported = Some(why);
        }
    }
}

/// Waits for a signal, or for a context that should not have ended.
fn wait(
    context: &ContextHandle,
    interrupt: &Interrupt,
    mut keys: Option<AuthorizedFile<'_>>,
    (tls, tokens): (Option<&TlsFiles>, &TokenFiles),
) -> End {
    let heartbeat = systemd::heartbeat(HEARTBEAT);
    let mut answers = true;
    loop {
        // Without a sign of life from the daemon, systemd starts it again.
        if answers {
            systemd::alive();
        }
        interrupt.sleep(heartbeat);
        if let Some(signal) = interrupt.caught() {
            return End::Signal(signal);
        }
        if context.has_ended() {
            return End::ContextStopped;
        }
        answers = context.context().is_ok();
        if let Some(keys) = &mut keys {
            keys.look(context);
        }
        if let Some(tls) = tls {
            tls.look();
        }
        tokens.look();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossdock_nectarine::{Node, PrivateKey, Transport};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_changed_list_of_keys_holds_at_once_and_one_that_is_none_does_not() {
        let directory = tempfile::tempdir().unwrap();
        let (path, client) = (directory.path().join("clients.keys"), PrivateKey::from_random([2; 32]));
        std::fs::write(&path, "# nobody yet\n").unwrap();
        let mut config = Config::default();
        config.security.authorized_file = Some("clients.keys".into());
        config.security.trusted.clear();
        let mut security = config.security.read(directory.path()).unwrap();
        security.key = Some(PrivateKey::from_random([1; 32]));
        let daemons = PrivateKey::from_random([1; 32]).public();
        let listen = "127.0.0.1:0".parse().unwrap();
        let context = ContextHandle::start(ContextConfig { listen, security, ..ContextConfig::default() }).unwrap();
        let mut keys = AuthorizedFile::of(&config, directory.path()).unwrap();
        let connects = || {
            let builder = Node::builder(context.local_addr().to_string()).transport(Transport::Udp);
            builder.keys(client.clone(), daemons).connect().is_ok()
        };
        keys.look(&context);
        assert!(!connects());
        for (text, may) in
            [(format!("{} desk\n", client.public()), true), ("desk\n".into(), true), (String::new(), false)]
        {
            std::fs::write(&path, &text).unwrap();
            keys.look(&context);
            assert_eq!(connects(), may, "{text}");
            assert_eq!(
                keys.state == FileState::of(&path),
                text != "desk\n",
                "what was not read is tried again: {text}"
            );
        }
        // A file that has other readers now is in another state, with the same content.
        let before = FileState::of(&path);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert_ne!(FileState::of(&path), before);
    }

    #[test]
    fn a_configured_handler_wins_over_a_kept_one_of_its_name_and_other_kept_ones_stay() {
        let spec =
            |name: &str, sql: &str| HandlerSpec { name: name.into(), sql: Some(sql.into()), ..HandlerSpec::default() };
        let all = merged(vec![spec("a", "kept"), spec("b", "kept")], vec![spec("b", "new"), spec("c", "new")]);
        let all: Vec<_> = all.iter().map(|spec| (&*spec.name, spec.sql.as_deref())).collect();
        assert_eq!(all, [("a", Some("kept")), ("b", Some("new")), ("c", Some("new"))]);
    }
}
