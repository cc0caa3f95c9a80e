//! Processes messages in transit: daemon, command line, control API.
#![forbid(unsafe_code)]

mod access;
mod analyze;
mod bench;
mod call;
mod check;
mod cli;
mod config;
mod connecting;
mod conversions;
mod demo;
mod doctor;
mod events;
mod failure;
mod formats;
mod handlers;
mod http;
mod input;
mod keyfile;
mod keys;
mod lists;
mod mailbox;
mod man;
mod out;
mod ping;
mod progress;
mod publish;
mod quantity;
mod rows;
mod schema;
mod serve;
mod show;
mod signals;
mod skips;
mod subscribe;
mod systemd;
mod table;
mod target;
mod top;
mod tour;
mod trace;
mod version;
mod why;

use std::process::ExitCode;

use clap::FromArgMatches;

use crate::cli::{Cli, Command, ExplainCommand, StreamsCommand, SubscriptionsCommand};
use crate::failure::Outcome;

fn main() -> ExitCode {
    let outcome = match std::env::args_os().len() {
        ..=1 => out::print(cli::START),
        // clap reports what is wrong with the command line, and exits with 2.
        _ => match Cli::from_arg_matches(&cli::definition().get_matches()) {
            Ok(cli) => run(cli.command),
            Err(error) => error.exit(),
        },
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run(command: Command) -> Outcome {
    match command {
        Command::Tour(arguments) => tour::run(&arguments),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Publish(arguments) => publish::run(&arguments),
        Command::Subscribe(arguments) => subscribe::run(&arguments),
        Command::Explain(arguments) => match &arguments.command {
            None => lists::explain(&arguments),
            Some(ExplainCommand::Analyze(analyze)) => analyze::run(analyze),
        },
        Command::Formats(arguments) => formats::run(&arguments),
        Command::Conversions(arguments) => conversions::run(&arguments),
        Command::Paths(arguments) => conversions::paths(&arguments),
        Command::Streams(arguments) => match &arguments.command {
            None => lists::streams(&arguments.list),
            Some(StreamsCommand::Rm(stream)) => formats::remove_stream(stream),
            Some(StreamsCommand::Set(stream)) => handlers::set_state(stream),
        },
        Command::Subscriptions(arguments) => match &arguments.command {
            None => lists::subscriptions(&arguments.list),
            Some(SubscriptionsCommand::Set(set)) => lists::set_query(set),
        },
        Command::Contexts(arguments) => lists::contexts(&arguments),
        Command::Handler(arguments) => handlers::run(&arguments),
        Command::Handlers(arguments) => handlers::list(&arguments),
        Command::Plan(arguments) => handlers::plan(&arguments),
        Command::Apply(arguments) => handlers::apply(&arguments),
        Command::Events(arguments) => events::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Sessions(arguments) => lists::sessions(&arguments),
        Command::Clients(arguments) => lists::clients(&arguments),
        Command::Why(arguments) => why::run(&arguments),
        Command::Ping(arguments) => ping::run(&arguments),
        Command::Call(arguments) => call::run(&arguments),
        Command::Mailbox(arguments) => mailbox::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments.command),
        Command::Mailboxes(arguments) => lists::mailboxes(&arguments),
        Command::Tables(arguments) => lists::tables(&arguments),
        Command::Keygen(arguments) => keys::keygen(&arguments),
        Command::Keys(arguments) => keys::run(&arguments),
        Command::Access(arguments) => access::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Version(arguments) => version::run(arguments.json),
        Command::Man(arguments) => man::run(&arguments),
        Command::Completions { shell } => completions(shell),
    }
}

fn completions(shell: clap_complete::Shell) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut cli::definition(), "crossdock", &mut script);
    out::print(script)
}
